"""The routes that generate nothing, by their paths."""

from __future__ import annotations

from gateway.http.service import Route, Service
from gateway.http.values.embeddings import Embeddings
from gateway.http.values.rerank import Rerank
from gateway.http.values.score import Scores
from gateway.http.values.tokens import Detokenize, Tokenize


def values_routes(service: Service) -> dict[str, Route]:
    """Each path's route; some have several names, as clients of other servers know them."""
    rerank, scores = Rerank(service), Scores(service)
    return {
        "/v1/rerank": rerank,
        "/v2/rerank": rerank,
        "/rerank": rerank,
        "/v1/score": scores,
        "/score": scores,
        "/v1/embeddings": Embeddings(service),
        "/tokenize": Tokenize(service),
        "/detokenize": Detokenize(service),
    }
