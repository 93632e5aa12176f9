"""Embeddings of texts, as OpenAI has it."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.decoding import check_nodes, decoded, invalid
from gateway.http.inbound import worked
from gateway.http.intake import Caller
from gateway.http.openai import Label
from gateway.http.prompts import Prompts, check_prompts, prompts_of
from gateway.http.service import Order, Service
from gateway.http.values.asks import Asker, PromptUsage, usage_of, values_in_order
from gateway.request import Output, Usage, Want


class EmbeddingRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/embeddings. dimensions: only the model's own number is taken."""

    model: Label
    input: Prompts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: Label | None = None


class Embedding(Struct, frozen=True):
    """One text's vector: numbers, or the base64 of little-endian float32."""

    index: int
    embedding: Raw
    object: str = "embedding"


class EmbeddingList(Struct, frozen=True):
    """The answer."""

    model: str
    data: list[Embedding]
    usage: PromptUsage
    object: str = "list"


_decoder = msgspec.json.Decoder(EmbeddingRequest)


def read_embeddings(body: bytes, limits: LimitConfig) -> EmbeddingRequest:
    """The body within the limits. Raises InvalidRequest."""
    check_nodes(body, limits, ids=limits.prompt_ids)
    request = decoded(_decoder, body)
    if not request.input:
        raise invalid("input", "expected at least one text")
    check_prompts("input", request.input, limits.documents, limits.prompt_ids)
    return request


class EmbeddingAnswer:
    """An embeddings request's answer."""

    def __init__(self, request: EmbeddingRequest):
        self._request = request

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Whole.whole. Raises InvalidRequest where the vectors have another length."""
        request, vectors = self._request, values_in_order(outputs)
        wanted = request.dimensions
        if wanted is not None and any(len(vector) != wanted for vector in vectors):
            raise InvalidRequest(
                f"Unsupported value: 'dimensions' is {wanted}; this model's embeddings have "
                f"{len(vectors[0])}, and are not cut.",
                param="dimensions",
                code="unsupported_value",
            )
        encode = _packed if request.encoding_format == "base64" else msgspec.json.encode
        data = [Embedding(index, Raw(encode(one))) for index, one in enumerate(vectors)]
        return msgspec.json.encode(EmbeddingList(request.model, data, usage_of(usage)))


class Embeddings:
    """POST /v1/embeddings."""

    name = "embeddings"

    def __init__(self, service: Service):
        self._service = service

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service, size = self._service, len(body)
        request = await worked(size, partial(read_embeddings, body, service.config.limits))
        model = service.catalogue.resolve(request.model, caller.tenant, "embed")
        asker = Asker(caller, model, service.config.routing.completion_key_chars, request.user)
        texts = prompts_of("input", request.input)
        parts = map(partial(asker.plain, want=Want.VALUES), texts)
        job = await worked(size, lambda: asker.job(self.name, parts))
        return Order(job, EmbeddingAnswer(request))


def _packed(vector: tuple[float, ...]) -> bytes:
    """As a JSON string."""
    return b'"%b"' % base64.b64encode(struct.pack(f"<{len(vector)}f", *vector))
