"""A model's chat template, rendered as transformers renders it. No torch, no transformers.

The environment mirrors transformers': sandboxed and immutable, block trimming, loop controls,
`raise_exception`, `strftime_now`, `tojson` without HTML escapes, and a `generation` tag that only
yields its body.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from worker.errors import ChatUnsupported, InvalidRequest, ModelUnavailable
from worker.text.model_configs import read_json, token_text

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")
RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
LOOP_COUNTERS = frozenset({"first", "last", "index", "index0", "length", "revindex", "revindex0"})
PROBE = "pando probe"


class Template:
    """Renders messages to text. `variables`: the names of special tokens and their texts.

    source: what it is written as. takes_parts: whether it reads content as a list of parts.
    knows_developer: whether it has a word for that role; others would drop such a message or write
    a role that the model never saw.
    """

    def __init__(
        self,
        source: str,
        tool_source: str,
        variables: Mapping[str, str],
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        environment = _environment(now)
        try:
            self._plain = environment.from_string(source)
            self._with_tools = environment.from_string(tool_source)
        except jinja2.TemplateError as error:
            raise ModelUnavailable(f"The model's chat template is broken: {error}") from error
        self.source = source if tool_source == source else f"{source}\n{tool_source}"
        self._variables = dict(variables)
        self.takes_parts = self._shows_parts()
        self.knows_developer = "developer" in source

    @classmethod
    def load(cls, folder: Path) -> Template:
        """Returns the folder's template; raises ChatUnsupported where there is none."""
        settings = read_json(folder / "tokenizer_config.json")
        file = folder / "chat_template.jinja"
        value = file.read_text("utf-8") if file.is_file() else settings.get("chat_template")
        if isinstance(value, list):
            named = {entry["name"]: entry["template"] for entry in value}
        else:
            named = {"default": value} if value else {}
        if "default" not in named:
            raise ChatUnsupported
        variables = {
            name: text for name in SPECIAL_NAMES if (text := token_text(settings.get(name)))
        }
        return cls(named["default"], named.get("tool_use", named["default"]), variables)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Returns the prompt's text. Raises InvalidRequest where the template refuses."""
        template = self._with_tools if tools else self._plain
        variables = {**self._variables, **(kwargs or {})}
        try:
            return template.render(
                {
                    **variables,
                    "messages": messages,
                    "tools": list(tools) or None,
                    "documents": None,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except jinja2.TemplateError as error:
            raise InvalidRequest(
                "messages", f"The model's chat template refuses these messages: {error.message}"
            ) from error
        except Exception as error:  # a template can fail on foreign values in any way
            raise InvalidRequest(
                "messages", f"The model's chat template fails on these messages: {error}"
            ) from error

    def _shows_parts(self) -> bool:
        """Whether content as a list of text parts comes out as their text."""
        parts = [{"type": "text", "text": PROBE}]
        try:
            text = self.render([{"role": "user", "content": parts}])
        except InvalidRequest:
            return False
        return PROBE in text and "'type'" not in text and '"type"' not in text


class _Sandbox(ImmutableSandboxedEnvironment):
    """Lets a loop's own counters pass unexamined, as they would: most templates ask per message."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read the attribute."""
        if type(obj) is LoopContext and attr in LOOP_COUNTERS:
            return True
        return super().is_safe_attribute(obj, attr, value)


def _environment(now: Callable[[], datetime]) -> jinja2.Environment:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    environment.globals["namespace"] = _Namespace
    return environment


class _Generation(Extension):
    """`{% generation %}` marks what the model wrote, for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Namespace(Namespace):
    """Refuses names with an underscore in front, which could reach Python's inside."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"A namespace can't store {name!r}.")
        super().__setitem__(name, value)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
