{{/* The security context of containers that mount nothing. */}}
{{- define "podium.restricted" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end -}}

{{/* The security context of containers in which agents are mounted. */}}
{{- define "podium.agentsSecurity" -}}
{{- with .Values.fuse -}}
{{- if eq .mode "none" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- else if eq .mode "privileged" -}}
privileged: true
{{- else -}}
# fusermount3, which is setuid root, mounts: no process of agents has the capability itself.
allowPrivilegeEscalation: true
capabilities: {drop: [ALL], add: [SYS_ADMIN]}
{{- if .appArmorUnconfined }}
appArmorProfile: {type: Unconfined}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The security context of pods: the user and the group of Ray's image. */}}
{{- define "podium.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.users.ray | int64 }}
runAsGroup: {{ .Values.users.group | int64 }}
fsGroup: {{ .Values.users.group | int64 }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The cache of the bucket; call with (list $ $directory). Containers of one user share it. */}}
{{- define "podium.cacheEnv" -}}
- {name: CHRONICLE_CACHE_DIR, value: {{ index . 1 }}/cache}
- {name: CHRONICLE_CACHE_BYTES, value: {{ (index . 0).Values.storage.cacheBytes | int64 | quote }}}
{{- end -}}

{{/* The variables of containers that open the home, and have one user with those that they share it with. */}}
{{- define "podium.homeEnv" -}}
- {name: PODIUM_HOME, value: /var/lib/podium/home}
- {name: PODIUM_RUN_DIR, value: /tmp/podium}
{{ include "podium.cacheEnv" (list . "/var/lib/podium") }}
{{ include "podium.storesEnv" . }}
{{- end -}}

{{/* The same of the container beside agents, which has a user and a directory of its own. */}}
{{- define "podium.nodeEnv" -}}
- {name: PODIUM_HOME, value: /var/lib/podium-node/home}
- {name: PODIUM_RUN_DIR, value: /run/podium/node}
- {name: PODIUM_HOSTS_DIR, value: /var/lib/podium}
- {name: TMPDIR, value: /var/lib/podium-node}
{{ include "podium.cacheEnv" (list . "/var/lib/podium-node") }}
{{ include "podium.storesEnv" . }}
{{- end -}}

{{/* How the home is reached, with the credentials. */}}
{{- define "podium.storesEnv" -}}
{{- $db := include "podium.database" . | fromYaml -}}
{{- $bucket := include "podium.bucket" . | fromYaml -}}
- {name: PYTHONDONTWRITEBYTECODE, value: "1"}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- if $db.urlKey }}
- name: PODIUM_JOURNAL_URL
  valueFrom: {secretKeyRef: {name: {{ $db.secret }}, key: {{ $db.urlKey }}}}
{{- else }}
- {name: PODIUM_JOURNAL_URL, value: {{ $db.url | quote }}}
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ $db.secret }}, key: {{ $db.passwordKey }}}}
{{- end }}
- {name: PODIUM_BLOBS_URL, value: {{ $bucket.url | quote }}}
{{- with $bucket.endpoint }}
- {name: AWS_ENDPOINT_URL_S3, value: {{ . | quote }}}
{{- end }}
{{- with $bucket.region }}
- {name: AWS_DEFAULT_REGION, value: {{ . | quote }}}
{{- end }}
{{- with $bucket.secret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $bucket.accessKeyIdKey }}}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $bucket.secretAccessKeyKey }}}}
{{- end }}
- {name: PODIUM_START_WAIT_S, value: "3600"}
{{- if not (hasKey .Values.settings "log_stderr") }}
- {name: PODIUM_LOG_STDERR, value: "true"}
{{- end }}
- {name: PODIUM_STOP_TIMEOUT_S, value: {{ .Values.drainSeconds | quote }}}
{{- range $name, $value := .Values.settings }}
- {name: PODIUM_{{ upper $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where a container listens for others of the home; call with (list $ port). */}}
{{- define "podium.doorEnv" -}}
{{- $root := index . 0 -}}
- {name: PODIUM_SERVICE_LISTEN, value: "0.0.0.0:{{ index . 1 }}"}
- {name: PODIUM_SERVICE_HOST, value: $(POD_IP)}
{{- if $root.Values.doors.tlsSecret }}
- {name: PODIUM_SERVICE_TLS_CERT, value: /etc/podium/door/tls.crt}
- {name: PODIUM_SERVICE_TLS_KEY, value: /etc/podium/door/tls.key}
{{- end }}
{{- end -}}

{{- define "podium.database" -}}
{{- if .Values.trial.enabled -}}
url: {{ printf "postgresql://podium@%s-postgres/podium" (include "podium.fullname" .) }}
secret: {{ include "podium.trialSecret" . }}
passwordKey: password
urlKey: ""
{{- else -}}
url: {{ .Values.database.url | quote }}
secret: {{ .Values.database.existingSecret.name | quote }}
passwordKey: {{ .Values.database.existingSecret.passwordKey }}
urlKey: {{ .Values.database.existingSecret.urlKey | quote }}
{{- end -}}
{{- end -}}

{{- define "podium.bucket" -}}
{{- if .Values.trial.enabled -}}
url: s3://podium/home
endpoint: {{ printf "http://%s-bucket:8333" (include "podium.fullname" .) }}
region: us-east-1
secret: {{ include "podium.trialSecret" . }}
accessKeyIdKey: AWS_ACCESS_KEY_ID
secretAccessKeyKey: AWS_SECRET_ACCESS_KEY
{{- else -}}
url: {{ .Values.bucket.url | quote }}
endpoint: {{ .Values.bucket.endpoint | quote }}
region: {{ .Values.bucket.region | quote }}
secret: {{ .Values.bucket.existingSecret.name | quote }}
accessKeyIdKey: {{ .Values.bucket.existingSecret.accessKeyIdKey }}
secretAccessKeyKey: {{ .Values.bucket.existingSecret.secretAccessKeyKey }}
{{- end -}}
{{- end -}}

{{/* The token of the Ray cluster. */}}
{{- define "podium.rayToken" -}}
- {name: RAY_AUTH_MODE, value: token}
- name: RAY_AUTH_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "podium.raySecret" . }}, key: auth_token}}
{{- end -}}

