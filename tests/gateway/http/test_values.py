"""Rerank, score, embeddings, tokenize and detokenize, over HTTP before scripted workers."""

from __future__ import annotations

import asyncio
import base64
import itertools
import struct
from collections.abc import Iterable
from typing import Any

import pytest

from gateway.config import ForeignConfig, LimitConfig
from gateway.fleet.workers import WorkerInfo
from gateway.tenancy.keys import digest_of
from gateway.tenant_config import TenantConfig, TenantQuota
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, NoDoor, Serve, StartWorker
from tests.gateway.fake_worker import Line, failing, silence

RERANKER, EMBEDDER = "reranker", "embedder"


async def values(submit: pb.Submit, line: Line) -> None:
    """A score or an embedding that tells the prompt's length; longer ones come sooner."""
    size = len(submit.pair.document if submit.HasField("pair") else submit.text)
    await asyncio.sleep(0.05 / (1 + size))
    found = [size / 100] if submit.HasField("pair") else [size + 0.5, -1.0, 0.25]
    give(line, submit, values=found)


def give(line: Line, submit: pb.Submit, prompt: int = 7, cached: int = 3, **fields: Any) -> None:
    """One output and the end."""
    output = pb.Output(request_id=submit.request_id, finish_reason=pb.STOP, **fields)
    line.step(outputs=[output])
    line.done(submit.request_id, completion=0, prompt=prompt, cached=cached)


async def tokens(submit: pb.Submit, line: Line) -> None:
    """Two ids, or a text."""
    if submit.want == pb.TEXT:
        give(line, submit, text="the text", prompt=3, cached=0)
    else:
        give(line, submit, token_ids=struct.pack("<2i", 5, 4000), prompt=2, cached=0)


@pytest.fixture
async def live(start_worker: StartWorker, serve: Serve) -> Live:
    """A generator, two rerankers and an embedder."""
    workers = [
        await start_worker(name="g0"),
        await start_worker(name="r0", model=RERANKER, task="rerank", script=values),
        await start_worker(name="r1", model=RERANKER, task="rerank", script=values),
        await start_worker(name="e0", model=EMBEDDER, task="embed", script=values),
    ]
    live = await serve(*workers)
    await live.until_linked("g0", "r0", "r1", "e0")
    return live


async def post(live: Live, path: str, **body: Any) -> dict[str, Any]:
    response = await live.http.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def refused(live: Live, path: str, **body: Any) -> dict[str, Any]:
    response = await live.http.post(path, json=body)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
async def test_documents_come_in_order_of_relevance(live: Live, path: str) -> None:
    documents = ["bb", "aaaa", {"text": "cc"}, "d"]
    answer = await post(live, path, model=RERANKER, query="q", documents=documents)
    assert answer["model"] == RERANKER
    assert answer["id"].startswith("rerank-")
    assert [one["index"] for one in answer["results"]] == [1, 0, 2, 3]
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == pytest.approx([0.04, 0.02, 0.02, 0.01])
    assert answer["usage"] == {
        "prompt_tokens": 28,
        "total_tokens": 28,
        "prompt_tokens_details": {"cached_tokens": 12},
    }
    assert "document" not in answer["results"][0]
    live.assert_nothing_is_left()
    assert live.metric("prompt_tokens_total") == 28
    assert live.metric("completion_tokens_total") == 0


async def test_the_best_come_with_their_texts_if_asked(live: Live) -> None:
    answer = await post(
        live,
        "/v1/rerank",
        model=RERANKER,
        query="q",
        documents=["a", {"text": "bbb"}, "cc"],
        top_n=2,
        return_documents=True,
        instruction="what matters",
        user="someone",
    )
    found = [(one["index"], one["document"]) for one in answer["results"]]
    assert found == [(1, {"text": "bbb"}), (2, {"text": "cc"})]


