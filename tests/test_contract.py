from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from proto import worker_pb2

ROOT = Path(__file__).resolve().parents[1]
STUBS = ("worker_pb2.py", "worker_pb2.pyi", "worker_pb2_grpc.py")
# Every field that was ever released: a number keeps its meaning for good.
RELEASED = Path(__file__).with_name("contract_fields.json")


def messages() -> Iterator[Descriptor]:
    waiting = list(worker_pb2.DESCRIPTOR.message_types_by_name.values())
    while waiting:
        message = waiting.pop()
        yield message
        waiting += message.nested_types


def enums() -> Iterator[EnumDescriptor]:
    yield from worker_pb2.DESCRIPTOR.enum_types_by_name.values()
    for message in messages():
        yield from message.enum_types


def fields() -> dict[str, str]:
    """Name and type of every field and enum value, by message and number."""
    found = {
        f"{message.full_name} {field.number}": f"{field.name} {kind(field)}"
        for message in messages()
        for field in message.fields
    }
    return found | {
        f"{enum.full_name} {value.number}": value.name for enum in enums() for value in enum.values
    }


def kind(field: FieldDescriptor) -> str:
    inner = field.message_type or field.enum_type
    name = inner.full_name if inner else f"type {field.type}"
    return f"repeated {name}" if field.is_repeated else name


@pytest.mark.filterwarnings("ignore:pkg_resources")
def test_stubs_are_those_of_the_proto(tmp_path: Path) -> None:
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", *outputs]
    subprocess.run([*command, "proto/worker.proto"], cwd=ROOT, check=True)
    stale = [
        name
        for name in STUBS
        if (tmp_path / "proto" / name).read_text() != (ROOT / "proto" / name).read_text()
    ]
    assert not stale, "run `make proto`"


def test_no_number_changes_its_meaning() -> None:
    released = json.loads(RELEASED.read_text())
    now = fields()
    changed = {key: now[key] for key in released if now.get(key, released[key]) != released[key]}
    assert not changed


def test_every_field_is_in_the_record() -> None:
    missing = {
        key: text for key, text in fields().items() if key not in json.loads(RELEASED.read_text())
    }
    assert not missing, f"add to {RELEASED.name}: {json.dumps(missing, indent=1)}"


def test_the_zero_of_every_enum_means_nothing() -> None:
    for enum in enums():
        assert enum.values_by_number[0].name.endswith("_UNSPECIFIED"), enum.full_name
