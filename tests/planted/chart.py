"""Faults of the Helm chart: what only a cluster would have shown, and then under load."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

CHART = "tests/deploy/test_chart.py"
REACH = "tests/deploy/test_reach.py"
MONITORING = "tests/deploy/test_monitoring.py"
TEMPLATES = "deploy/helm/pando/templates"

gateway = Room(f"{TEMPLATES}/gateway.yaml", (CHART,))
worker = Room(f"{TEMPLATES}/worker.yaml", (CHART,))
network = Room(f"{TEMPLATES}/network.yaml", (REACH, CHART))
edge = Room(f"{TEMPLATES}/edge.yaml", (CHART,))
names = Room(f"{TEMPLATES}/_helpers.tpl", (CHART,))
parts = Room(f"{TEMPLATES}/_parts.tpl", (CHART,))
certificates = Room(f"{TEMPLATES}/certificates.yaml", (CHART,))
alerts = Room(f"{TEMPLATES}/_alerts.tpl", (MONITORING,))

FAULTS: tuple[Fault, ...] = (
    worker.fault(
        "a worker is killed while it drains",
        "The grace period ends before drain_s has.",
        "drain_s 30)) 15 }}",
        "drain_s 30)) -5 }}",
    ),
    worker.fault(
        "every worker has one name",
        "The ring knows one worker, and the others are refused.",
        "--name, $(POD_NAME)]",
        "--name, worker-0]",
    ),
    worker.fault(
        "any value restarts all workers",
        "A gateway's setting empties every cache.",
        "{{ $file | sha256sum }}",
        "{{ toYaml $.Values | sha256sum }}",
    ),
    worker.fault(
        "a pool is scaled by two",
        "Every upgrade sets the replicas back that KEDA chose.",
        "  {{- if not $pool.autoscaling.enabled }}\n  replicas",
        "  {{- if true }}\n  replicas",
    ),
    worker.fault(
        "a large model is killed while it loads",
        "The start probe gives up long before startupSeconds.",
        "{{ divf $pool.startupSeconds 5 | ceil | int }}",
        "30",
    ),
    worker.fault(
        "kernels are built where nothing can be written",
        "The worker falls back to torch, or does not start.",
        "{name: PANDO_CACHE, value: /cache}",
        "{name: PANDO_CACHE, value: /app/cache}",
    ),
    worker.fault(
        "the worker's file is mounted beside its path",
        "The worker ends at once: no such file.",
        "mountPath: /etc/pando/worker,",
        "mountPath: /etc/pando/workers,",
    ),
    gateway.fault(
        "the wait before the end is not counted",
        "Requests that run shutdown_s are killed.",
        "$gateway.preStopSeconds 15",
        "15",
    ),
    gateway.fault(
        "tenants do not arrive",
        "A file under a subPath is never renewed.",
        "mountPath: /etc/pando/tenants, readOnly",
        "mountPath: /etc/pando/tenants/tenants.yaml, subPath: tenants.yaml, readOnly",
    ),
    names.fault(
        "a pool cannot say otherwise",
        "What all pools have wins over the pool's own settings.",
        "mergeOverwrite (deepCopy .root.Values.worker) .pool",
        "merge (deepCopy .root.Values.worker) .pool",
    ),
    names.fault(
        "any gateway may connect",
        "Workers ask for no certificate.",
        '{{- $_ := set $chart "tls_client_ca" "/etc/pando/tls/ca.crt" -}}\n',
        "",
    ),
    parts.fault(
        "a kubelet without a certificate asks through TLS",
        "No worker is ever ready.",
        "{{- if .Values.tls.enabled -}}\ntcpSocket",
        "{{- if false -}}\ntcpSocket",
    ),
    certificates.fault(
        "certificates are for another name",
        "No link stands: the gateways ask for the Service's whole name.",
        "dnsNames: [{{ $host }}]",
        'dnsNames: [{{ include "pando.workers" . }}]',
    ),
    edge.fault(
        "the world reads the metrics",
        "The Ingress shows /metrics, which needs no key.",
        "- path: /v1\n",
        "- path: /\n",
    ),
    network.fault(
        "anybody reaches the workers",
        "Their port is open to the cluster.",
        "    - ports: [{port: 7001, protocol: TCP}]\n      from:\n",
        "    - ports: [{port: 7001, protocol: TCP}]\n      notFrom:\n",
    ),
    network.fault(
        "pods reach the world",
        "What has no policy of its own for egress may connect to anything.",
        "  policyTypes: [Ingress, Egress]\n---\n"
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n"
        "  name: {{ $fullname }}-gateway\n",
        "  policyTypes: [Ingress]\n---\n"
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n"
        "  name: {{ $fullname }}-gateway\n",
    ),
    alerts.fault(
        "an alert that never fires",
        "It asks for a series that nobody shows.",
        "pando_worker_preemptions_total",
        "pando_worker_preempted_total",
    ),
    alerts.fault(
        "another release's trouble",
        "The alert counts every Redis of the cluster.",
        "max(pando_gateway_store_degraded{ {{- $g -}} })",
        "max(pando_gateway_store_degraded)",
    ),
)