async def test_pairs_of_one_query_name_the_same_front(
    start_worker: StartWorker, serve: Serve
) -> None:
    worker = await start_worker(model=RERANKER, task="rerank", script=values)
    live = await serve(worker)
    await live.until_linked("w0")
    body = {"model": RERANKER, "query": "q", "documents": ["a", "b"]}
    await post(live, "/v1/rerank", **body, instruction="find")
    await post(live, "/v1/rerank", **body)
    await post(live, "/v1/rerank", **{**body, "query": "other"})
    first, second, third, _, other, _ = worker.submits
    assert {submit.want for submit in worker.submits} == {pb.VALUES}
    assert (first.pair.query, first.pair.document, first.pair.instruction) == ("q", "a", "find")
    assert [one.num_messages for one in first.boundaries] == [1, 2]
    fronts = [submit.boundaries[0].digest for submit in (first, second, third, other)]
    assert fronts[0] == fronts[1]
    assert len(set(fronts)) == 3
    assert first.boundaries[1].digest != second.boundaries[1].digest


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
@pytest.mark.parametrize("names", [("queries", "documents"), ("text_1", "text_2")])
async def test_pairs_are_scored_in_their_order(
    live: Live, path: str, names: tuple[str, str]
) -> None:
    first, second = names
    for queries, documents, expected in (
        ("q", "dd", [0.02]),
        ("q", ["d", "ddd", "dd"], [0.01, 0.03, 0.02]),
        (["q"], ["d", "dd"], [0.01, 0.02]),
        (["q", "r"], ["dd", "d"], [0.02, 0.01]),
    ):
        answer = await post(live, path, model=RERANKER, **{first: queries, second: documents})
        assert answer["object"] == "list"
        assert [one["index"] for one in answer["data"]] == list(range(len(expected)))
        assert [one["score"] for one in answer["data"]] == pytest.approx(expected)
        assert answer["usage"]["total_tokens"] == 7 * len(expected)


async def test_embeddings_come_as_openai_has_them(live: Live) -> None:
    client, texts = live.openai, ["abc", "a", "ab"]
    plain = await client.embeddings.create(model=EMBEDDER, input=texts, encoding_format="float")
    packed = await client.embeddings.create(model=EMBEDDER, input=texts)
    for answer in (plain, packed):
        assert [one.index for one in answer.data] == [0, 1, 2]
        expected = [[3.5, -1.0, 0.25], [1.5, -1.0, 0.25], [2.5, -1.0, 0.25]]
        assert [one.embedding for one in answer.data] == expected
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (21, 21)
    one = await client.embeddings.create(model=EMBEDDER, input="abcd", dimensions=3)
    assert one.data[0].embedding == [4.5, -1.0, 0.25]
    raw = await post(live, "/v1/embeddings", model=EMBEDDER, input="a", encoding_format="base64")
    decoded = base64.b64decode(raw["data"][0]["embedding"])
    assert struct.unpack("<3f", decoded) == (1.5, -1.0, 0.25)


async def test_embeddings_take_token_ids(start_worker: StartWorker, serve: Serve) -> None:
    worker = await start_worker(model=EMBEDDER, task="embed", script=values)
    live = await serve(worker)
    await live.until_linked("w0")
    for ids in ([1, 2, 3], [[1, 2, 3], [4]]):
        await post(live, "/v1/embeddings", model=EMBEDDER, input=ids)
    packed = [submit.token_ids for submit in worker.submits]
    assert packed == [struct.pack("<3i", 1, 2, 3)] * 2 + [struct.pack("<i", 4)]


async def test_tokens_and_text_are_told(start_worker: StartWorker, serve: Serve) -> None:
    worker = await start_worker(script=tokens)
    live = await serve(worker)
    await live.until_linked("w0")
    told = await post(live, "/tokenize", model="tiny", prompt="some text")
    expected = {"count": 2, "max_model_len": 2048, "tokens": [5, 4000], "token_strs": None}
    assert told == expected
    messages = [{"role": "user", "content": "hi"}]
    kwargs = {"x": 1}
    assert expected == await post(
        live, "/tokenize", model="tiny", messages=messages, chat_template_kwargs=kwargs
    )
    text = await post(live, "/detokenize", model="tiny", tokens=[1, 2, 3])
    assert text == {"prompt": "the text"}
    plain, chat, ids = worker.submits
    assert (plain.want, plain.text) == (pb.TOKENS, "some text")
    assert (chat.want, bytes(chat.chat.messages)) == (
        pb.TOKENS,
        b'[{"role":"user","content":"hi"}]',
    )
    assert (ids.want, ids.token_ids) == (pb.TEXT, struct.pack("<3i", 1, 2, 3))
    assert live.metric("completion_tokens_total") == 0
    live.assert_nothing_is_left()


