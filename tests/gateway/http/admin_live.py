"""A tenancy with its admin API, served on a port; a process by `python admin_live.py CONFIG`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from gateway.config import GatewayConfig, load
from gateway.fleet.workers import Fleet
from gateway.http.admin import AdminService, build_admin
from gateway.http.admin_server import serving_admin
from gateway.http.catalogue import Catalogue
from gateway.telemetry.log import EventLog
from gateway.tenancy.assembly import Surroundings, Tenancy, build_tenancy

ADMIN_KEY = "adm-secret"
ADMIN_DIGEST = hashlib.sha256(ADMIN_KEY.encode()).hexdigest()


@dataclass(frozen=True)
class LiveAdmin:
    """What serves, and where."""

    tenancy: Tenancy
    fleet: Fleet
    url: str


@asynccontextmanager
async def serving(config: GatewayConfig) -> AsyncIterator[LiveAdmin]:
    log = EventLog(logging.getLogger("gateway"))
    tenancy = build_tenancy(config, Surroundings(CollectorRegistry(), log))
    fleet = Fleet()
    catalogue = Catalogue(fleet, config.aliases)
    app = build_admin(AdminService(config, tenancy.directory, catalogue, log, lambda: "made"))
    listener = socket.create_server(("127.0.0.1", config.admin.port or 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with tenancy.serving(), serving_admin(app, listener, config.limits, log):
        yield LiveAdmin(tenancy, fleet, url)


async def _serve_for_ever(config: GatewayConfig) -> None:
    async with serving(config) as live:
        print(live.url, flush=True)
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(_serve_for_ever(load(Path(sys.argv[1]), {})))
