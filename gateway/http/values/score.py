"""Scores of pairs in the order they came in, as vLLM has it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
from msgspec import Struct

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.answer import Heading
from gateway.http.decoding import check_nodes, decoded, invalid
from gateway.http.inbound import worked
from gateway.http.intake import Caller
from gateway.http.openai import Label
from gateway.http.service import Order, Service
from gateway.http.values.asks import Asker, PromptUsage, most_pairs, usage_of, values_in_order
from gateway.request import Output, PairPrompt, Usage

Texts = str | list[str]


class ScoreRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/score: one query and its documents, or as many queries as documents.

    text_1, text_2: the older names of queries and documents.
    """

    model: Label
    queries: Texts | None = None
    documents: Texts | None = None
    text_1: Texts | None = None
    text_2: Texts | None = None
    instruction: str | None = None
    user: Label | None = None


class Score(Struct, frozen=True):
    """A pair's score, from 0 to 1."""

    index: int
    score: float
    object: str = "score"


class ScoreList(Struct, frozen=True):
    """The answer."""

    id: str
    created: int
    model: str
    data: list[Score]
    usage: PromptUsage
    object: str = "list"


_decoder = msgspec.json.Decoder(ScoreRequest)


def read_score(body: bytes, limits: LimitConfig) -> tuple[ScoreRequest, list[PairPrompt]]:
    """The body within the limits, and its pairs. Raises InvalidRequest."""
    check_nodes(body, limits)
    request = decoded(_decoder, body)
    first, queries = _named(request, "queries", "text_1")
    second, documents = _named(request, "documents", "text_2")
    if not documents:
        raise invalid(second, "expected at least one text")
    if len(queries) not in (1, len(documents)):
        raise invalid(first, f"expected 1 text or as many as '{second}' has, {len(documents)}")
    if len(documents) > limits.documents:
        raise invalid(second, most_pairs(limits))
    asked = queries * len(documents) if len(queries) == 1 else queries
    instruction = request.instruction or ""
    pairs = [PairPrompt(*pair, instruction) for pair in zip(asked, documents, strict=True)]
    return request, pairs


def _named(request: ScoreRequest, name: str, older: str) -> tuple[str, list[str]]:
    """The field that was used, and its texts."""
    given = [one for one in (name, older) if getattr(request, one) is not None]
    if len(given) > 1:
        raise invalid(older, f"'{name}' is its other name; expected one of them")
    if not given:
        raise InvalidRequest(
            f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
        )
    texts: Texts = getattr(request, given[0])
    return given[0], [texts] if isinstance(texts, str) else texts


class ScoreAnswer:
    """A score request's answer."""

    def __init__(self, heading: Heading):
        self._heading = heading

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Whole.whole."""
        values = values_in_order(outputs)
        data = [Score(index, one[0]) for index, one in enumerate(values)]
        heading = self._heading
        return msgspec.json.encode(
            ScoreList(heading.id, heading.created, heading.model, data, usage_of(usage))
        )


class Scores:
    """POST /v1/score and its other name."""

    name = "score"

    def __init__(self, service: Service):
        self._service = service

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service, size = self._service, len(body)
        request, pairs = await worked(size, partial(read_score, body, service.config.limits))
        model = service.catalogue.resolve(request.model, caller.tenant, "rerank")
        asker = Asker(caller, model, service.config.routing.completion_key_chars, request.user)
        job = await worked(size, lambda: asker.job(self.name, map(asker.pair, pairs)))
        created = int(service.wall_clock())
        return Order(
            job, ScoreAnswer(Heading(f"score-{service.make_id()}", created, request.model))
        )