PAIR = {"query": "q", "documents": ["d"]}
WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("/v1/rerank", {"query": "q"}, "documents", "Missing"),
    ("/v1/rerank", {**PAIR, "documents": []}, "documents", "length >= 1"),
    ("/v1/rerank", {**PAIR, "documents": ["d"] * 5}, "documents", "at most 4"),
    ("/v1/rerank", {**PAIR, "documents": [{"text": "d", "id": 1}]}, "documents[0].id", "Unknown"),
    ("/v1/rerank", {**PAIR, "documents": [3]}, "documents[0]", "str"),
    ("/v1/rerank", {**PAIR, "top_n": 0}, "top_n", ">= 1"),
    ("/v1/rerank", {**PAIR, "truncate_prompt_tokens": 5}, "truncate_prompt_tokens", "Unknown"),
    ("/v1/rerank", {**PAIR, "stream": True}, "stream", "Unknown"),
    ("/v1/score", {"queries": "q"}, "documents", "Missing"),
    ("/v1/score", {"queries": "q", "text_1": "q", "text_2": "d"}, "text_1", "other name"),
    ("/v1/score", {"queries": ["q", "r"], "documents": ["d"]}, "queries", "1 text or as many"),
    ("/v1/score", {"queries": "q", "documents": []}, "documents", "at least one"),
    ("/v1/score", {"queries": "q", "documents": ["d"] * 5}, "documents", "at most 4"),
    ("/v1/embeddings", {"input": []}, "input", "at least one"),
    ("/v1/embeddings", {"input": ["a", 1]}, "input", "lists of token ids"),
    ("/v1/embeddings", {"input": [[1], []]}, "input[1]", "at least one id"),
    ("/v1/embeddings", {"input": ["a"] * 5}, "input", "at most 4"),
    ("/v1/embeddings", {"input": [1] * 9}, "input", "at most 8 token ids"),
    ("/v1/embeddings", {"input": "a", "encoding_format": "int8"}, "encoding_format", "enum"),
    ("/v1/embeddings", {"input": "a", "dimensions": 2}, "dimensions", "not cut"),
    ("/tokenize", {}, "prompt", "either"),
    ("/tokenize", {"prompt": "a", "messages": [{"role": "user"}]}, "prompt", "either"),
    ("/tokenize", {"prompt": "a", "add_special_tokens": False}, "add_special_tokens", "true"),
    ("/tokenize", {"prompt": "a", "return_token_strs": True}, "return_token_strs", "false"),
    (
        "/tokenize",
        {"prompt": "a", "tools": [{"type": "function", "function": {"name": "f"}}]},
        "tools",
        "messages",
    ),
    ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content", "string"),
    ("/detokenize", {"tokens": []}, "tokens", "length >= 1"),
    ("/detokenize", {"tokens": [-1]}, "tokens[0]", ">= 0"),
    ("/detokenize", {"tokens": [1] * 9}, "tokens", "at most 8"),
]


@pytest.mark.parametrize(("path", "body", "param", "says"), WRONG)
async def test_what_is_wrong_is_told_with_its_field(
    start_worker: StartWorker,
    serve: Serve,
    path: str,
    body: dict[str, Any],
    param: str,
    says: str,
) -> None:
    task = "embed" if "embed" in path else "rerank"
    worker = await start_worker(task=task, script=values)
    live = await serve(worker, limits=LimitConfig(documents=4, prompt_ids=8))
    await live.until_linked("w0")
    error = await refused(live, path, model="tiny", **body)
    assert error["param"] == param
    assert says in error["message"]
    live.assert_nothing_is_left()
    if param != "dimensions":
        assert not worker.submits


async def test_a_model_of_another_task_is_refused_before_anything_is_sent(live: Live) -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    wrong: Iterable[tuple[str, str, dict[str, Any], str]] = [
        ("/v1/rerank", "tiny", PAIR, "This model generates text; it doesn't rerank."),
        ("/v1/score", EMBEDDER, {"queries": "q", "documents": "d"}, "it doesn't rerank."),
        ("/v1/embeddings", "tiny", {"input": "a"}, "generates text; it doesn't embed."),
        ("/v1/embeddings", RERANKER, {"input": "a"}, "a query and a document; it doesn't embed."),
        ("/v1/chat/completions", RERANKER, chat, "it doesn't generate."),
        ("/v1/completions", EMBEDDER, {"prompt": "a"}, "This model embeds texts; it doesn't"),
        ("/v1/responses", EMBEDDER, {"input": "a"}, "This model embeds texts; it doesn't"),
    ]
    for path, model, body, says in wrong:
        error = await refused(live, path, model=model, **body)
        assert error["param"] == "model"
        assert says in error["message"]
    assert live.metric("accepted_requests_total") == 0
    assert {one["id"] for one in (await live.http.get("/v1/models")).json()["data"]} == {
        "tiny",
        RERANKER,
        EMBEDDER,
    }


