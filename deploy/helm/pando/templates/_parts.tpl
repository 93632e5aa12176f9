{{/* Where the gateway finds Redis. */}}
{{- define "pando.redisEnv" -}}
{{- $redis := .Values.redis -}}
{{- if eq $redis.mode "external" -}}
- name: PANDO_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ $redis.external.secret }}, key: {{ $redis.external.key }}}}
{{- else if eq $redis.mode "own" -}}
{{- $host := printf "%s-redis.%s.svc:6379/0" (include "pando.fullname" .) .Release.Namespace -}}
{{- with $redis.own.passwordSecret -}}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ . }}, key: password}}
- {name: PANDO_REDIS_URL, value: "redis://:$(REDIS_PASSWORD)@{{ $host }}"}
{{- else -}}
- {name: PANDO_REDIS_URL, value: "redis://{{ $host }}"}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret of one side's certificate. Takes (dict "side" ... "root" $). */}}
{{- define "pando.tlsSecret" -}}
{{- $tls := .root.Values.tls -}}
{{- if $tls.certManager.enabled -}}
{{- printf "%s-%s-tls" (include "pando.fullname" .root) .side -}}
{{- else -}}
{{- index $tls (printf "%sSecret" .side) -}}
{{- end -}}
{{- end -}}

{{- define "pando.workerProbe" -}}
{{- if .Values.tls.enabled -}}
tcpSocket: {port: grpc}
{{- else -}}
grpc: {port: 7001}
{{- end -}}
{{- end -}}
