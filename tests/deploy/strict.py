"""Whether the API server would know every field: Kubernetes' own schemas, and small ones of ours.

Kinds that an operator of a cluster adds (monitors, routes, certificates) have no schema there:
`foreign.json` names the fields of theirs that the chart uses, and nothing else passes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate

from tests.deploy.charting import Manifest

# The oldest that the chart allows, and later ones.
VERSIONS = ("1.30", "1.33", "1.37")
FOREIGN = json.loads((Path(__file__).parent / "foreign.json").read_text("utf-8"))


def complaints(manifest: Manifest) -> list[str]:
    """What is wrong with an object; nothing, where it is valid in every version."""
    head = f"{manifest.get('kind')} {manifest.get('metadata', {}).get('name')}"
    kind = f"{manifest.get('apiVersion')}/{manifest.get('kind')}"
    if kind in FOREIGN:
        return [f"{head}: {text}" for text in _of_foreign(manifest, FOREIGN[kind])]
    found = [text for version in VERSIONS if (text := _of_kubernetes(manifest, version))]
    return [f"{head}: {text}" for text in found]


def _of_kubernetes(manifest: Manifest, version: str) -> str | None:
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{version}: {'.'.join(map(str, error.path))}: {error.message[:300]}"
    except kubernetes_validate.SchemaNotFoundError:
        return f"{version}: no schema of this kind"
    return None


def _of_foreign(manifest: Manifest, spec: dict[str, Any]) -> list[str]:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": FOREIGN["metadata"],
            "spec": spec,
        },
    }
    errors = jsonschema.Draft7Validator(schema).iter_errors(manifest)
    return [f"{error.json_path}: {error.message[:300]}" for error in errors]