async def test_under_one_name_each_request_finds_the_worker_of_its_task(
    start_worker: StartWorker, serve: Serve
) -> None:
    reranker = await start_worker(name="r0", task="rerank", script=values)
    generator = await start_worker(name="g0")
    live = await serve(reranker, generator)
    await live.until_linked("r0", "g0")
    await post(live, "/v1/rerank", model="tiny", query="q", documents=["d"] * 8)
    for number in range(4):
        await post(live, "/v1/completions", model="tiny", prompt=f"{number}")
    assert [submit.want for submit in reranker.submits] == [pb.VALUES] * 8
    assert [submit.want for submit in generator.submits] == [pb.GENERATION] * 4
    live.assert_nothing_is_left()


async def test_a_foreign_server_is_not_asked(serve: Serve) -> None:
    live = await serve(foreign=(ForeignConfig(url="http://127.0.0.1:9", name="f0", model="far"),))
    fleet = live.gateway.fleet
    fleet.join(WorkerInfo("f0", "1", "far", resumes=False), NoDoor())
    for path, body in (
        ("/v1/rerank", PAIR),
        ("/v1/embeddings", {"input": "a"}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [1]}),
    ):
        error = await refused(live, path, model="far", **body)
        assert error["param"] == "model"
        assert "generate only" in error["message"]


async def test_what_a_worker_refuses_is_told(start_worker: StartWorker, serve: Serve) -> None:
    says = "The pair of query and document has 900 tokens; this model takes at most 512."
    script = failing(pb.CONTEXT_LENGTH_EXCEEDED, says, "documents")
    live = await serve(await start_worker(model=RERANKER, task="rerank", script=script))
    await live.until_linked("w0")
    error = await refused(live, "/v1/rerank", model=RERANKER, **PAIR)
    assert error["code"] == "context_length_exceeded"
    assert (error["param"], error["message"]) == ("documents", says)
    live.assert_nothing_is_left()


async def test_a_lost_worker_costs_no_document(start_worker: StartWorker, serve: Serve) -> None:
    turn = itertools.count()

    async def half(submit: pb.Submit, line: Line) -> None:
        if next(turn) % 2:
            await silence(submit, line)
        await values(submit, line)

    dying = await start_worker(name="r0", model=RERANKER, task="rerank", script=half)
    other = await start_worker(name="r1", model=RERANKER, task="rerank", script=values)
    live = await serve(dying, other)
    await live.until_linked("r0", "r1")
    documents = ["d" * size for size in range(1, 25)]

    async def ask(query: str) -> dict[str, Any]:
        return await post(live, "/v1/rerank", model=RERANKER, query=query, documents=documents)

    asked = [asyncio.create_task(ask(f"query {number}")) for number in range(6)]
    await live.until(lambda: len(dying.submits) >= 24 and len(dying.ended) >= 12)
    await dying.stop()
    for answer in await asyncio.gather(*asked):
        assert [one["index"] for one in answer["results"]] == list(range(23, -1, -1))
    assert live.metric("retries_total") > 0
    live.assert_nothing_is_left()


async def test_a_hang_up_frees_all(start_worker: StartWorker, serve: Serve) -> None:
    worker = await start_worker(model=RERANKER, task="rerank", script=silence)
    live = await serve(worker)
    await live.until_linked("w0")
    body = {"model": RERANKER, "query": "q", "documents": ["d"] * 10}
    asked = asyncio.create_task(live.http.post("/v1/rerank", json=body))
    await live.until(lambda: len(worker.submits) == 10)
    asked.cancel()
    await live.until(lambda: len(worker.cancels) == 10)
    await live.until(lambda: live.gateway.fleet.in_flight == 0)
    live.assert_nothing_is_left()


async def test_quotas_hold_for_them(start_worker: StartWorker, serve: Serve) -> None:
    worker = await start_worker(model=RERANKER, task="rerank", script=values)
    quota = TenantQuota(tokens_per_minute=100)
    tenant = TenantConfig("acme", (digest_of("pnd-test"),), quota=quota)
    live = await serve(worker, tenants=(tenant,))
    await live.until_linked("w0")
    body = {"model": RERANKER, "query": "q" * 100, "documents": ["d"] * 3}
    key = {"authorization": "Bearer pnd-test"}
    first = await live.http.post("/v1/rerank", json=body, headers=key)
    assert first.status_code == 200
    # 26 tokens each by estimate; 7 each were used.
    assert first.headers["x-ratelimit-remaining-tokens"] == "22"
    second = await live.http.post("/v1/rerank", json=body | {"documents": ["d"] * 4}, headers=key)
    assert second.status_code == 429
