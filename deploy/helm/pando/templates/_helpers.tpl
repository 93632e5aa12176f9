{{/* Names. A StatefulSet's pods have the pool's name and an ordinal behind: short enough for labels. */}}
{{- define "pando.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "pando.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 34 | trimSuffix "-" -}}
{{- else if contains (include "pando.name" .) .Release.Name -}}
{{- .Release.Name | trunc 34 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "pando.name" .) | trunc 34 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pando.selector" -}}
app.kubernetes.io/name: {{ include "pando.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pando.labels" -}}
{{ include "pando.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* An image by digest, tag or the chart's version. Takes (dict "image" ... "root" $). */}}
{{- define "pando.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "pando.workers" -}}
{{- include "pando.fullname" . }}-workers
{{- end -}}

{{/* The name that the workers' certificates have. Gateways ask for the short one: one question in place of four. */}}
{{- define "pando.workersHost" -}}
{{- printf "%s.%s.svc" (include "pando.workers" .) .Release.Namespace -}}
{{- end -}}

{{/* What every pool has with what this one says otherwise. Takes (dict "pool" ... "root" $). */}}
{{- define "pando.pool" -}}
{{- mergeOverwrite (deepCopy .root.Values.worker) .pool | toYaml -}}
{{- end -}}

{{- define "pando.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .group }}
fsGroup: {{ .group }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "pando.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* What a pod asks of the scheduler. Takes (dict "at" settings "labels" selector). */}}
{{- define "pando.scheduling" -}}
{{- with .at.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .at.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .at.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .at.spread.enabled }}
topologySpreadConstraints:
  - maxSkew: {{ .at.spread.maxSkew }}
    topologyKey: {{ .at.spread.topologyKey }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- .labels | nindent 8 }}
{{- end }}
{{- end -}}

{{/* The gateway's file: its settings, and over them what the chart decides. */}}
{{- define "pando.gatewayFile" -}}
{{- $chart := dict "host" "0.0.0.0" "port" 8000 -}}
{{- $_ := set $chart "dns" (dict "name" (include "pando.workers" .) "port" 7001) -}}
{{- if .Values.tenants.enabled -}}
{{- $_ := set $chart "tenants_file" "/etc/pando/tenants/tenants.yaml" -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $folder := "/etc/pando/tls" -}}
{{- $files := dict "ca" (printf "%s/ca.crt" $folder) "cert" (printf "%s/tls.crt" $folder) "key" (printf "%s/tls.key" $folder) -}}
{{- $_ := set $chart "link" (dict "tls" (set $files "server_name" (include "pando.workersHost" .))) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .Values.gateway.config) $chart | toYaml -}}
{{- end -}}

{{/* Where a pool's model lies. Takes the merged pool. */}}
{{- define "pando.modelPath" -}}
{{- if eq .model.source "image" -}}
{{- .model.path -}}
{{- else -}}
{{- printf "/models/%s" (trimPrefix "/" .model.path) | trimSuffix "/" -}}
{{- end -}}
{{- end -}}

{{/* What clients call it, as the worker decides: the folder's or file's name. Takes the merged pool. */}}
{{- define "pando.modelName" -}}
{{- .config.served_model_name | default (include "pando.modelPath" . | trimSuffix "/" | base | trimSuffix ".gguf") -}}
{{- end -}}

{{/* A pool's file. Takes (dict "pool" merged "root" $). The pod's name comes as a flag. */}}
{{- define "pando.workerFile" -}}
{{- $chart := dict "listen" "0.0.0.0:7001" "metrics_port" 7002 "model" (include "pando.modelPath" .pool) -}}
{{- if .root.Values.tls.enabled -}}
{{- $_ := set $chart "tls_cert" "/etc/pando/tls/tls.crt" -}}
{{- $_ := set $chart "tls_key" "/etc/pando/tls/tls.key" -}}
{{- $_ := set $chart "tls_client_ca" "/etc/pando/tls/ca.crt" -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .pool.config) $chart | toYaml -}}
{{- end -}}

{{/* What no schema can say. */}}
{{- define "pando.refuse" -}}
{{- if and .Values.tls.enabled .Values.tls.certManager.enabled (not .Values.tls.certManager.issuer.name) -}}
{{- fail "tls.certManager.issuer.name is empty: an Issuer that signs both sides, or certManager.enabled: false and two Secrets" -}}
{{- end -}}
{{- range .Values.tenants.list -}}
{{- if not .keys -}}
{{- fail (printf "tenants.list.%s.keys is empty: at least one" .id) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range .Values.pools -}}
{{- if has .name $names -}}
{{- fail (printf "pools.name is %q more than once: each must be unique" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- $pool := include "pando.pool" (dict "pool" . "root" $) | fromYaml -}}
{{- if and (eq $pool.model.source "claim") (not $pool.model.claim) -}}
{{- fail (printf "pools.%s.model.claim is empty: with source claim, a PersistentVolumeClaim" .name) -}}
{{- end -}}
{{- if and (eq $pool.model.source "hostPath") (not $pool.model.hostPath) -}}
{{- fail (printf "pools.%s.model.hostPath is empty: with source hostPath, a folder" .name) -}}
{{- end -}}
{{- if and (eq $pool.model.source "fetch") (not $pool.model.fetch.image) -}}
{{- fail (printf "pools.%s.model.fetch.image is empty: with source fetch, an image" .name) -}}
{{- end -}}
{{- $ranks := $pool.config.tensor_parallel | default 1 | int -}}
{{- if hasPrefix "cuda" ($pool.config.device | default "cpu") -}}
{{- $gpus := dig "limits" "nvidia.com/gpu" 0 $pool.resources | int -}}
{{- if ne $gpus $ranks -}}
{{- fail (printf "pools.%s.resources.limits has %d nvidia.com/gpu: as many as tensor_parallel, which is %d" .name $gpus $ranks) -}}
{{- end -}}
{{- end -}}
{{- if and (gt $ranks 1) (not $pool.sharedMemory) -}}
{{- fail (printf "pools.%s.sharedMemory is empty: the ranks of tensor_parallel %d need it" .name $ranks) -}}
{{- end -}}
{{- if lt ($pool.autoscaling.maxReplicas | int) ($pool.autoscaling.minReplicas | int) -}}
{{- fail (printf "pools.%s.autoscaling.maxReplicas is below minReplicas" .name) -}}
{{- end -}}
{{- end -}}
{{- if lt (.Values.gateway.autoscaling.maxReplicas | int) (.Values.gateway.autoscaling.minReplicas | int) -}}
{{- fail "gateway.autoscaling.maxReplicas is below minReplicas" -}}
{{- end -}}
{{- end -}}
