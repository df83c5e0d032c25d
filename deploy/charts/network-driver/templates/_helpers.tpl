{{- define "labels" -}}
app.kubernetes.io/name: podwire-network-driver
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "config" -}}
{{ toYaml .Values.config }}
{{ end }}
