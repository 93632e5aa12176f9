"""python -m tests.deploy.dashboards: the dashboards over a real fleet, as pictures.

rules       what promtool says of the chart's alerts, and which of them fired
panel ...   a panel, or a target of one, that shows nothing, and why
dashboards: panels=34 empty=0 silent_targets=2 rules=16 rules_broken=0
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from pando.children import Children
from tests.deploy.charting import CHART
from tests.deploy.dashboards import monitored
from tests.deploy.dashboards.board import Board, shown
from tests.deploy.dashboards.drawing import draw
from tests.deploy.dashboards.fleet import Fleet, running
from tests.deploy.dashboards.load import Clients
from tests.deploy.dashboards.server import (
    Prometheus,
    PrometheusMissing,
    Span,
    check_rules,
    serving,
)

ROOT = Path(__file__).resolve().parents[3]
PICTURES = ROOT / "docs" / "pictures"
INTERVAL_S, NUM_CLIENTS = 2, 6
# What shows nothing on a fleet that is well, by a word of its expression.
REASONS = {
    "pando_gateway_cache_gaps_total": "no cache events were missed",
    "pando_worker_failed_sequences_total": "no step failed",
}


def main() -> int:
    """Starts, loads, reads and draws; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.dashboards")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pando-dashboards-") as name:
        folder = Path(name)
        try:
            return observe(folder, wanted.seconds, wanted.pictures)
        except PrometheusMissing as error:
            print(f"dashboards: skipped, {error}")
            return 0


def observe(folder: Path, seconds: float, pictures: Path) -> int:
    """A fleet under load for so long, and what its dashboards show of it."""
    with Children(folder / "logs", ROOT, grace_s=20) as children:
        with running(children, folder) as fleet:
            config = monitored.write(folder, fleet.targets, INTERVAL_S)
            print(f"rules    {check_rules(folder / 'rules.json')}")
            with serving(children, config) as prometheus:
                begin = time.time()
                statuses = asyncio.run(load(fleet, seconds))
                print(f"answers  {statuses}")
                span = Span(begin, time.time(), INTERVAL_S, 10 * INTERVAL_S)
                boards = [
                    shown(path, prometheus, span)
                    for path in sorted((CHART / "dashboards").glob("*.json"))
                ]
                broken = judged(prometheus)
        for board in boards:
            draw(board, span, pictures / f"dashboard-{board.name}.svg")
    return told(boards, broken)


async def load(fleet: Fleet, seconds: float) -> dict[str, int]:
    """Clients ask for so long; in the middle a worker is killed, and comes back."""
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(
        base_url=fleet.url, timeout=120, trust_env=False, limits=limits
    ) as http:
        clients = Clients(http, random.Random(1))
        tasks = [asyncio.create_task(clients.run(number)) for number in range(NUM_CLIENTS)]
        victim = next(iter(fleet.workers))
        await asyncio.sleep(seconds / 2)
        fleet.kill(victim)
        await asyncio.sleep(seconds / 20)
        fleet.start(victim)
        await asyncio.sleep(seconds * 9 / 20)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return dict(sorted(clients.statuses.items()))


def judged(prometheus: Prometheus) -> list[str]:
    """Alerts that can't be evaluated, and targets that aren't read; says which alerts fired."""
    rules = prometheus.rules()
    fired = sorted(rule["name"] for rule in rules if rule["state"] != "inactive")
    print(f"rules    {len(rules)} evaluated, pending or firing: {', '.join(fired) or 'none'}")
    wrong = [f"{it['name']}: {it['lastError']}" for it in rules if it["health"] != "ok"]
    return [*wrong, *prometheus.down()]


def told(boards: Sequence[Board], broken: Sequence[str]) -> int:
    """Prints what shows nothing, and the counts; 1 where no reason is known for it."""
    unexplained = empty = silent = 0
    for board in boards:
        for panel in board.panels:
            for expression in panel.silent:
                why = next((it for word, it in REASONS.items() if word in expression), None)
                print(f"panel    {board.name}: {panel.title}: {why or 'UNEXPLAINED'}: {expression}")
                silent += 1
                unexplained += why is None
            empty += not panel.lines
    for text in broken:
        print(f"broken   {text}")
    panels = sum(len(board.panels) for board in boards)
    counts = f"panels={panels} empty={empty} silent_targets={silent}"
    print(f"dashboards: {counts} unexplained={unexplained} broken={len(broken)}")
    return 1 if unexplained or broken else 0


if __name__ == "__main__":
    sys.exit(main())
