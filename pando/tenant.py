"""`pando tenant`: tenants, their keys and what they used, through a gateway's admin API.

A new key is the only thing on standard output; what is said about it goes to standard error, so
`KEY=$(pando tenant key add acme)` works.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from pando.errors import PandoError
from pando.tenant_client import AdminClient, Record
from pando.tenant_text import (
    LIMITS,
    NONE,
    columns,
    describe,
    key_words,
    moment,
    parse_duration,
    parse_limit,
    quota,
)

DEFAULT_ADMIN_URL = "http://127.0.0.1:8001"

app = typer.Typer(no_args_is_help=True, help="Tenants, their keys and what they used.")
key_app = typer.Typer(no_args_is_help=True, help="A tenant's API keys.")
app.add_typer(key_app, name="key")

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key's name, as it is listed.")]
AdminUrl = Annotated[
    str, typer.Option(envvar="PANDO_ADMIN_URL", help="The admin API; its key is PANDO_ADMIN_KEY.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's own JSON.")]
Models = Annotated[
    list[str] | None, typer.Option("--model", help="A model it may use; repeat it; none: all.")
]
Namespace = Annotated[str | None, typer.Option(help="Whose cached pages it shares; none: its own.")]
Weight = Annotated[float | None, typer.Option(help="Its share where requests wait.")]
Priority = Annotated[str | None, typer.Option(help="high, normal or low.")]
Policy = Annotated[str | None, typer.Option(help="How workers are chosen; none: the fleet's.")]
PolicyWorkers = Annotated[
    list[str] | None, typer.Option("--policy-worker", help="For the policy 'dedicated'; repeat it.")
]
ShardSize = Annotated[int | None, typer.Option(help="For the policy 'shuffle_shard'.")]
Requests = Annotated[str | None, typer.Option("--requests-per-minute", help="A number or none.")]
Tokens = Annotated[str | None, typer.Option("--tokens-per-minute", help="A number or none.")]
Concurrency = Annotated[str | None, typer.Option(help="Requests at a time; a number or none.")]
MaxQueued = Annotated[str | None, typer.Option(help="Requests that wait; a number or none.")]
CacheShare = Annotated[float | None, typer.Option(help="Of each cache, kept for it: 0 to 1.")]
CacheCap = Annotated[float | None, typer.Option(help="Of each cache, at most unused for it.")]
Debug = Annotated[bool | None, typer.Option(help="Whether it may see how it was routed.")]
KeyName = Annotated[str | None, typer.Option("--name", help="What the key is called.")]
ExpiresIn = Annotated[str | None, typer.Option(help="When it ends: 90s, 15m, 24h, 30d.")]


@app.command()
def add(  # noqa: PLR0913 - one parameter is one option
    tenant: Tenant,
    *,
    model: Models = None,
    namespace: Namespace = None,
    weight: Weight = None,
    priority: Priority = None,
    policy: Policy = None,
    policy_worker: PolicyWorkers = None,
    shard_size: ShardSize = None,
    requests_per_minute: Requests = None,
    tokens_per_minute: Tokens = None,
    concurrency: Concurrency = None,
    max_queued: MaxQueued = None,
    cache_share: CacheShare = None,
    cache_cap: CacheCap = None,
    debug: Debug = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="Make no key yet.")] = False,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """Make a tenant and its first key, which is printed this once."""
    wishes = dict(locals())  # the options by their names
    with sentences("add"):
        client = connect(admin_url)
        made = client.create(tenant, named(wishes))
        say(f"Tenant {tenant} is there.")
        tell_warnings(made)
        if not no_key:
            tell_key(client.add_key(tenant, None, None), tenant)


@app.command("list")
def list_(as_json: AsJson = False, admin_url: AdminUrl = DEFAULT_ADMIN_URL) -> None:
    """All tenants of the gateway, wherever they are kept."""
    with sentences("list"):
        tenants = connect(admin_url).tenants()
        rows = [
            (t["id"], t["source"], t["priority"], f"{t['weight']:g}", str(len(t["keys"])), quota(t))
            for t in tenants
        ]
        head = ("tenant", "kept in", "priority", "weight", "keys", "quota")
        show_all(tenants, as_json, lambda: columns(head, rows))


@app.command()
def show(tenant: Tenant, as_json: AsJson = False, admin_url: AdminUrl = DEFAULT_ADMIN_URL) -> None:
    """One tenant."""
    with sentences("show"):
        found = connect(admin_url).tenant(tenant)
        show_all(found, as_json, lambda: [f"{name:10} {text}" for name, text in describe(found)])
        tell_warnings(found)


@app.command("set")
def set_(  # noqa: PLR0913 - one parameter is one option
    tenant: Tenant,
    *,
    model: Models = None,
    namespace: Namespace = None,
    weight: Weight = None,
    priority: Priority = None,
    policy: Policy = None,
    policy_worker: PolicyWorkers = None,
    shard_size: ShardSize = None,
    requests_per_minute: Requests = None,
    tokens_per_minute: Tokens = None,
    concurrency: Concurrency = None,
    max_queued: MaxQueued = None,
    cache_share: CacheShare = None,
    cache_cap: CacheCap = None,
    debug: Debug = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """Change what is named, and leave the rest; requests that run keep what they began with."""
    wishes = dict(locals())  # the options by their names
    with sentences("set"):
        found = connect(admin_url).change(tenant, named(wishes))
        for name, text in describe(found):
            say(f"{name:10} {text}")
        tell_warnings(found)


@app.command()
def remove(
    tenant: Tenant,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """Remove a tenant with all its keys."""
    with sentences("remove"):
        client = connect(admin_url)
        keys = len(client.tenant(tenant)["keys"])
        if not yes and not typer.confirm(f"Remove {tenant} and its {keys} keys?", err=True):
            raise PandoError("Nothing was removed.")
        client.remove(tenant)
        say(f"Tenant {tenant} is gone.")


@app.command()
def rotate(
    tenant: Tenant,
    keep_old: Annotated[str, typer.Option(help="How long old keys still work.")] = "24h",
    name: KeyName = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """Make a new key, which is printed this once, and let all others end."""
    with sentences("rotate"):
        client = connect(admin_url)
        keep_s = parse_duration(keep_old)
        old = [key for key in client.tenant(tenant)["keys"] if not key["expired"]]
        tell_key(client.add_key(tenant, name, None), tenant)
        for key in old:
            client.end_key(tenant, key["id"], keep_s)
            say(f"Key {key['id']} works for {keep_old} more.")


@app.command()
def usage(
    tenant: Tenant,
    days: Annotated[int, typer.Option(min=1, max=366, help="So many, with today.")] = 7,
    by: Annotated[str, typer.Option(help="day or hour")] = "day",
    as_json: AsJson = False,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """What a tenant used, in UTC."""
    with sentences("usage"):
        told = connect(admin_url).usage(tenant, days, by)
        names = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
        rows = [
            (label, *(f"{row[name]:,}" for name in names))
            for row, label in [
                *((row, row["start"]) for row in told["data"]),
                (told["total"], "total"),
            ]
        ]
        head = (by, "requests", "prompt", "of it cached", "completion")
        show_all(told, as_json, lambda: columns(head, rows))


@key_app.command("add")
def key_add(
    tenant: Tenant,
    name: KeyName = None,
    expires_in: ExpiresIn = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """Make one more key, which is printed this once."""
    with sentences("key add"):
        expires_s = None if expires_in is None else parse_duration(expires_in)
        tell_key(connect(admin_url).add_key(tenant, name, expires_s), tenant)


@key_app.command("expire")
def key_expire(
    tenant: Tenant,
    key: Key,
    expires_in: Annotated[
        str | None, typer.Option("--in", help="When: 90s, 15m, 24h, 30d. Without it: now.")
    ] = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """End a key, now or later."""
    with sentences("key expire"):
        expires_s = None if expires_in is None else parse_duration(expires_in)
        found = connect(admin_url).end_key(tenant, key, expires_s)
        left = [key_words(one) for one in found["keys"] if one["id"] == key]
        say(f"Key {left[0]}." if left else f"Key {key} is gone.")


@key_app.command("list")
def key_list(
    tenant: Tenant, as_json: AsJson = False, admin_url: AdminUrl = DEFAULT_ADMIN_URL
) -> None:
    """A tenant's keys; their text is kept nowhere."""
    with sentences("key list"):
        keys = connect(admin_url).tenant(tenant)["keys"]
        rows = [
            (
                key["id"],
                moment(key["created_at"]),
                moment(key["expires_at"]),
                "expired" if key["expired"] else "works",
            )
            for key in keys
        ]
        show_all(keys, as_json, lambda: columns(("key", "made", "ends", ""), rows))


