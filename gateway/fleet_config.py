"""Settings of the workers: where they are looked for, and how they and the links are judged."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.fields import (
    Address,
    Name,
    PositiveInt,
    Seconds,
    Url,
    refuse_bad_port,
    refuse_more,
    whole,
)


class WorkerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a worker listens. name: what it must call itself; None takes what it says."""

    address: Address
    name: Name | None = None

    def __post_init__(self) -> None:
        """Refuse a port that is none."""
        refuse_bad_port("address", f"//{self.address}", self.address)


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files that encrypt the links. ca: who signs workers' certificates. cert, key: our own, where
    workers ask for one. server_name: what their certificates say, if not the address.
    """

    ca: str
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        """Refuse half a pair."""
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: set both or neither")


class BreakerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a failing worker is left alone: after `failures` in a row, for open_s, then longer."""

    failures: Annotated[int, Meta(ge=2)] = 5
    successes: PositiveInt = 2
    open_s: Seconds = 5.0
    max_open_s: Seconds = 60.0

    def __post_init__(self) -> None:
        """Refuse a first wait above the longest."""
        refuse_more("open_s", self.open_s, "max_open_s", self.max_open_s)


class LinkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a link judges its worker.

    silence_s: no message for so long means that it is broken. wedge_s: no step computed for so long
    while there is work means that its engine hangs; its requests go on elsewhere.
    """

    hello_timeout_s: Seconds = 10.0
    silence_s: Seconds = 5.0
    wedge_s: Seconds = 60.0
    backoff_min_s: Seconds = 0.1
    backoff_max_s: Seconds = 3.0
    tls: TlsConfig | None = None

    def __post_init__(self) -> None:
        """Refuse a first pause above the longest."""
        refuse_more("backoff_min_s", self.backoff_min_s, "backoff_max_s", self.backoff_max_s)


class DnsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name whose every address is a worker: a headless service. refresh_s: between questions."""

    name: Annotated[str, whole(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252})")]
    port: Annotated[int, Meta(ge=1, le=65535)]
    refresh_s: Seconds = 2.0
    timeout_s: Seconds = 5.0


ForeignKind = Literal["vllm", "sglang", "openai"]


class ForeignConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server with OpenAI's API as a member of the fleet.

    model: what it calls the model; None: the first that it lists. served_model_name: what clients
    call it; None: the same. key_variable: the environment variable with the key it wants.
    max_running_sequences: how many it is sent at once, and a few ahead. failures: looks in a row
    that fail before it is left. silence_s: the longest pause in an answer.
    """

    url: Url
    name: Name
    kind: ForeignKind = "openai"
    model: str | None = None
    served_model_name: str | None = None
    key_variable: str | None = None
    max_running_sequences: PositiveInt = 256
    poll_s: Seconds = 1.0
    timeout_s: Seconds = 5.0
    silence_s: Seconds = 120.0
    failures: Annotated[int, Meta(ge=2)] = 3

    def __post_init__(self) -> None:
        """Refuse a port that is none."""
        refuse_bad_port("url", self.url, self.url)
