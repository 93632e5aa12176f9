"""The tools of a chat, how they may be used, and what of them is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.fields import whole
from gateway.http.decoding import check_depth, invalid
from gateway.request import ToolChoice, ToolMode

FunctionName = Annotated[str, whole("[a-zA-Z0-9_.-]{1,64}")]


# Fields stand in the order in which models were shown them.
class FunctionDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """parameters: a JSON schema; none: no arguments. strict: they must conform to it."""

    name: FunctionName
    description: str | UnsetType = UNSET
    parameters: dict[str, Any] | UnsetType | None = UNSET
    strict: bool | UnsetType | None = UNSET


class Tool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that the client would call."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class NamedFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which function is to be called."""

    name: str


class NamedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool_choice that names a function."""

    function: NamedFunction
    type: Literal["function"] = "function"


_MODES = {"auto": ToolMode.AUTO, "none": ToolMode.NONE, "required": ToolMode.REQUIRED}


def check_tools(tools: list[Tool], limits: LimitConfig) -> None:
    """Refuse too many of them, two of one name, and too deep schemas. Raises InvalidRequest."""
    if len(tools) > limits.tools:
        raise invalid("tools", f"at most {limits.tools} tools are allowed")
    names: set[str] = set()
    for position, tool in enumerate(tools):
        path = f"tools[{position}].function"
        if tool.function.name in names:
            raise invalid(f"{path}.name", f"{tool.function.name!r} is there twice")
        names.add(tool.function.name)
        if tool.function.parameters:
            check_depth(f"{path}.parameters", tool.function.parameters, limits.json_depth)


def tool_choice_of(value: Any, tools: list[Tool], parallel: bool | None) -> ToolChoice:
    """How the tools may be used. Raises InvalidRequest."""
    single = parallel is False
    if value is None:
        return ToolChoice(single=single)
    if isinstance(value, str) and value in _MODES:
        if not tools and value == "required":
            raise invalid("tool_choice", "'required' needs tools")
        return ToolChoice(_MODES[value], single=single)
    if isinstance(value, dict) and value.get("type") == "function":
        try:
            name = msgspec.convert(value, NamedTool).function.name
        except msgspec.ValidationError as error:
            raise invalid("tool_choice", str(error)) from error
        if name not in (tool.function.name for tool in tools):
            raise invalid("tool_choice", f"no tool is called {name!r:.80}")
        return ToolChoice(ToolMode.REQUIRED, name, single=True)
    raise InvalidRequest(
        "Unsupported value: 'tool_choice' is none of 'auto', 'none', 'required' and a function.",
        param="tool_choice",
        code="unsupported_value",
    )
