"""What the admin API takes and gives: tenants, keys, usage and workers as JSON.

A key's digest is taken and never given. What is taken is checked by the types of the gateway's own
configuration, so a tenant is the same in a file, in Redis and here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from gateway.errors import InvalidRequest
from gateway.fields import Instant, Name, explain
from gateway.fleet.workers import Worker
from gateway.store.interface import Counts, UsageRow
from gateway.tenancy.directory import Listed
from gateway.tenant_config import PolicyConfig, TenantConfig, TenantQuota

MAX_DAYS = 366
# Ten years: longer is no expiry.
_MAX_SECONDS = 10 * 366 * 86_400
# How deep a tenant's settings are nested, and no deeper.
_DEPTH = 4

Kind = TypeVar("Kind")


class KeyView(Struct, frozen=True):
    """A key as it is listed."""

    id: str
    created_at: datetime | None
    expires_at: datetime | None
    expired: bool


class TenantView(Struct, frozen=True):
    """A tenant as it is. source: where it is kept. etag: for If-Match. warnings: sentences."""

    id: str
    source: str
    etag: str
    namespace: str
    models: tuple[str, ...] | None
    policy: PolicyConfig | None
    weight: float
    priority: str
    quota: TenantQuota
    cache_share: float
    cache_cap: float
    debug: bool
    keys: list[KeyView]
    warnings: list[str]

    @classmethod
    def of(cls, listed: Listed, now: datetime, warnings: list[str]) -> TenantView:
        """How a tenant looks now."""
        config = listed.config
        keys = [
            KeyView(
                key.name,
                key.created_at,
                key.expires_at,
                key.expires_at is not None and key.expires_at <= now,
            )
            for key in config.all_keys
        ]
        return cls(
            id=config.id,
            source=listed.source,
            etag=listed.etag,
            namespace=config.namespace or config.id,
            models=config.models,
            policy=config.policy,
            weight=config.weight,
            priority=config.priority,
            quota=config.quota,
            cache_share=config.cache_share,
            cache_cap=config.cache_cap,
            debug=config.debug,
            keys=keys,
            warnings=warnings,
        )


class TenantList(Struct, frozen=True):
    """Some tenants, by id. has_more: there are others behind the last one."""

    data: list[TenantView]
    has_more: bool
    object: str = "list"


class NewKeyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST .../keys. Of the two ends at most one; without any it never ends."""

    id: Name | None = None
    expires_in: Annotated[float, Meta(gt=0, le=_MAX_SECONDS)] | None = None
    expires_at: Instant | None = None

    def end(self, now: datetime) -> datetime | None:
        """When the key expires. Raises InvalidRequest."""
        if self.expires_in is None:
            return self.expires_at
        if self.expires_at is not None:
            raise InvalidRequest("Name expires_in or expires_at, not both.", param="expires_at")
        return now + timedelta(seconds=self.expires_in)


class NewKeyView(Struct, frozen=True):
    """A new key. key: its text, told this once."""

    key: str
    id: str
    created_at: datetime | None
    expires_at: datetime | None


class UsageView(Struct, frozen=True):
    """What was used from `start` on, for an hour or a day."""

    start: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, start: str, counts: Counts) -> UsageView:
        """The counts of one time."""
        return cls(
            start,
            counts.requests,
            counts.prompt_tokens,
            counts.cached_tokens,
            counts.completion_tokens,
        )


class UsageList(Struct, frozen=True):
    """What a tenant used, by time, and in all. Hours without use are left out."""

    data: list[UsageView]
    total: UsageView
    object: str = "list"

    @classmethod
    def of(cls, rows: Sequence[UsageRow], days: Sequence[str], by: str) -> UsageList:
        """The rows by `hour` or by `day`."""
        times: dict[str, Counts] = {}
        for row in rows:
            start = row.hour.strftime("%Y-%m-%d" if by == "day" else "%Y-%m-%dT%H:00:00Z")
            times[start] = times.get(start, Counts()) + row.counts
        total = sum(times.values(), Counts())
        data = [UsageView.of(start, counts) for start, counts in times.items()]
        return cls(data, UsageView.of(min(days), total))


class WorkerView(Struct, frozen=True):
    """A live worker. load: what the metrics show of it."""

    name: str
    model: str
    incarnation: str
    version: str
    draining: bool
    load: dict[str, Any]

    @classmethod
    def of(cls, worker: Worker) -> WorkerView:
        """How a worker looks now."""
        info = worker.info
        return cls(
            name=worker.name,
            model=info.model,
            incarnation=info.incarnation,
            version=info.version,
            draining=worker.load.draining,
            load=dict(worker.gauges()),
        )


class FleetView(Struct, frozen=True):
    """All live workers."""

    data: list[WorkerView]
    object: str = "list"

    @classmethod
    def of(cls, workers: Iterable[Worker]) -> FleetView:
        """How the fleet looks now."""
        return cls([WorkerView.of(worker) for worker in workers])


def read_tenant(body: bytes, tenant: str) -> tuple[TenantConfig, bool]:
    """The tenant that a body describes, and whether it names keys. Raises InvalidRequest."""
    settings = _settings(body, tenant)
    whole = _merged({}, settings)
    return _convert({**whole, "id": tenant}, TenantConfig), "keys" in settings


def read_patch(body: bytes, tenant: str) -> Callable[[TenantConfig], TenantConfig]:
    """What a body makes of a tenant: a JSON merge patch (RFC 7396).

    A field named is so, null is its default, and the rest stays; within `quota` and `policy` too.
    Raises InvalidRequest, and so does what is returned.
    """
    settings = _settings(body, tenant)

    def patched(held: TenantConfig) -> TenantConfig:
        whole = _merged(msgspec.to_builtins(held), settings)
        return _convert({**whole, "id": tenant}, TenantConfig)

    return patched


def _settings(body: bytes, tenant: str) -> dict[str, Any]:
    """A body that names no other tenant than the URL. Raises InvalidRequest."""
    settings = _json(body)
    named = settings.get("id", tenant)
    if named != tenant:
        raise InvalidRequest(f"id is {named!r:.200}: the URL says {tenant!r}.", param="id")
    return settings


def _merged(held: Any, patch: Any, depth: int = _DEPTH) -> Any:
    """What RFC 7396 makes of both; what is nested deeper than any setting stands as it is."""
    if not isinstance(patch, dict) or not depth:
        return patch
    after = dict(held) if isinstance(held, dict) else {}
    for name, value in patch.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = _merged(after.get(name), value, depth - 1)
    return after


def read_new_key(body: bytes) -> NewKeyBody:
    """What a body asks of a new key; an empty one nothing. Raises InvalidRequest."""
    return _convert(_json(body) if body else {}, NewKeyBody)


def _json(body: bytes) -> dict[str, Any]:
    try:
        settings = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        text = f"The body is not valid JSON in UTF-8: {error}"
        raise InvalidRequest(text, code="invalid_json") from error
    if not isinstance(settings, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return settings


def _convert(settings: dict[str, Any], kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), settings, kind) from error


def _invalid(message: str, settings: dict[str, Any], kind: object) -> InvalidRequest:
    """The field in param, and a sentence that names it, its value and what is allowed."""
    text = explain(message, settings, kind)
    unknown = re.search(r"unknown field `(.*?)`", message)
    named = re.match(r"([A-Za-z0-9_.\[\]]+)(?: is |: )", text)
    param = named[1] if named else None
    if unknown:
        param = f"{param}.{unknown[1]}" if param else unknown[1]
    return InvalidRequest(f"{text}.", param=param, code="unknown_parameter" if unknown else None)
