"""Values that must be refused, each with words that tell the operator where to look."""

from __future__ import annotations

from tests.deploy.charting import Values

# By what is wrong: the values, and what the message must have in it.
BAD_VALUES: dict[str, tuple[Values, str]] = {
    "a key that is none": ({"gatway": {}}, "gatway"),
    "a key that is none, inside": ({"gateway": {"replica": 3}}, "/gateway"),
    "a number in words": ({"gateway": {"replicas": "three"}}, "/gateway/replicas"),
    "no gateway": ({"gateway": {"replicas": 0}}, "/gateway/replicas"),
    "the tag latest": ({"gateway": {"image": {"tag": "latest"}}}, "/gateway/image/tag"),
    "half a digest": ({"worker": {"image": {"digest": "sha256:12"}}}, "/worker/image/digest"),
    "a setting that is none": ({"gateway": {"config": {"prot": 1}}}, "/gateway/config"),
    "a setting that the chart decides": ({"gateway": {"config": {"port": 80}}}, "/gateway/config"),
    "a setting out of range": (
        {"gateway": {"config": {"routing": {"miss_share": 2}}}},
        "/gateway/config/routing/miss_share",
    ),
    "a policy that is none": (
        {"gateway": {"config": {"routing": {"policy": {"name": "random"}}}}},
        "/gateway/config/routing/policy/name",
    ),
    "a redis url in the clear": (
        {"gateway": {"config": {"redis": {"url": "redis://:pw@host"}}}},
        "/gateway/config/redis",
    ),
    "a worker's name": ({"worker": {"config": {"name": "worker-7"}}}, "/worker/config"),
    "on without quotes": ({"worker": {"config": {"dflash": True}}}, "/worker/config/dflash"),
    "memory without a number": (
        {"worker": {"config": {"kv_memory": "lots"}}},
        "/worker/config/kv_memory",
    ),
    "no pool": ({"pools": []}, "/pools"),
    "a pool without a name": ({"pools": [{"replicas": 1}]}, "/pools/0"),
    "a pool's name in capitals": ({"pools": [{"name": "Chat"}]}, "/pools/0/name"),
    "a pool's setting out of range": (
        {"pools": [{"name": "a", "config": {"page_size": 0}}]},
        "/pools/0/config/page_size",
    ),
    "two pools of one name": ({"pools": [{"name": "a"}, {"name": "a"}]}, "pools.name"),
    "a source that is none": ({"worker": {"model": {"source": "s3"}}}, "/worker/model/source"),
    "a claim without a name": (
        {"pools": [{"name": "a", "model": {"source": "claim"}}]},
        "pools.a.model.claim",
    ),
    "a folder without a path": (
        {"pools": [{"name": "a", "model": {"source": "hostPath"}}]},
        "pools.a.model.hostPath",
    ),
    "nobody to fetch": (
        {"pools": [{"name": "a", "model": {"source": "fetch"}}]},
        "pools.a.model.fetch.image",
    ),
    "a GPU that no pod asks for": (
        {"pools": [{"name": "a", "config": {"device": "cuda"}}]},
        "pools.a.resources.limits",
    ),
    "ranks without shared memory": (
        {"pools": [{"name": "a", "config": {"tensor_parallel": 2}}]},
        "pools.a.sharedMemory",
    ),
    "an amount with a blank": (
        {"worker": {"resources": {"requests": {"memory": "4 GB"}}}},
        "/worker/resources/requests/memory",
    ),
    "a key in the clear": (
        {"tenants": {"list": [{"id": "acme", "keys": ["pnd-secret"]}]}},
        "/tenants/list/0/keys/0",
    ),
    "tenants twice": (
        {"tenants": {"existing": "who", "list": [{"id": "acme", "keys": ["0" * 64]}]}},
        "/tenants/list",
    ),
    "a tenant without a key": (
        {"tenants": {"enabled": True, "list": [{"id": "acme"}]}},
        "tenants.list.acme.keys",
    ),
    "an external redis without a secret": (
        {"redis": {"mode": "external"}},
        "/redis/external/secret",
    ),
    "certificates by nobody": (
        {"tls": {"enabled": True}},
        "tls.certManager.issuer.name",
    ),
    "half of the certificates": (
        {"tls": {"enabled": True, "certManager": {"enabled": False}, "gatewaySecret": "a"}},
        "/tls/workerSecret",
    ),
    "an ingress for no name": ({"ingress": {"enabled": True}}, "/ingress/hosts"),
    "a host that is an address": ({"ingress": {"hosts": ["http://a.b"]}}, "/ingress/hosts/0"),
    "a route on nothing": ({"httpRoute": {"enabled": True}}, "/httpRoute/parentRefs"),
    "fewer than fewest": (
        {"gateway": {"autoscaling": {"minReplicas": 4, "maxReplicas": 2}}},
        "gateway.autoscaling.maxReplicas",
    ),
    "a number as an annotation": (
        {"gateway": {"podAnnotations": {"a": 1}}},
        "/gateway/podAnnotations/a",
    ),
    "a share above one": (
        {"monitoring": {"rules": {"failedShare": 2}}},
        "/monitoring/rules/failedShare",
    ),
}
