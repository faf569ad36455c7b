{{/*
The pods of a Ray cluster. What stands here is the cluster's revision: another text makes another RayCluster, as KubeRay
changes no pod of one that runs.

KubeRay gives pods of a cluster with an autoscaler restartPolicy: Never. What must be started again when it has ended is
therefore an init container with a restartPolicy of its own, a sidecar.
*/}}
{{- define "podium.headTemplate" -}}
metadata:
  labels:
    {{- include "podium.podLabels" (list . "head") | nindent 4 }}
  {{- with .Values.head.podAnnotations }}
  annotations: {{ toJson . }}
  {{- end }}
spec:
  serviceAccountName: {{ include "podium.fullname" . }}-head
  automountServiceAccountToken: false
  enableServiceLinks: false
  # Ray's client finds the raylet of its node among the processes that it sees (Ray 2.60).
  shareProcessNamespace: true
  terminationGracePeriodSeconds: {{ add .Values.drainSeconds 60 }}
  securityContext:
    {{- include "podium.podSecurity" . | nindent 4 }}
  {{- include "podium.imagePullSecrets" . | nindent 2 }}
  {{- include "podium.placement" .Values.head | nindent 2 }}
  initContainers:
    - name: service
      {{- include "podium.image" . | nindent 6 }}
      restartPolicy: Always
      command: [podium, up, --standby, --ray, "$(POD_IP):6379", --no-local-key]
      args: [--host=127.0.0.1, --port=8700, --project=/etc/podium/project/podium.toml]
      env:
        {{- include "podium.homeEnv" . | nindent 8 }}
        {{- include "podium.doorEnv" (list . .Values.doors.servicePort) | nindent 8 }}
        {{- include "podium.rayToken" . | nindent 8 }}
        - {name: PODIUM_PRESENTATION, value: dir}
        - {name: PODIUM_AUTOSCALER, value: "true"}
        # The RayCluster's name, which KubeRay writes: the revision is a hash of what stands here.
        - name: PODIUM_SERVICE_NAME
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['ray.io/cluster']"}}
      {{- with .Values.models.existingSecret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      ports:
        - {name: door, containerPort: {{ .Values.doors.servicePort }}}
      # No startupProbe: Ray, which the service waits for, would not be started before it has passed. Meanwhile the
      # service is live, and not ready.
      readinessProbe:
        exec: {command: [wget, -q, -T, "5", -O, /dev/null, "http://127.0.0.1:8700/readyz"]}
        periodSeconds: 10
        timeoutSeconds: 6
        failureThreshold: 3
      livenessProbe:
        exec: {command: [wget, -q, -T, "5", -O, /dev/null, "http://127.0.0.1:8700/healthz"]}
        # While it waits it answers; then its start may take two minutes.
        periodSeconds: 20
        timeoutSeconds: 6
        failureThreshold: 9
      lifecycle:
        preStop:
          exec: {command: [podium, down]}
      resources: {{ toJson .Values.head.service.resources }}
      securityContext:
        {{- include "podium.restricted" . | nindent 8 }}
      volumeMounts:
        {{- include "podium.sharedMounts" . | nindent 8 }}
        - {name: ray-logs, mountPath: /tmp/ray}
        - {name: project, mountPath: /etc/podium/project, readOnly: true}
        {{- include "podium.doorMount" . | nindent 8 }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  containers:
    - name: ray-head
      {{- include "podium.image" . | nindent 6 }}
      env:
        {{- include "podium.cacheEnv" (list . "/var/lib/podium") | nindent 8 }}
        {{- include "podium.rayEnv" . | nindent 8 }}
      ports:
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
        - {name: metrics, containerPort: 8080}
      lifecycle:
        {{- include "podium.rayLifecycle" "/tmp/podium" | nindent 8 }}
      resources: {{ toJson .Values.head.resources }}
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      volumeMounts:
        {{- include "podium.sharedMounts" . | nindent 8 }}
        - {name: ray-logs, mountPath: /tmp/ray}
  volumes:
    {{- include "podium.volumes" . | nindent 4 }}
    # KubeRay has its autoscaler write here, too, by this name.
    - name: ray-logs
      emptyDir: {sizeLimit: {{ .Values.storage.tmpSizeLimit }}}
    - name: project
      configMap: {name: {{ include "podium.fullname" . }}-project}
    {{- include "podium.doorVolume" . | nindent 4 }}
    # For the autoscaler alone: no other container of the pod asks the API server.
    - name: autoscaler-token
      projected:
        defaultMode: 0440
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3600}
          - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
          - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end -}}

{{/* The pod of a group of workers; call with (list $ group). */}}
{{- define "podium.workerTemplate" -}}
{{- $root := index . 0 -}}
{{- $group := index . 1 -}}
{{- $fuse := $root.Values.fuse -}}
metadata:
  labels:
    {{- include "podium.podLabels" (list $root "agents") | nindent 4 }}
  {{- with $group.podAnnotations }}
  annotations: {{ toJson . }}
  {{- end }}
