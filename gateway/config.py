"""All that an operator may set: one frozen value, read from one file and a few flags.

The file is YAML, and so JSON. An error names the field, its value and the allowed range.
Keys are never in it in the clear: `keys` lists sha256 digests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

PositiveInt = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Address = Annotated[str, Meta(pattern=r"^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$")]
KeyDigest = Annotated[str, Meta(pattern=r"^(sha256:)?[0-9a-f]{64}$")]


class ConfigError(ValueError):
    """A setting is wrong; the text says which, what it was and what it may be."""


class WorkerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a worker listens. name: what it must call itself; None takes what it says."""

    address: Address
    name: Name | None = None


class TenantConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may ask. namespace: whose cached pages it shares; None: its own id.

    models: what it may use; None: all. keys: sha256 of each key, in hex.
    """

    id: Name
    keys: Annotated[tuple[KeyDigest, ...], Meta(min_length=1)]
    namespace: Name | None = None
    models: tuple[str, ...] | None = None


class LimitConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much one request may bring, and how long it may take to.

    head_bytes: the request line and headers together.
    """

    head_bytes: PositiveInt = 64 * 1024
    head_timeout_s: Seconds = 30.0
    body_bytes: PositiveInt = 8 * 1024 * 1024
    body_timeout_s: Seconds = 60.0
    json_depth: PositiveInt = 32
    messages: PositiveInt = 2048
    choices: PositiveInt = 16
    prompts: PositiveInt = 128
    stop_strings: PositiveInt = 16
    stop_string_chars: PositiveInt = 1024
    stop_token_ids: PositiveInt = 128
    logit_bias: PositiveInt = 1024


class LinkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a link judges its worker. silence_s: no message for so long means that it is broken."""

    hello_timeout_s: Seconds = 10.0
    silence_s: Seconds = 5.0
    backoff_min_s: Seconds = 0.1
    backoff_max_s: Seconds = 3.0


class RoutingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How requests are spread. A worker is passed over above max(load_floor, load_factor x mean).

    completion_key_chars: the leading part of a plain prompt that names its prefix.
    attempts: workers tried before the first output.
    """

    vnodes: PositiveInt = 160
    load_floor: PositiveInt = 16
    load_factor: Annotated[float, Meta(ge=1)] = 1.25
    completion_key_chars: PositiveInt = 1024
    attempts: PositiveInt = 3


class GatewayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole gateway. aliases: further names of served models. port 0: any free one."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    name: Name = "gateway"
    workers: tuple[WorkerConfig, ...] = ()
    aliases: dict[str, str] = {}
    tenants: tuple[TenantConfig, ...] = ()
    limits: LimitConfig = LimitConfig()
    link: LinkConfig = LinkConfig()
    routing: RoutingConfig = RoutingConfig()
    keep_alive_s: Seconds = 15.0
    request_timeout_s: Seconds = 1800.0
    shutdown_s: Seconds = 30.0
    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$")] = "info"

    def __post_init__(self) -> None:
        """Refuse what no single field shows."""
        _refuse_repeats("workers.address", [worker.address for worker in self.workers])
        _refuse_repeats("workers.name", [w.name for w in self.workers if w.name is not None])
        _refuse_repeats("tenants.id", [tenant.id for tenant in self.tenants])
        _refuse_repeats(
            "tenants.keys",
            [key.removeprefix("sha256:") for tenant in self.tenants for key in tenant.keys],
        )
        if self.link.backoff_min_s > self.link.backoff_max_s:
            raise ValueError(
                f"link.backoff_min_s is {self.link.backoff_min_s}: "
                f"at most link.backoff_max_s, {self.link.backoff_max_s}"
            )


def load(path: Path | None, flags: dict[str, object]) -> GatewayConfig:
    """The file's settings with the flags put over them. Raises ConfigError."""
    settings: dict[str, Any] = {}
    if path is not None:
        try:
            read = msgspec.yaml.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
        if not isinstance(read, dict | None):
            raise ConfigError(f"{path}: must be a mapping of settings")
        settings.update(read or {})
    settings.update(flags)
    try:
        return msgspec.convert(settings, GatewayConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), settings)) from error


def worker_flag(text: str) -> dict[str, str]:
    """`NAME=HOST:PORT` or `HOST:PORT` as a member of `workers`."""
    name, separator, address = text.rpartition("=")
    return {"name": name, "address": address} if separator else {"address": address}


def _refuse_repeats(field: str, values: list[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{field} is {value!r} more than once: each must be unique")


def _explain(message: str, settings: dict[str, Any]) -> str:
    """`Expected int <= 65535 - at $.port` with the field and its value in front."""
    rule, _, path = message.rpartition(" - at `$")
    if not rule:
        return message
    value: Any = settings
    field = path.rstrip("`").lstrip(".")
    for step in re.findall(r"[^.\[\]]+", field):
        try:
            value = value[int(step)] if isinstance(value, list | tuple) else value[step]
        except (KeyError, IndexError, ValueError, TypeError):
            return f"{field}: {rule}"
    return f"{field} is {value!r}: {rule[0].lower()}{rule[1:]}" if field else rule
