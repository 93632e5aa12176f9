"""The OpenAPI document, made of the very types that read requests and write answers.

Fields of the protocol that do nothing here are left out: they are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from gateway.errors import ErrorBody
from gateway.fields import portable
from gateway.http import openai
from gateway.http.objects import ChatCompletion, Chunk, Completion
from gateway.http.openai import ChatRequest, CompletionRequest
from gateway.http.programs.answer import Delta, ProgramObject
from gateway.http.programs.request import ProgramRequest
from gateway.http.responses import request as responses
from gateway.http.responses.objects import Event, Response
from gateway.http.responses.request import ResponsesRequest
from gateway.http.values.embeddings import EmbeddingList, EmbeddingRequest
from gateway.http.values.rerank import Ranking, RerankRequest
from gateway.http.values.score import ScoreList, ScoreRequest
from gateway.http.values.tokens import (
    DetokenizeAnswerBody,
    DetokenizeRequest,
    TokenizeAnswerBody,
    TokenizeRequest,
)

_REF = "#/components/schemas/{name}"
_ERRORS = ("400", "401", "404", "408", "413", "429", "499", "500", "502", "503", "504")
_REFUSED = {
    "ChatRequest": openai.REFUSED.keys(),
    "CompletionRequest": openai.REFUSED.keys(),
    "ResponsesRequest": responses.REFUSED.keys(),
}


@dataclass(frozen=True, slots=True)
class _Post:
    """A route. event: what its stream consists of, None: it has none."""

    path: str
    summary: str
    request: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    event: type[msgspec.Struct] | None = None


POSTS = (
    _Post("/v1/chat/completions", "Answer a chat", ChatRequest, ChatCompletion, Chunk),
    _Post("/v1/completions", "Go on with texts", CompletionRequest, Completion, Completion),
    _Post("/v1/responses", "Answer, as items", ResponsesRequest, Response, Event),
    _Post("/v1/programs", "Run a program", ProgramRequest, ProgramObject, Delta),
    _Post("/v1/embeddings", "Embed texts", EmbeddingRequest, EmbeddingList),
    _Post("/v1/rerank", "Sort documents by relevance", RerankRequest, Ranking),
    _Post("/v1/score", "Score pairs of texts", ScoreRequest, ScoreList),
    _Post("/tokenize", "Tell a prompt's token ids", TokenizeRequest, TokenizeAnswerBody),
    _Post("/detokenize", "Tell the text of token ids", DetokenizeRequest, DetokenizeAnswerBody),
)


@cache
def document(models: type[msgspec.Struct], model: type[msgspec.Struct]) -> bytes:
    """The document as JSON. models, model: what the two routes of models answer."""
    types = [ErrorBody, models, model]
    for post in POSTS:
        types += [post.request, post.answer, *([post.event] if post.event else [])]
    _, schemas = msgspec.json.schema_components(list(dict.fromkeys(types)), ref_template=_REF)
    schemas = portable(schemas)
    for name, refused in _REFUSED.items():
        for field in refused:
            schemas[name]["properties"].pop(field, None)
    paths: dict[str, Any] = {post.path: {"post": _operation(post)} for post in POSTS}
    paths["/v1/models"] = {"get": _get("List the models that the caller may use", models)}
    paths["/v1/models/{id}"] = {
        "get": _get("Describe a model", model)
        | {
            "parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
            ]
        }
    }
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Pando", "version": _version()},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"key": []}, {}],
        }
    )


def _operation(post: _Post) -> dict[str, Any]:
    content = {"application/json": {"schema": _ref(post.answer)}}
    if post.event is not None:
        content["text/event-stream"] = {"schema": _ref(post.event)}
    return {
        "summary": post.summary,
        "operationId": post.path.removeprefix("/v1").strip("/").replace("/", "_"),
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _ref(post.request)}},
        },
        "responses": {"200": {"description": "The answer", "content": content}} | _errors(_ERRORS),
    }


def _get(summary: str, answer: type[msgspec.Struct]) -> dict[str, Any]:
    content = {"application/json": {"schema": _ref(answer)}}
    answered = {"200": {"description": "The answer", "content": content}}
    return {"summary": summary, "responses": answered | _errors(("401", "404", "503"))}


def _errors(statuses: Iterable[str]) -> dict[str, Any]:
    content = {"application/json": {"schema": _ref(ErrorBody)}}
    return {status: {"description": "Why there is none", "content": content} for status in statuses}


def _ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}


def _version() -> str:
    try:
        return version("pando")
    except PackageNotFoundError:
        return "unknown"