# Settings that are sent as they are given.
PLAIN = ("weight", "priority", "cache_share", "cache_cap", "debug")


def connect(admin_url: str) -> AdminClient:
    """Returns a client with the environment's key."""
    return AdminClient(admin_url, os.environ.get("PANDO_ADMIN_KEY"))


def named(wishes: Record) -> Record:
    """Returns what the options name of a tenant, as the admin API takes it; null for `none`."""
    settings = {name: wishes[name] for name in PLAIN if wishes[name] is not None}
    if wishes["namespace"] is not None:
        settings["namespace"] = None if wishes["namespace"] == NONE else wishes["namespace"]
    if wishes["model"]:
        settings["models"] = None if wishes["model"] == [NONE] else wishes["model"]
    limits = {name: parse_limit(name, wishes[name]) for name in LIMITS if wishes[name] is not None}
    return {**settings, **({"quota": limits} if limits else {}), **_policy(wishes)}


def _policy(wishes: Record) -> Record:
    """Another policy takes nothing over from the one before."""
    name = wishes["policy"]
    if name == NONE:
        return {"policy": None}
    chosen = {"workers": wishes["policy_worker"] or None, "shard_size": wishes["shard_size"]}
    if name is not None:
        return {"policy": {"name": name, **chosen}}
    chosen = {field: value for field, value in chosen.items() if value is not None}
    return {"policy": chosen} if chosen else {}


@contextmanager
def sentences(command: str) -> Iterator[None]:
    """What goes wrong is told in a sentence, and the command ends with status 1."""
    try:
        yield
    except PandoError as error:
        say(f"pando tenant {command}: {error}")
        raise typer.Exit(1) from error


def tell_key(key: Record, tenant: str) -> None:
    """The key alone goes to standard output."""
    end = f", until {moment(key['expires_at'])}" if key["expires_at"] else ""
    say(f"Key {key['id']} of {tenant}{end}; it is shown this once:")
    typer.echo(key["key"])


def tell_warnings(tenant: Record) -> None:
    """What the gateway finds doubtful about it."""
    for warning in tenant["warnings"]:
        say(f"Warning: {warning}")


def say(text: str) -> None:
    """To whoever sits there."""
    typer.echo(text, err=True)


def show_all(found: Any, as_json: bool, lines: Callable[[], list[str]]) -> None:
    """What was asked for goes to standard output, as JSON or as text."""
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(lines()))
