{{- define "minilog.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- define "minilog.selector" -}}
app.kubernetes.io/name: minilog
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "minilog.labels" -}}
{{ include "minilog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "minilog.domain" -}}
{{ include "minilog.name" . }}-brokers.{{ .Release.Namespace }}.svc
{{- end }}
{{- define "minilog.peerPort" -}}
{{ ternary .Values.ports.brokers .Values.ports.clients .Values.security.enabled }}
{{- end }}
{{- define "minilog.voters" -}}
{{- $parts := list -}}
{{- range $i := until (int (min .Values.voters .Values.brokers)) -}}
{{- $parts = append $parts (printf "%d@%s-%d.%s:%s" (add1 $i) (include "minilog.name" $) $i (include "minilog.domain" $) (include "minilog.peerPort" $)) -}}
{{- end -}}
{{- join "," $parts -}}
{{- end }}
{{- define "minilog.outside" -}}
{{- /* The address that broker $i (from 0) tells clients outside. */ -}}
{{- $port := ternary (add .root.Values.outside.firstNodePort .i) .root.Values.ports.outside (eq .root.Values.outside.type "NodePort") -}}
{{- printf "%s:%v" (index .root.Values.outside.hosts .i) $port -}}
{{- end }}
