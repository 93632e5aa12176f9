"""One real worker that writes itself into Redis, two gateways that find it there over mTLS."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import msgspec
import pytest

from gateway.tenancy.keys import digest_of
from pando.children import Child, Children
from pando.ports import free_ports
from tests.end_to_end.conftest import MODEL, ROOT
from tests.gateway.store.redis_server import RedisServer
from tests.worker.test_tls import make_authority, make_certificate

KEY = {"authorization": "Bearer pnd-test"}


@dataclass
class Site:
    urls: list[str]
    admin: str
    redis: RedisServer
    children: Children
    gateways: list[Child]


@pytest.fixture(scope="module")
def site(smollm2_folder: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    make_authority(folder, "ours")
    for name in ("worker", "gateway"):
        make_certificate(folder, name, "ours")
    redis = RedisServer(folder)
    redis.start()
    with ExitStack() as stack:
        stack.callback(redis.stop)
        children = stack.enter_context(Children(folder / "logs", ROOT))
        command = [sys.executable, "-m", "worker", "--name", "w0", "--model", MODEL]
        command += ["--registry-url", redis.url, "--kv-memory", "128MiB"]
        command += ["--tls-cert", str(folder / "worker.pem"), "--tls-client-ca"]
        command += [str(folder / "ours.pem"), "--tls-key", str(folder / "worker.key")]
        children.start("worker", command)
        *ports, admin = free_ports(3)
        gateways = []
        for number, port in enumerate(ports):
            settings = {
                "name": f"gateway-{number}",
                "redis": {"url": redis.url, "workers": True, "refresh_s": 0.2, "timeout_s": 2},
                "admin": {"port": admin, "keys": [digest_of("adm")]} if not number else {},
                "link": {
                    "tls": {
                        "ca": str(folder / "ours.pem"),
                        "cert": str(folder / "gateway.pem"),
                        "key": str(folder / "gateway.key"),
                    }
                },
            }
            path = folder / f"gateway-{number}.yaml"
            path.write_bytes(msgspec.yaml.encode(settings))
            flags = ["--config", str(path), "--port", str(port)]
            gateways.append(
                children.start(f"gateway-{number}", [sys.executable, "-m", "gateway", *flags])
            )
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        site = Site(urls, f"http://127.0.0.1:{admin}", redis, children, gateways)
        eventually(lambda: all(linked(url) for url in urls), children)
        add_tenant(site)
        yield site


def add_tenant(site: Site) -> None:
    headers = {"authorization": "Bearer adm"}
    record = {"id": "acme", "keys": [digest_of("pnd-test")], "quota": {"concurrency": 3}}
    put = httpx.put(f"{site.admin}/admin/tenants/acme", json=record, headers=headers)
    assert put.status_code in (200, 201), put.text
    eventually(lambda: all(ask(url, max_tokens=0).status_code == 400 for url in site.urls))


def eventually(condition: object, children: Children | None = None) -> None:
    assert callable(condition)
    end = time.monotonic() + 90
    while not condition():
        dead = children.dead() if children else None
        assert dead is None, f"{dead.name} ended: {dead.last_lines()}" if dead else ""
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.1)


def linked(url: str) -> bool:
    try:
        return bool(httpx.get(f"{url}/ready").json()["ready"])
    except (httpx.TransportError, KeyError):
        return False


def ask(url: str, **more: object) -> httpx.Response:
    body = {"model": MODEL, "prompt": "One, two,", "max_tokens": 2, "temperature": 0, **more}
    return httpx.post(f"{url}/v1/completions", json=body, headers=KEY, timeout=60)


def long_one(url: str) -> httpx.Response:
    """One that runs while all the others ask."""
    return ask(url, max_tokens=100, ignore_eos=True)


def tenant(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pando.command", "tenant", *words]
    environment = {"PANDO_ADMIN_URL": site.admin, "PANDO_ADMIN_KEY": "adm"}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )


def test_a_tenant_is_known_to_both_gateways_and_has_one_limit(site: Site) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: long_one(site.urls[number % 2]), range(16)))
    passed = [answer for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert 3 <= len(passed) <= 4
    assert len({answer.json()["choices"][0]["text"] for answer in passed}) == 1
    listed = tenant(site, "list")
    assert listed.returncode == 0, listed.stderr
    assert "acme" in listed.stdout


def test_without_redis_requests_go_on_and_when_it_returns_so_does_the_registry(
    site: Site,
) -> None:
    site.redis.stop()
    try:
        eventually(lambda: ask(site.urls[0]).status_code == 200)
        metrics = httpx.get(f"{site.urls[0]}/metrics").text
        assert "pando_gateway_store_degraded 1.0" in metrics
    finally:
        site.redis.start()
    eventually(
        lambda: "pando_gateway_store_degraded 0.0" in httpx.get(f"{site.urls[0]}/metrics").text
    )
    assert all(linked(url) for url in site.urls)
    eventually(lambda: site.redis.command("ZCARD", "pando:workers") == ":1", site.children)
