"""The body of POST /v1/programs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.config import LimitConfig, ProgramLimitConfig
from gateway.fields import whole
from gateway.http.decoding import check_nodes, decoded, invalid
from gateway.http.openai import Label, StreamOptions, Tier
from gateway.http.programs.check import Size, checked
from proto.program import Node, ProgramSampling

SessionId = Annotated[str, whole("[^~]{1,256}~[A-Za-z0-9-]{1,64}")]


class SessionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """id: of an earlier answer, to go on from it. ttl_s: how long it is kept; 0: not any more."""

    id: SessionId | None = None
    ttl_s: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 60


class ProgramRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body: nodes, and what holds for all of them."""

    model: Label
    program: list[Node]
    sampling: ProgramSampling = ProgramSampling()
    heal: bool = True
    session: SessionSettings | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_cache_key: Label | None = None
    service_tier: Tier | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None


_decoder = msgspec.json.Decoder(ProgramRequest)


def read_program(
    body: bytes, limits: LimitConfig, sizes: ProgramLimitConfig
) -> tuple[ProgramRequest, Size]:
    """The body within the limits, and what the program takes. Raises InvalidRequest."""
    check_nodes(body, limits)
    request = decoded(_decoder, body)
    session = request.session
    if session is not None and session.ttl_s > sizes.session_ttl_s:
        raise invalid("session.ttl_s", f"expected at most {sizes.session_ttl_s}")
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options", "only allowed when 'stream' is true")
    goes_on = session is not None and session.id is not None
    return request, checked(request.program, sizes, goes_on=goes_on)
