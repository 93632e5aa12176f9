"""Documents in order of their relevance to a query, as Cohere and Jina have it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.config import LimitConfig
from gateway.http.decoding import check_nodes, decoded, invalid
from gateway.http.inbound import worked
from gateway.http.intake import Caller
from gateway.http.openai import Label
from gateway.http.service import Order, Service
from gateway.http.values.asks import Asker, PromptUsage, most_pairs, usage_of, values_in_order
from gateway.request import Output, PairPrompt, Usage


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """A document, where it is not a plain string."""

    text: str


class RerankRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/rerank. instruction: what makes a document relevant, if not the default.

    top_n: how many are answered. return_documents: whether their texts are; not by default.
    """

    model: Label
    query: str
    documents: Annotated[list[str | Document], Meta(min_length=1)]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool | None = None
    instruction: str | None = None
    user: Label | None = None


class Result(Struct, frozen=True):
    """A document's place in the request, and its relevance from 0 to 1."""

    index: int
    relevance_score: float
    document: Document | UnsetType = UNSET


class Ranking(Struct, frozen=True):
    """The answer: the most relevant document first; equal ones by their place."""

    id: str
    model: str
    results: list[Result]
    usage: PromptUsage
    object: str = "list"


_decoder = msgspec.json.Decoder(RerankRequest)


def read_rerank(body: bytes, limits: LimitConfig) -> RerankRequest:
    """The body within the limits. Raises InvalidRequest."""
    check_nodes(body, limits)
    request = decoded(_decoder, body)
    if len(request.documents) > limits.documents:
        raise invalid("documents", most_pairs(limits))
    return request


class RankingAnswer:
    """A rerank request's answer."""

    def __init__(self, ranking_id: str, request: RerankRequest):
        self._id = ranking_id
        self._request = request

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Whole.whole."""
        request = self._request
        scores = [values[0] for values in values_in_order(outputs)]
        best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
        results = [
            Result(
                index,
                scores[index],
                Document(_text(request.documents[index])) if request.return_documents else UNSET,
            )
            for index in best[: request.top_n]
        ]
        return msgspec.json.encode(Ranking(self._id, request.model, results, usage_of(usage)))


class Rerank:
    """POST /v1/rerank and its other names."""

    name = "rerank"

    def __init__(self, service: Service):
        self._service = service

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service, size = self._service, len(body)
        request = await worked(size, partial(read_rerank, body, service.config.limits))
        model = service.catalogue.resolve(request.model, caller.tenant, "rerank")
        asker = Asker(caller, model, service.config.routing.completion_key_chars, request.user)
        pairs = [
            PairPrompt(request.query, _text(document), request.instruction or "")
            for document in request.documents
        ]
        job = await worked(size, lambda: asker.job(self.name, map(asker.pair, pairs)))
        return Order(job, RankingAnswer(f"rerank-{service.make_id()}", request))


def _text(document: str | Document) -> str:
    return document.text if isinstance(document, Document) else document