spec:
  serviceAccountName: {{ include "podium.fullname" $root }}-agents
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- if and (eq $fuse.mode "device-plugin") $fuse.userNamespace }}
  hostUsers: false
  {{- end }}
  terminationGracePeriodSeconds: {{ add $root.Values.drainSeconds 60 }}
  securityContext:
    {{- include "podium.podSecurity" $root | nindent 4 }}
  {{- include "podium.imagePullSecrets" $root | nindent 2 }}
  {{- include "podium.placement" $group | nindent 2 }}
  initContainers:
    - name: node
      {{- include "podium.image" $root | nindent 6 }}
      restartPolicy: Always
      command: [podium, node]
      env:
        {{- include "podium.nodeEnv" $root | nindent 8 }}
        {{- include "podium.doorEnv" (list $root $root.Values.doors.nodePort) | nindent 8 }}
        - {name: PODIUM_PRESENTATION, value: {{ ternary "dir" "fuse" (eq $fuse.mode "none") }}}
        - {name: PODIUM_HEALTH_LISTEN, value: "0.0.0.0:8703"}
      ports:
        - {name: door, containerPort: {{ $root.Values.doors.nodePort }}}
        - {name: health, containerPort: 8703}
      # It needs no Ray, and agents need its store process: Ray is started when that is there.
      startupProbe:
        httpGet: {path: /readyz, port: health}
        periodSeconds: 2
        # As long as it waits for the database and the bucket.
        failureThreshold: 1800
      readinessProbe:
        httpGet: {path: /readyz, port: health}
        periodSeconds: 10
        timeoutSeconds: 5
      # It works, whatever is away.
      livenessProbe:
        httpGet: {path: /healthz, port: health}
        periodSeconds: 20
        timeoutSeconds: 5
        failureThreshold: 6
      # At its end agents move to other machines, while Ray's container waits (its preStop).
      lifecycle:
        preStop:
          exec: {command: [/bin/bash, -c, 'kill -s TERM 1']}
      resources: {{ toJson $group.nodeResources }}
      # Not the user of agents. Of what both mount each may write to its own alone.
      securityContext:
        runAsUser: {{ $root.Values.users.node | int64 }}
        {{- include "podium.restricted" $root | nindent 8 }}
      volumeMounts:
        - {name: node, mountPath: /var/lib/podium-node}
        - {name: sockets, mountPath: /run/podium}
        - {name: home, mountPath: /var/lib/podium, readOnly: true}
        {{- include "podium.doorMount" $root | nindent 8 }}
        {{- with $root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  containers:
    - name: ray-worker
      {{- include "podium.image" $root | nindent 6 }}
      env:
        {{- include "podium.rayEnv" $root | nindent 8 }}
        # What the bucket has is kept by `node`, which gives a blob to those who know its id.
        - {name: CHRONICLE_CACHE_BYTES, value: "0"}
        {{- with $root.Values.agentEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: metrics, containerPort: 8080}
      lifecycle:
        {{- include "podium.rayLifecycle" "/run/podium/node" | nindent 8 }}
      {{- $resources := deepCopy $group.resources }}
      {{- if eq $fuse.mode "device-plugin" }}
      {{- $_ := set $resources.limits $fuse.resourceName 1 }}
      {{- $_ := set $resources.requests $fuse.resourceName 1 }}
      {{- end }}
      resources: {{ toJson $resources }}
      securityContext:
        {{- include "podium.agentsSecurity" $root | nindent 8 }}
      volumeMounts:
        {{- include "podium.sharedMounts" $root | nindent 8 }}
        - {name: sockets, mountPath: /run/podium, readOnly: true}
        {{- with $root.Values.agentVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- include "podium.volumes" $root | nindent 4 }}
    # Of `node` alone.
    - name: node
      emptyDir: {sizeLimit: {{ $root.Values.storage.nodeSizeLimit }}}
    - name: sockets
      emptyDir: {sizeLimit: 1Mi}
    {{- include "podium.doorVolume" $root | nindent 4 }}
{{- end -}}

{{/* The groups of workers, complete, as a list. */}}
{{- define "podium.groups" -}}
{{- $groups := list -}}
{{- range .Values.workers -}}
{{- $groups = append $groups (mergeOverwrite (deepCopy $.Values.workerDefaults) .) -}}
{{- end -}}
{{- $groups | toJson -}}
{{- end -}}

{{/* Eight digits that change with what KubeRay does not change in a cluster that runs. */}}
{{- define "podium.revision" -}}
{{- $texts := list .Values.ray.version (include "podium.headTemplate" .) (toJson .Values.ray.redis) -}}
{{- range include "podium.groups" . | fromJsonArray -}}
{{- $texts = append $texts (printf "%s %s %s" .name (toJson .labels) (include "podium.workerTemplate" (list $ .))) -}}
{{- end -}}
{{- $texts | toJson | sha256sum | trunc 8 -}}
{{- end -}}

{{- define "podium.clusterName" -}}
{{ include "podium.fullname" . }}-{{ include "podium.revision" . }}
{{- end -}}
