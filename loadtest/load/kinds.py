"""Which traffic a name means, and its parameters from words of the command line."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from loadtest.errors import LoadTestError
from loadtest.load.prompt import Conversation
from loadtest.load.prompts.agent import Agent
from loadtest.load.prompts.chat import Chat, Short
from loadtest.load.prompts.documents import Document, FewShot
from loadtest.load.prompts.shared import GeneratedSharedPrefix, PrefixRepetition, SharedPrefix
from loadtest.load.prompts.tenants import Tenants
from loadtest.load.recorded import BlockTrace, OpenAILog


class Kind(Protocol):
    """Traffic with its parameters chosen."""

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns what is sent, each conversation in the order of its turns."""
        ...


KINDS: Mapping[str, type[Kind]] = {
    "agent": Agent,
    "short": Short,
    "chat": Chat,
    "document": Document,
    "few-shot": FewShot,
    "tenants": Tenants,
    "generated-shared-prefix": GeneratedSharedPrefix,
    "shared-prefix": SharedPrefix,
    "prefix-repetition": PrefixRepetition,
    "trace": BlockTrace,
    "openai-log": OpenAILog,
}


def chosen(name: str, settings: Sequence[str]) -> Kind:
    """Returns the traffic of that name; settings: `parameter=value`. Raises LoadTestError."""
    if name not in KINDS:
        raise LoadTestError(f"workload {name!r} is none of {', '.join(KINDS)}")
    given = {}
    for setting in settings:
        key, found, value = setting.partition("=")
        if not found:
            raise LoadTestError(f"--set {setting}: parameter=value is expected")
        given[key.replace("-", "_")] = _parsed(value)
    try:
        return msgspec.convert(given, KINDS[name], strict=False)
    except msgspec.ValidationError as error:
        raise LoadTestError(f"workload {name}: {error}") from error


def parameters(name: str) -> dict[str, str]:
    """Returns a kind's parameters and their defaults, as words."""
    fields = msgspec.structs.fields(KINDS[name])  # type: ignore[arg-type]
    return {field.name: "needed" if field.required else str(field.default) for field in fields}


def _parsed(value: str) -> object:
    """JSON where it is some, else the words themselves."""
    try:
        return msgspec.json.decode(value.encode())
    except msgspec.DecodeError:
        return value
