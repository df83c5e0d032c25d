{{- define "labels" -}}
app.kubernetes.io/name: podwire-device-plugin
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "config" -}}
{{ toYaml (dict "pools" .Values.pools) }}
{{ end }}
