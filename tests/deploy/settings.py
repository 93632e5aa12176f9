"""The programs' settings as JSON schema: Helm refuses what the programs would refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from gateway.config import GatewayConfig
from gateway.fields import portable
from worker.config import WorkerConfig

SCHEMA = Path(__file__).parents[2] / "deploy" / "helm" / "pando" / "values.schema.json"
# What the chart decides is no setting there, by the type that has it.
OWNED = {
    "gateway.GatewayConfig": {"host", "port", "dns", "tenants", "tenants_file"},
    "gateway.LinkConfig": {"tls"},
    "gateway.RedisConfig": {"url"},
    "worker.WorkerConfig": {
        *("name", "listen", "model", "advertise", "registry_url", "registry_prefix"),
        *("tls_cert", "tls_key", "tls_client_ca", "metrics_port", "poison_freed_pages"),
    },
}
UNUSED = {"gateway.DnsConfig", "gateway.TlsConfig"}


def definitions() -> dict[str, Any]:
    """Every type of both programs' settings, by program and name."""
    found: dict[str, Any] = {}
    for program, kind in (("gateway", GatewayConfig), ("worker", WorkerConfig)):
        for name, schema in portable(msgspec.json.schema(kind))["$defs"].items():
            found[f"{program}.{name}"] = _of_draft_7(schema, program)
    for name, owned in OWNED.items():
        for field in owned:
            del found[name]["properties"][field]
    return {name: schema for name, schema in sorted(found.items()) if name not in UNUSED}


def _of_draft_7(schema: Any, program: str) -> Any:
    """The same schema with our names of definitions, and without defaults, which Helm ignores."""
    if isinstance(schema, list):
        return [_of_draft_7(member, program) for member in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": f"#/definitions/{program}.{schema['$ref'].rpartition('/')[2]}"}
    kept = {name: value for name, value in schema.items() if name not in ("default", "title")}
    # A property may be called so, too.
    if isinstance(schema.get("properties"), dict):
        kept["properties"] = schema["properties"]
    return {
        name: {field: _of_draft_7(inner, program) for field, inner in value.items()}
        if name == "properties"
        else _of_draft_7(value, program)
        for name, value in kept.items()
    }


def is_ours(name: str) -> bool:
    """Whether a definition of values.schema.json is made here."""
    return name.startswith(("gateway.", "worker."))


def write() -> None:
    """Puts the definitions into values.schema.json."""
    schema = json.loads(SCHEMA.read_text("utf-8"))
    own = {name: it for name, it in schema["definitions"].items() if not is_ours(name)}
    schema["definitions"] = own | definitions()
    SCHEMA.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")
