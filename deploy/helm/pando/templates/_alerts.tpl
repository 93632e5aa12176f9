{{/* Every alert; each has a heading of its name in docs/operations.md. */}}
{{- define "pando.alerts" -}}
{{- $rules := .Values.monitoring.rules -}}
{{- $g := printf "namespace=\"%s\",service=\"%s-gateway\"" .Release.Namespace (include "pando.fullname" .) -}}
{{- $w := printf "namespace=\"%s\",pod=~\"%s-worker-.*\"" .Release.Namespace (include "pando.fullname" .) -}}
- alert: PandoGatewayDown
  expr: (sum(up{ {{- $g -}} }) or vector(0)) == 0
  for: 2m
  severity: critical
  summary: No gateway answers Prometheus.
- alert: PandoNoWorkers
  expr: (sum(pando_gateway_worker_up{ {{- $g -}} }) or vector(0)) == 0
  for: 2m
  severity: critical
  summary: No gateway is linked to any worker.
- alert: PandoRequestsFail
  expr: |-
    sum(rate(pando_gateway_requests_total{ {{- $g -}} ,status=~"5.."}[5m]))
      / sum(rate(pando_gateway_requests_total{ {{- $g -}} }[5m])) > {{ $rules.failedShare }}
  for: 5m
  severity: critical
  summary: {{ `{{ $value | humanizePercentage }} of requests end with a 5xx.` | quote }}
- alert: PandoRequestsLost
  expr: |-
    abs(sum by (pod) (pando_gateway_accepted_requests_total{ {{- $g -}} })
      - sum by (pod) (pando_gateway_ended_requests_total{ {{- $g -}} })
      - sum by (pod) (pando_gateway_requests_in_flight{ {{- $g -}} })) > 0
  for: 15m
  severity: warning
  summary: {{ `{{ $labels.pod }} accepted requests that neither run nor ended.` | quote }}
- alert: PandoQueueLong
  expr: sum by (model) (pando_gateway_waiting_requests{ {{- $g -}} }) > {{ $rules.waitingRequests }}
  for: 5m
  severity: warning
  summary: {{ `{{ $value }} requests wait for {{ $labels.model }} at the gateways.` | quote }}
- alert: PandoQueueSlow
  expr: |-
    histogram_quantile(0.95, sum by (le) (rate(pando_gateway_queue_seconds_bucket{ {{- $g -}} }[10m]))) > {{ $rules.queueSeconds }}
  for: 10m
  severity: warning
  summary: {{ `One request in 20 waits longer than {{ $value | humanizeDuration }} for a worker.` | quote }}
- alert: PandoFirstTokenSlow
  expr: |-
    histogram_quantile(0.95, sum by (le) (rate(pando_gateway_ttft_seconds_bucket{ {{- $g -}} }[10m]))) > {{ $rules.firstTokenSeconds }}
  for: 10m
  severity: warning
  summary: {{ `One request in 20 waits longer than {{ $value | humanizeDuration }} for its first token.` | quote }}
- alert: PandoCacheHitsFell
  expr: |-
    sum(rate(pando_gateway_cached_tokens_total{ {{- $g -}} }[1h])) / sum(rate(pando_gateway_prompt_tokens_total{ {{- $g -}} }[1h]))
      < 0.5 * sum(rate(pando_gateway_cached_tokens_total{ {{- $g -}} }[1h] offset 1d))
      / sum(rate(pando_gateway_prompt_tokens_total{ {{- $g -}} }[1h] offset 1d))
  for: 1h
  severity: warning
  summary: {{ `The hit rate is {{ $value | humanizePercentage }}, less than half of yesterday's.` | quote }}
- alert: PandoPoolTooSmall
  expr: sum by (pod) (rate(pando_worker_preemptions_total{ {{- $w -}} }[10m])) > 0.1
  for: 15m
  severity: warning
  summary: {{ `{{ $labels.pod }} preempts {{ $value | humanize }} sequences a second.` | quote }}
- alert: PandoStepsFail
  expr: sum by (pod) (increase(pando_worker_failed_sequences_total{ {{- $w -}} }[10m])) > 0
  for: 5m
  severity: warning
  summary: {{ `Steps of {{ $labels.pod }} fail.` | quote }}
- alert: PandoLinkBreaks
  expr: sum by (worker, reason) (increase(pando_gateway_link_breaks_total{ {{- $g -}} }[15m])) > 5
  for: 5m
  severity: warning
  summary: {{ `Links to {{ $labels.worker }} break again and again: {{ $labels.reason }}.` | quote }}
- alert: PandoWorkerRestarts
  expr: max by (worker) (increase(pando_gateway_worker_incarnations_total{ {{- $g -}} }[1h])) > 3
  for: 1m
  severity: warning
  summary: {{ `{{ $labels.worker }} was started {{ $value | humanize }} times within an hour.` | quote }}
- alert: PandoViewStale
  expr: max by (worker) (pando_gateway_worker_view_stale{ {{- $g -}} }) > 0
  for: 10m
  severity: warning
  summary: {{ `What is known of {{ $labels.worker }}'s cache is old.` | quote }}
- alert: PandoStoreDegraded
  expr: max(pando_gateway_store_degraded{ {{- $g -}} }) > 0
  for: 1m
  severity: warning
  summary: Redis is away, and each gateway grants the whole limits.
- alert: PandoTenantsStale
  expr: max by (source) (pando_gateway_tenants_stale{ {{- $g -}} }) > 0
  for: 5m
  severity: warning
  summary: {{ `The tenants of {{ $labels.source }} can't be read.` | quote }}
- alert: PandoLoopLate
  expr: |-
    histogram_quantile(0.99, sum by (le, pod) (rate(pando_gateway_loop_lag_seconds_bucket{ {{- $g -}} }[5m]))) > {{ $rules.loopLagSeconds }}
  for: 10m
  severity: warning
  summary: {{ `{{ $labels.pod }}'s event loop is late.` | quote }}
{{- end -}}
