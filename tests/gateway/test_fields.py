"""Names and addresses are the whole text: a newline behind one is not passed over."""

from __future__ import annotations

import re
from typing import Any, get_type_hints

import msgspec
import pytest

from gateway.config import DnsConfig, GatewayConfig
from gateway.fields import Address, KeyDigest, Name, Url, portable
from gateway.http.programs.request import SessionId
from gateway.http.structured import JsonSchemaFormat
from gateway.http.tools import FunctionName
from gateway.tenant_config import TenantConfig
from proto.program import Name as NodeName


def field(struct: type[msgspec.Struct], name: str) -> Any:
    return get_type_hints(struct, include_extras=True)[name]


TEXTS: list[tuple[Any, str]] = [
    (Name, "acme-1"),
    (Address, "[::1]:7001"),
    (KeyDigest, "sha256:" + "a" * 64),
    (Url, "http://host:1/v1"),
    (field(DnsConfig, "name"), "workers.default.svc"),
    (field(GatewayConfig, "log_level"), "info"),
    (field(TenantConfig, "priority"), "high"),
    (field(JsonSchemaFormat, "name"), "answer"),
    (FunctionName, "look_up"),
    (SessionId, "w0~1a-2"),
    (NodeName, "thought.1"),
]


@pytest.mark.parametrize(("kind", "text"), TEXTS)
def test_a_newline_behind_a_name_is_refused(kind: Any, text: str) -> None:
    assert msgspec.convert(text, kind) == text
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(f"{text}\n", kind)


@pytest.mark.parametrize(("kind", "text"), TEXTS)
def test_a_schema_says_it_as_other_languages_read_it(kind: Any, text: str) -> None:
    pattern = portable({"anyOf": [msgspec.json.schema(kind)]})["anyOf"][0]["pattern"]
    assert pattern.startswith("^")
    assert pattern.endswith("$")
    assert "\\Z" not in pattern
    assert re.fullmatch(pattern, text)


def test_a_field_that_is_called_pattern_is_left_alone() -> None:
    schema = {"properties": {"pattern": {"type": "string", "pattern": r"^a\Z"}}}
    assert portable(schema) == {"properties": {"pattern": {"type": "string", "pattern": "^a$"}}}