{{/* The variables of Ray's containers, and so of agents: they have no credential but Ray's own token. */}}
{{- define "podium.rayEnv" -}}
{{ include "podium.rayToken" . }}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
- {name: RAY_health_check_initial_delay_ms, value: {{ .Values.ray.healthCheck.initialDelayMs | quote }}}
- {name: RAY_health_check_period_ms, value: {{ .Values.ray.healthCheck.periodMs | quote }}}
- {name: RAY_health_check_timeout_ms, value: {{ .Values.ray.healthCheck.timeoutMs | quote }}}
- {name: RAY_health_check_failure_threshold, value: {{ .Values.ray.healthCheck.failureThreshold | quote }}}
- {name: RAY_maximum_gcs_destroyed_actor_cached_count, value: {{ .Values.ray.deadActors | quote }}}
{{- end -}}

{{/* Ray ends after the container beside it, whose store process has its socket until its end; call with its directory. */}}
{{- define "podium.rayLifecycle" -}}
preStop:
  exec:
    command: [/bin/bash, -c, 'while [ -S {{ . }}/store.sock ]; do sleep 1; done']
{{- end -}}

{{/* The mounts that containers of one user share. */}}
{{- define "podium.sharedMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /var/lib/podium}
{{- end -}}

{{- define "podium.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: {{ .Values.storage.tmpSizeLimit }}}
- name: home
{{- with .Values.storage.homeVolume }}
{{ toYaml . | indent 2 }}
{{- else }}
  emptyDir: {sizeLimit: {{ .Values.storage.homeSizeLimit }}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "podium.doorVolume" -}}
{{- with .Values.doors.tlsSecret -}}
- name: door
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end -}}
{{- end -}}

{{- define "podium.doorMount" -}}
{{- with .Values.doors.tlsSecret -}}
- {name: door, mountPath: /etc/podium/door, readOnly: true}
{{- end -}}
{{- end -}}

{{/* Where pods go: nodeSelector, tolerations and the like of a component. */}}
{{- define "podium.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{ toJson . }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
