"""The process: it says where it listens, becomes ready, and leaves when told to."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

import httpx

from gateway.tenancy.keys import digest_of
from tests.gateway.conftest import StartWorker
from tests.gateway.fake_worker import endless


async def gateway(*flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *flags, stderr=asyncio.subprocess.PIPE
    )


async def listening_port(process: asyncio.subprocess.Process, event: str = "listening") -> int:
    assert process.stderr is not None
    wanted = f" {event} host=127.0.0.1 port=(\\d+)".encode()
    async with asyncio.timeout(30):
        async for line in process.stderr:
            if found := re.search(wanted, line):
                return int(found[1])
    raise AssertionError("it ended")


async def until_ready(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if (await http.get("/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)


async def test_it_serves_from_its_flags_and_leaves_at_a_signal_with_a_stream_open(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    worker = await start_worker(script=endless)
    settings = tmp_path / "gateway.yaml"
    settings.write_text("shutdown_s: 600\n")
    process = await gateway(
        *("--config", str(settings), "--port", "0", "--shutdown-s", "0.5"),
        *("--worker", f"w0={worker.address}"),
    )
    port = await listening_port(process)
    base = f"http://127.0.0.1:{port}"
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    async with httpx.AsyncClient(base_url=base, trust_env=False) as http:
        await until_ready(http)
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.headers["x-pando-worker"] == "w0"
            lines = response.aiter_lines()
            await anext(lines)
            process.send_signal(signal.SIGTERM)
            told = [line async for line in lines if line.startswith("data: ")]
            _, log = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode in (0, -signal.SIGTERM)
    assert '"code":"shutting_down"' in told[-1]
    assert b" request_ended " in log
    assert b"status=503 outcome=shutting_down" in log
    assert b"Traceback" not in log


async def test_a_tenant_made_by_the_admin_api_may_ask_at_once(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    worker = await start_worker()
    settings = tmp_path / "gateway.yaml"
    settings.write_text(
        f"tenants_file: {tmp_path / 'tenants.yaml'}\n"
        f"admin: {{port: 0, keys: [{digest_of('admin')}]}}\n"
        "shutdown_s: 1.0\n"
    )
    process = await gateway(
        "--config", str(settings), "--port", "0", "--worker", f"w0={worker.address}"
    )
    port = await listening_port(process)
    admin_port = await listening_port(process, "admin_listening")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    tenants = f"http://127.0.0.1:{admin_port}/admin/tenants"
    by_admin = {"authorization": "Bearer admin"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        await until_ready(http)
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 401
        limits = {"quota": {"requests_per_minute": 1}}
        await http.put(f"{tenants}/acme", json=limits, headers=by_admin)
        key = (await http.post(f"{tenants}/acme/keys", headers=by_admin)).json()["key"]
        asking = {"authorization": f"Bearer {key}"}
        answers = [
            await http.post("/v1/chat/completions", json=body, headers=asking) for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert (await http.get("/admin/tenants", headers=by_admin)).status_code == 404
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode in (0, -signal.SIGTERM)
    assert b" key_added " in log
    assert key.encode() not in log
    assert b"Traceback" not in log


async def test_a_gateway_that_looks_for_no_worker_says_so() -> None:
    for flags, is_told in (([], True), (["--worker", "127.0.0.1:9"], False)):
        process = await gateway("--port", "0", *flags)
        base = f"http://127.0.0.1:{await listening_port(process)}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=30) as http:
            assert (await http.get("/ready")).status_code == 503
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), 30)
        assert (b" warning no_workers_named reason=" in log) == is_told


async def test_a_wrong_setting_ends_it_with_a_sentence() -> None:
    process = await gateway("--port", "70000")
    _, log = await process.communicate()
    assert process.returncode == 2
    assert log.startswith(b"gateway: port is 70000: ")
    assert b"Traceback" not in log
