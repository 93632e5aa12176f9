"""All that an operator may set: one frozen value, read from one file and a few flags.

The file is YAML, and so JSON. An error names the field, its value and the allowed range.
Keys are never in it in the clear: `keys` lists sha256 digests.

`fleet_config`, `limit_config` and `tenant_config` hold the parts with most settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.fields import (
    Name,
    PositiveInt,
    Seconds,
    Url,
    explain,
    refuse_infinite,
    refuse_repeats,
    whole,
)
from gateway.fleet_config import (
    BreakerConfig,
    DnsConfig,
    ForeignConfig,
    ForeignKind,
    LinkConfig,
    TlsConfig,
    WorkerConfig,
)
from gateway.limit_config import LimitConfig, ProgramLimitConfig, QueueConfig, RetryConfig
from gateway.tenant_config import (
    AdminConfig,
    PolicyConfig,
    QuotaConfig,
    RedisConfig,
    TenantConfig,
    refuse_shared_keys,
)

# What the gateway's rooms are set up by. Tenants' own settings are in `tenant_config`.
__all__ = [
    "BreakerConfig",
    "ConfigError",
    "DnsConfig",
    "DoctorConfig",
    "ForeignConfig",
    "ForeignKind",
    "GatewayConfig",
    "LimitConfig",
    "LinkConfig",
    "ProgramLimitConfig",
    "PublicPrefixConfig",
    "QueueConfig",
    "RetryConfig",
    "RoutingConfig",
    "TlsConfig",
    "TracingConfig",
    "WorkerConfig",
    "load",
    "worker_flag",
]


class ConfigError(ValueError):
    """A setting is wrong; the text says which, what it was and what it may be."""


class RoutingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How requests are spread (docs/routing.md).

    policy: of tenants without one of their own. reuse_weight: queued tokens that a worker may be
    behind another one for each prompt token that it saves. crowd_tokens: rather computed again
    elsewhere than one more sequence beyond max(load_floor, load_factor x mean). work_weight: what
    a token counts, in queued ones, that a worker was given beyond the mean; half of that is
    forgotten in work_half_life_s. miss_share: of a prompt; who holds less than so much more than
    the others has no advantage. vnodes: points of a worker on the ring; among hundreds of workers,
    fewer do. max_replicas: workers that one static prefix may live on; 0: as many as pay. A worker
    younger than warm_up_s gets at most warm_up_share of what no cache decides. max_boundaries:
    that a worker is asked to name per prompt. view_boundaries: remembered of each worker; should
    exceed what its cache holds. guess_s: how long a worker may take to tell of what was sent.
    completion_key_chars: characters, or ids, between two boundaries of a plain prompt.
    tokens_per_byte: believed before a model's first request ended. attempts: workers that one
    request is given to.
    """

    policy: PolicyConfig = PolicyConfig()
    reuse_weight: Annotated[float, Meta(ge=0.1, le=1000)] = 20.0
    crowd_tokens: Annotated[float, Meta(ge=0)] = 2048.0
    work_weight: Annotated[float, Meta(ge=0)] = 0.5
    work_half_life_s: Seconds = 14_400.0
    miss_share: Annotated[float, Meta(ge=0, le=1)] = 0.1
    vnodes: Annotated[int, Meta(ge=1, le=65536)] = 2048
    load_floor: PositiveInt = 16
    load_factor: Annotated[float, Meta(ge=1)] = 1.25
    max_replicas: Annotated[int, Meta(ge=0)] = 0
    warm_up_s: Annotated[float, Meta(ge=0)] = 60.0
    warm_up_share: Annotated[float, Meta(gt=0, le=1)] = 0.25
    max_boundaries: Annotated[int, Meta(ge=1, le=1024)] = 24
    view_boundaries: PositiveInt = 200_000
    guess_s: Seconds = 60.0
    completion_key_chars: PositiveInt = 1024
    tokens_per_byte: Annotated[float, Meta(gt=0, le=1000)] = 0.25
    attempts: PositiveInt = 3


class DoctorConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how it is found out why prompts missed the cache (docs/doctor.md).

    remember: parts of prompts, a message each; about 1 to 3 kB. examinations_per_s: prompts whose
    new parts are looked at in a second; others are only counted. show_text: the log and findings
    have a few characters around what was found.
    """

    enabled: bool = True
    remember: Annotated[int, Meta(ge=100, le=10_000_000)] = 20_000
    examinations_per_s: Annotated[float, Meta(ge=0, le=1_000_000)] = 200.0
    show_text: bool = False


class TracingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where requests are told of as OpenTelemetry's spans (the extra `otel`).

    endpoint: an OTLP/HTTP collector's URL for traces; None: nowhere. sample: of requests without a
    traceparent; a client's own decision is followed.
    """

    endpoint: Url | None = None
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0


class PublicPrefixConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First messages of a chat that every tenant shares, exactly as clients send them."""

    messages: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=100)]


class GatewayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole gateway. aliases: further names of served models. port 0: any free one.

    public_prefixes: beginnings of chats that all tenants share.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    name: Name = "gateway"
    workers: tuple[WorkerConfig, ...] = ()
    dns: DnsConfig | None = None
    foreign: tuple[ForeignConfig, ...] = ()
    aliases: dict[str, str] = {}
    public_prefixes: Annotated[tuple[PublicPrefixConfig, ...], Meta(max_length=1000)] = ()
    tenants: tuple[TenantConfig, ...] = ()
    tenants_file: str | None = None
    quota: QuotaConfig = QuotaConfig()
    redis: RedisConfig = RedisConfig()
    admin: AdminConfig = AdminConfig()
    limits: LimitConfig = LimitConfig()
    programs: ProgramLimitConfig = ProgramLimitConfig()
    link: LinkConfig = LinkConfig()
    routing: RoutingConfig = RoutingConfig()
    queue: QueueConfig = QueueConfig()
    retries: RetryConfig = RetryConfig()
    breaker: BreakerConfig = BreakerConfig()
    doctor: DoctorConfig = DoctorConfig()
    tracing: TracingConfig = TracingConfig()
    keep_alive_s: Seconds = 15.0
    request_timeout_s: Seconds = 1800.0
    shutdown_s: Seconds = 30.0
    log_level: Annotated[str, whole("(debug|info|warning|error)")] = "info"
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        """Refuse what no single field shows."""
        refuse_repeats("workers.address", [worker.address for worker in self.workers])
        names = [worker.name for worker in self.workers if worker.name is not None]
        refuse_repeats("workers.name", names)
        refuse_repeats("foreign.name", [member.name for member in self.foreign])
        for member in self.foreign:
            if member.name in names:
                raise ValueError(f"foreign.name is {member.name!r}: a worker has this name")
        for alias, model in self.aliases.items():
            if alias == model:
                raise ValueError(f"aliases.{alias} is {model!r}: expected another name")
        refuse_shared_keys(self.tenants)
        for position, tenant in enumerate(self.tenants):
            if not tenant.keys:
                raise ValueError(f"tenants[{position}].keys is []: at least one")

    @property
    def looks_for_workers(self) -> bool:
        """Whether any source of workers is named."""
        return bool(self.workers or self.dns or self.foreign or self.redis.workers)


def load(
    path: Path | None, flags: dict[str, object], environment: Mapping[str, str] | None = None
) -> GatewayConfig:
    """The file's settings with the flags, and secrets of the environment, put over them.

    Paths in the file are meant from its folder. Raises ConfigError.
    """
    settings: dict[str, Any] = {}
    if path is not None:
        try:
            read = msgspec.yaml.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
        if not isinstance(read, dict | None):
            raise ConfigError(f"{path}: must be a mapping of settings")
        settings.update(read or {})
        _anchor(settings, path.parent)
    _lay_over(settings, flags)
    url = (environment or {}).get("PANDO_REDIS_URL")
    if url and isinstance(settings.setdefault("redis", {}), dict):
        settings["redis"] = {**settings["redis"], "url": url}
    try:
        refuse_infinite(settings)
        return msgspec.convert(settings, GatewayConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(str(error), settings, GatewayConfig)) from error
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _anchor(settings: dict[str, Any], folder: Path) -> None:
    """A path in a file is meant from the file's folder."""
    link = settings.get("link")
    tls = link.get("tls") if isinstance(link, dict) else None
    for holder, names in ((settings, ("tenants_file",)), (tls, ("ca", "cert", "key"))):
        for name in names:
            if isinstance(holder, dict) and isinstance(holder.get(name), str):
                holder[name] = str(folder / holder[name])


def _lay_over(settings: dict[str, Any], flags: dict[str, object]) -> None:
    """Flags win over the file; workers of flags come in addition to its own."""
    workers = settings.get("workers")
    settings.update(flags)
    if isinstance(workers, list) and isinstance(flags.get("workers"), list):
        settings["workers"] = [*workers, *settings["workers"]]


def worker_flag(text: str) -> dict[str, str]:
    """`NAME=HOST:PORT` or `HOST:PORT` as a member of `workers`."""
    name, separator, address = text.rpartition("=")
    return {"name": name, "address": address} if separator else {"address": address}
