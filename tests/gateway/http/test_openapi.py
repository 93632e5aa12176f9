"""The document says what is served; and nothing that it allows breaks the server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.core import NotSet
from schemathesis.core.transport import Response

from gateway.config import LinkConfig
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import Line

EXAMPLES = 15
USER = {"role": "user", "content": "x"}


async def anything(submit: pb.Submit, line: Line) -> None:
    """Whatever is wanted, a little of it."""
    output = pb.Output(request_id=submit.request_id, token_ids=b"\1\0\0\0", finish_reason=pb.STOP)
    if submit.want == pb.VALUES:
        output.values.extend([0.5, 0.25])
    for choice in range(submit.n or 1):
        output.choice = choice
        line.step(outputs=[output])
    line.done(submit.request_id)


@pytest.fixture
async def live(serve_linked: Serve, start_worker: StartWorker) -> Live:
    workers = [
        await start_worker(name=task, model=task, task=task, script=anything)
        for task in ("generate", "rerank", "embed")
    ]
    # The generator of requests keeps this process busy for seconds.
    return await serve_linked(*workers, link=LinkConfig(silence_s=120))


async def document(live: Live) -> dict[str, Any]:
    answer = await live.http.get("/openapi.json")
    assert answer.status_code == 200
    return dict(answer.json())


async def test_every_route_that_takes_a_body_is_in_the_document(live: Live) -> None:
    paths = (await document(live))["paths"]
    aliases = {"/v2/rerank", "/rerank", "/score"}
    served = {
        route.path
        for route in live.gateway.app._app.routes  # type: ignore[attr-defined]
        if "POST" in (route.methods or ())
    }
    assert served - aliases == {path for path, kinds in paths.items() if "post" in kinds}


async def test_what_is_refused_by_name_is_not_in_it(live: Live) -> None:
    schemas = (await document(live))["components"]["schemas"]
    assert "audio" not in schemas["ChatRequest"]["properties"]
    assert "previous_response_id" not in schemas["ResponsesRequest"]["properties"]
    assert schemas["ChatRequest"]["additionalProperties"] is False


async def test_what_is_answered_is_as_it_says(live: Live) -> None:
    told = json.dumps(await document(live))
    schema = schemathesis.openapi.from_dict(json.loads(told))
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {
            "model": "generate",
            "messages": [{"role": "user", "content": "x"}],
        },
        "/v1/completions": {"model": "generate", "prompt": "x"},
        "/v1/responses": {"model": "generate", "input": "x"},
        "/v1/programs": {"model": "generate", "program": [{"op": "text", "text": ["x"]}]},
        "/v1/embeddings": {"model": "embed", "input": "x", "encoding_format": "float"},
        "/v1/rerank": {"model": "rerank", "query": "x", "documents": ["a", "b"]},
        "/v1/score": {"model": "rerank", "text_1": "x", "text_2": ["a", "b"]},
        "/tokenize": {"model": "generate", "prompt": "x"},
        "/detokenize": {"model": "generate", "tokens": [1]},
    }
    posts = {path for path, kinds in json.loads(told)["paths"].items() if "post" in kinds}
    assert bodies.keys() == posts
    for path, body in bodies.items():
        for sent in (body, {**body, "model": "nobody"}, {**body, "unknown": 1}):
            answer = await live.http.post(path, json=sent)
            schema[path]["POST"].validate_response(Response.from_httpx(answer, verify=False))


async def test_nothing_that_it_allows_breaks_the_server(live: Live) -> None:
    schema = schemathesis.openapi.from_dict(await document(live))
    base = str(live.http.base_url)
    answered: dict[int, int] = {}

    def sent(case: Case[Any]) -> None:
        body = None if isinstance(case.body, NotSet) else case.body
        if isinstance(body, dict) and "model" in body and hash(str(body)) % 4:
            task = {"/v1/embeddings": "embed", "/v1/rerank": "rerank", "/v1/score": "rerank"}
            body["model"] = task.get(case.path, "generate")
        answer = httpx.request(
            case.method, base.rstrip("/") + case.formatted_path, json=body, timeout=30
        )
        answered[answer.status_code] = answered.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, (case.path, body, answer.text)
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert error.keys() == {"message", "type", "param", "code"}
            assert error["message"]
            assert error["type"]

    quick = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def all_of_it() -> None:
        for path in schema:
            for method in schema[path]:
                strategy = schema[path][method].as_strategy()
                quick(given(strategy)(sent))()

    await asyncio.to_thread(all_of_it)
    live.assert_nothing_is_left()
    assert answered[200] > EXAMPLES
    assert answered[400] > EXAMPLES
