"""Tenants are listed page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.config import GatewayConfig
from gateway.tenant_config import AdminConfig, TenantConfig
from pando.tenant_client import AdminClient
from tests.gateway.http.admin_live import ADMIN_DIGEST, ADMIN_KEY, serving

IDS = [f"tenant-{number:04}" for number in range(2101)]


def by_number(number: int) -> TenantConfig:
    return TenantConfig(IDS[number], (f"{number:064x}",))


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    tenants = tuple(by_number(number) for number in reversed(range(len(IDS))))
    config = GatewayConfig(admin=AdminConfig(port=0, keys=(ADMIN_DIGEST,)), tenants=tenants)
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with (
        serving(config) as live,
        httpx.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as client,
    ):
        yield client


async def page(http: httpx.AsyncClient, **query: object) -> tuple[list[str], bool]:
    params: dict[str, Any] = query
    told = (await http.get("/admin/tenants", params=params)).json()
    return [tenant["id"] for tenant in told["data"]], told["has_more"]


async def test_a_page_has_a_hundred_and_says_whether_there_are_more(
    http: httpx.AsyncClient,
) -> None:
    assert await page(http) == (IDS[:100], True)
    assert await page(http, after=IDS[99], limit=2) == (IDS[100:102], True)
    assert await page(http, after=IDS[-3], limit=2) == (IDS[-2:], False)
    assert await page(http, after=IDS[-1]) == ([], False)
    assert await page(http, after="tenant-0099a", limit=1) == ([IDS[100]], True)


@pytest.mark.parametrize("limit", ["0", "1001", "many"])
async def test_a_page_has_a_limit(http: httpx.AsyncClient, limit: str) -> None:
    answer = await http.get("/admin/tenants", params={"limit": limit})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")


async def test_the_command_reads_all_pages(http: httpx.AsyncClient) -> None:
    client = AdminClient(str(http.base_url), ADMIN_KEY)
    found = await asyncio.to_thread(client.tenants)
    assert [tenant["id"] for tenant in found] == IDS
