"""What a client may try over HTTP: framing that two readers read differently, bodies that unfold,
words that end up in headers, labels or logs."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from gateway.tenancy.keys import digest_of
from gateway.tenant_config import TenantConfig
from tests.gateway.conftest import Live, Serve, StartWorker

BODY = b'{"model": "tiny", "prompt": "Hi"}'
CHUNKED = b"21\r\n" + BODY + b"\r\n0\r\n\r\n"
HIDDEN = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
# Heads that leave it open where the body ends, each with the body that one reading finds.
AMBIGUOUS: dict[str, tuple[list[bytes], bytes]] = {
    "two lengths": ([b"content-length: 33", b"content-length: 40"], BODY),
    "one length twice": ([b"content-length: 33", b"content-length: 33"], BODY),
    "a list of lengths": ([b"content-length: 33, 33"], BODY),
    "a length with a sign": ([b"content-length: +33"], BODY),
    "a length that Python reads": ([b"content-length: 3_3"], BODY),
    "a length beyond all": ([b"content-length: 99999999999999999999999"], BODY),
    "a length and chunks": ([b"content-length: 33", b"transfer-encoding: chunked"], CHUNKED),
    "chunks and a length": ([b"transfer-encoding: chunked", b"content-length: 33"], CHUNKED),
    "chunks by another name": ([b"transfer-encoding: xchunked"], CHUNKED),
    "chunks that are not last": ([b"transfer-encoding: chunked, identity"], CHUNKED),
    "two codings": ([b"transfer-encoding: chunked", b"transfer-encoding: identity"], CHUNKED),
    "a space before the colon": ([b"transfer-encoding : chunked"], CHUNKED),
    "a folded header": ([b"x-request-id: a\r\n b", b"content-length: 33"], BODY),
    "a bare return": ([b"x-a: a\rcontent-length: 0", b"content-length: 33"], BODY),
    "a zero byte": ([b"x-request-id: a\0b", b"content-length: 33"], BODY),
    "behind an offer to upgrade": (
        [
            b"connection: upgrade",
            b"upgrade: h2c",
            b"content-length: 33",
            b"transfer-encoding: chunked",
        ],
        CHUNKED,
    ),
    "a chunk of another size": (
        [b"transfer-encoding: chunked"],
        b"20\r\n" + BODY + b"\r\n0\r\n\r\n",
    ),
}


def raw(lines: list[bytes], body: bytes, path: bytes = b"/v1/completions") -> bytes:
    return b"\r\n".join([b"POST %b HTTP/1.1" % path, b"host: x", *lines, b"", body])


async def told(live: Live, sent: bytes) -> bytes:
    """All that is answered until the connection closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    try:
        writer.write(sent)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def live(start_worker: StartWorker, serve_linked: Serve) -> Live:
    return await serve_linked(await start_worker())


async def test_a_request_that_two_readers_end_differently_is_refused_and_closes(
    live: Live,
) -> None:
    taken = []
    for name, (lines, body) in AMBIGUOUS.items():
        answered = await told(live, raw(lines, body) + HIDDEN)
        if not answered.startswith(b"HTTP/1.1 400 ") or b'"code":"invalid_http"' not in answered:
            taken.append(name)
        if b'{"status":"ok"}' in answered:
            taken.append(f"what is hidden behind {name}")
    assert taken == []
    assert live.metric("accepted_requests_total") == 0


async def test_a_compressed_body_is_not_unfolded(live: Live) -> None:
    large = json.dumps({"model": "tiny", "prompt": "a" * 4_000_000}).encode()
    packed = gzip.compress(large)
    assert len(packed) < 8192
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    response = await live.http.post("/v1/completions", content=packed, headers=headers)
    assert response.status_code == 400
    assert live.metric("accepted_requests_total") == 0


async def test_no_word_of_a_client_becomes_a_header(live: Live) -> None:
    forged = "%0d%0aset-cookie:%20a=b"
    for path in (f"/v1/models/{forged}", f"/{forged}"):
        assert "set-cookie" not in (await live.http.get(path)).headers
    sent = raw([b"x-request-id: a\x0bb", b"content-length: 33", b"connection: close"], BODY)
    head = (await told(live, sent)).partition(b"\r\n\r\n")[0]
    assert b"\x0b" not in head


async def test_whoever_has_no_key_is_refused_before_a_body_is_read(
    start_worker: StartWorker, serve: Serve
) -> None:
    live = await serve(tenants=(TenantConfig("acme", (digest_of("pnd-a"),)),))
    sent = raw([b"content-length: 5000000", b"authorization: Bearer pnd-b"], b"")
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(sent)
    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    writer.close()
    await writer.wait_closed()


async def test_ids_tell_nothing_of_what_others_asked(live: Live) -> None:
    body = {"model": "tiny", "prompt": "Hi"}
    made: list[str] = []
    for _ in range(16):
        response = await live.http.post("/v1/completions", json=body)
        made += [response.json()["id"], response.headers["x-request-id"]]
    words = [one.rpartition("-")[2] for one in made]
    assert len(set(words)) == len(words)
    assert all(len(word) == 24 for word in words)
    for length in (8, 16, 20):  # no beginning is one process's, and nothing counts
        assert len({word[:length] for word in words}) == len(words)
    numbers = [int(word[-8:], 16) for word in words]
    assert numbers != sorted(numbers)


async def test_what_clients_make_up_adds_no_series(live: Live) -> None:
    def count() -> int:
        return sum(len(family.samples) for family in live.gateway.telemetry.families().collect())

    async def ask(word: str) -> None:
        headers = {
            "x-request-id": word,
            "x-pando-session": word,
            "x-pando-prefix": word,
            "authorization": f"Bearer {word}",
            "user-agent": word,
        }
        told = {"user": word, "prompt_cache_key": word, "prompt": word}
        for body in ({"model": "tiny", **told}, {"model": word, **told}, {word: 1}):
            await live.http.post("/v1/completions", json=body, headers=headers)
        await live.http.get(f"/v1/{word}", headers=headers)
        await live.http.request(word.upper(), "/v1/completions", headers=headers)

    await ask("first")
    before = count()
    for number in range(5):
        await ask(f"made-up-{number}")
    assert count() == before
    text = (await live.gateway.telemetry.exposition()).decode()
    assert "made-up" not in text
