{{- define "podium.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}{{ .Release.Name }}{{- else -}}{{ .Release.Name }}-{{ $name }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods of a component; call with (list $ "gateway"). */}}
{{- define "podium.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of pods. Neither has a version: they are part of a RayCluster's revision. */}}
{{- define "podium.podLabels" -}}
app.kubernetes.io/name: podium
{{ include "podium.selector" . }}
{{- end -}}

{{/* Labels of an object; call with (list $ "gateway"). */}}
{{- define "podium.labels" -}}
{{- $root := index . 0 -}}
{{ include "podium.podLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/* The name of an image; call with (list $ .Values.image). */}}
{{- define "podium.imageName" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.global.imageRegistry }}{{ . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "podium.image" -}}
image: {{ include "podium.imageName" (list . .Values.image) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{- define "podium.imagePullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "podium.raySecret" -}}
{{ .Values.ray.authSecret | default (printf "%s-ray" (include "podium.fullname" .)) }}
{{- end -}}

{{- define "podium.trialSecret" -}}
{{ .Values.trial.existingSecret | default (printf "%s-trial" (include "podium.fullname" .)) }}
{{- end -}}

{{/* Kubernetes to render for. */}}
{{- define "podium.kubeVersion" -}}
{{ .Values.kubeVersion | default .Capabilities.KubeVersion.Version }}
{{- end -}}

{{- define "podium.gatewayHosts" -}}
{{- $name := printf "%s-gateway" (include "podium.fullname" .) -}}
{{- $own := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- $hosts := concat $own .Values.gateway.allowedHosts -}}
{{- if .Values.gateway.ingress.enabled }}{{ $hosts = concat $hosts .Values.gateway.ingress.hosts }}{{ end -}}
{{- if .Values.gateway.httpRoute.enabled }}{{ $hosts = concat $hosts .Values.gateway.httpRoute.hostnames }}{{ end -}}
{{- $hosts | uniq | toJson -}}
{{- end -}}
