"""What an answer must conform to: `response_format`, and `structured_outputs` beyond OpenAI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.fields import whole
from gateway.http.decoding import check_depth, invalid
from gateway.request import Constraint, Language

_ANY_OBJECT = '{"type":"object"}'


class JsonSchemaFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """strict is taken and makes no difference: the answer always conforms."""

    name: Annotated[str, whole("[a-zA-Z0-9_-]{1,64}")]
    schema: dict[str, Any] | bool = True
    description: str | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET


class ResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OpenAI's: any text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of them, as vLLM names them. grammar: in llguidance's dialect of Lark."""

    json: dict[str, Any] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1)] | None = None
    grammar: str | None = None


def constraint_of(
    response_format: ResponseFormat | None,
    structured: StructuredOutputs | None,
    limits: LimitConfig,
) -> Constraint | None:
    """The one constraint that was asked for, None: none. Raises InvalidRequest."""
    asked = [_of_format(response_format, limits)] if response_format is not None else []
    if structured is not None:
        asked.append(_of_structured(structured, limits))
    found = [one for one in asked if one is not None]
    if len(found) > 1:
        raise invalid("structured_outputs", "not allowed together with 'response_format'")
    return found[0] if found else None


def _of_format(asked: ResponseFormat, limits: LimitConfig) -> Constraint | None:
    schema = asked.json_schema
    if (asked.type == "json_schema") != (schema is not None):
        raise invalid(
            "response_format.json_schema", "goes with the type 'json_schema', and with it only"
        )
    if asked.type == "text":
        return None
    if schema is None:
        return Constraint(Language.JSON_SCHEMA, _ANY_OBJECT)
    return _schema("response_format.json_schema.schema", schema.schema, limits)


def _of_structured(asked: StructuredOutputs, limits: LimitConfig) -> Constraint:
    fields = {name: getattr(asked, name) for name in asked.__struct_fields__}
    given = {name: value for name, value in fields.items() if value not in (None, False, "")}
    if len(given) != 1:
        names = ", ".join(asked.__struct_fields__)
        raise invalid("structured_outputs", f"expected exactly one of {names}")
    ((name, value),) = given.items()
    path = f"structured_outputs.{name}"
    if name == "json_object":
        return Constraint(Language.JSON_SCHEMA, _ANY_OBJECT)
    if name == "json":
        return _schema(path, value, limits)
    if name == "choice":
        if len(value) > limits.grammar_choices:
            raise invalid(path, f"at most {limits.grammar_choices} choices are allowed")
        if "" in value:
            raise invalid(path, "an empty choice is no answer")
        _check_size(path, "".join(value), limits)
        return Constraint(choices=tuple(value))
    _check_size(path, value, limits)
    return Constraint(Language(name), value)


def _schema(path: str, schema: dict[str, Any] | bool | str, limits: LimitConfig) -> Constraint:
    if isinstance(schema, str):
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError) as error:
            raise invalid(path, "expected a JSON schema") from error
    if not isinstance(schema, dict | bool):
        raise invalid(path, "expected a JSON schema")
    check_depth(path, schema, limits.json_depth)
    source = msgspec.json.encode(schema).decode()
    _check_size(path, source, limits)
    return Constraint(Language.JSON_SCHEMA, source)


def _check_size(path: str, source: str, limits: LimitConfig) -> None:
    if len(source) > limits.grammar_chars:
        raise InvalidRequest(
            f"Invalid value for '{path}': at most {limits.grammar_chars} characters are allowed.",
            param=path,
        )
