"""python -m tests.audit: known vulnerabilities of what is pinned, as a public database knows them.

    audit: 113 packages, 0 vulnerabilities
    audit: skipped, the database can't be reached (ConnectError)

Exits with 1 only where something was found that .ci/audit.toml does not ignore with a reason. What
can't be asked in time is no finding: a build must not depend on somebody else's server.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import httpx
import msgspec

ROOT = Path(__file__).resolve().parents[1]
PINS = (ROOT / "constraints.txt", *sorted((ROOT / "deploy" / "docker").glob("*.requirements.txt")))
IGNORED = ROOT / ".ci" / "audit.toml"
# OSV: the advisories of PyPI, GitHub and others, asked in one piece.
DATABASE = "https://api.osv.dev"
LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """A package at the version that is installed."""

    name: str
    version: str


class Ignored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding that is no matter here, why, and until when that is believed."""

    id: str
    reason: str
    until: date


class _Ignores(msgspec.Struct, forbid_unknown_fields=True):
    ignored: tuple[Ignored, ...] = ()


class _Id(msgspec.Struct):
    id: str


class _Found(msgspec.Struct):
    vulns: list[_Id] = []


class _Answer(msgspec.Struct):
    results: list[_Found | None]


class Advisory(msgspec.Struct):
    """What is known of a vulnerability. aliases: its other names."""

    id: str
    summary: str = ""
    aliases: list[str] = []
    withdrawn: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A pinned package that has a vulnerability."""

    pin: Pin
    advisory: Advisory


class Unreachable(Exception):
    """The database did not answer in time, or not as it should."""


def pins(paths: Iterable[Path]) -> list[Pin]:
    """Every package that the files pin, once for each version."""
    text = "\n".join(path.read_text("utf-8") for path in paths)
    return sorted(
        {
            Pin(re.sub(r"[-_.]+", "-", name).lower(), version)
            for name, version in re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", text)
        }
    )


def ignores(path: Path) -> tuple[Ignored, ...]:
    """What the file ignores. Raises msgspec.ValidationError where a reason or an end lacks."""
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")), _Ignores).ignored


async def findings(packages: list[Pin], database: str, limit_s: float) -> list[Finding]:
    """What the database knows, within so many seconds. Raises Unreachable."""
    try:
        async with (
            asyncio.timeout(limit_s),
            httpx.AsyncClient(base_url=database, timeout=limit_s) as client,
        ):
            return await _ask(client, packages)
    except TimeoutError:
        raise Unreachable(f"no answer within {limit_s:g} s") from None
    except httpx.HTTPStatusError as error:
        raise Unreachable(f"it answered {error.response.status_code}") from error
    except httpx.HTTPError as error:
        raise Unreachable(type(error).__name__) from error
    except msgspec.DecodeError as error:
        raise Unreachable(f"its answer is not understood: {error}") from error


async def _ask(client: httpx.AsyncClient, packages: list[Pin]) -> list[Finding]:
    queries = [
        {"package": {"name": pin.name, "ecosystem": "PyPI"}, "version": pin.version}
        for pin in packages
    ]
    told = await client.post("/v1/querybatch", json={"queries": queries})
    results = msgspec.json.decode(told.raise_for_status().content, type=_Answer).results
    if len(results) != len(packages):
        raise Unreachable(f"it answered {len(results)} of {len(packages)} questions")
    found = []
    for pin, result in zip(packages, results, strict=True):
        for one in result.vulns if result else ():
            text = (await client.get(f"/v1/vulns/{one.id}")).raise_for_status().content
            advisory = msgspec.json.decode(text, type=Advisory)
            if advisory.withdrawn is None:
                found.append(Finding(pin, advisory))
    return found


def matter(found: Iterable[Finding], ignored: Iterable[Ignored], today: date) -> list[Finding]:
    """Those that are not ignored, or not any more."""
    known = {one.id for one in ignored if one.until >= today}
    return [one for one in found if not known & {one.advisory.id, *one.advisory.aliases}]


def main(arguments: list[str] | None = None) -> int:
    """Prints what matters, and one line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit")
    parser.add_argument("--database", default=DATABASE)
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--ignored", type=Path, default=IGNORED)
    wanted = parser.parse_args(arguments)
    packages, ignored = pins(PINS), ignores(wanted.ignored)
    try:
        found = asyncio.run(findings(packages, wanted.database, wanted.limit_s))
    except Unreachable as error:
        print(f"audit: skipped, the database can't be reached ({error})")
        return 0
    left = matter(found, ignored, datetime.now(UTC).date())
    for one in left:
        print(f"{one.pin.name} {one.pin.version}: {one.advisory.id} {one.advisory.summary}")
    told = f" ({len(found) - len(left)} ignored)" if len(found) > len(left) else ""
    print(f"audit: {len(packages)} packages, {len(left)} vulnerabilities{told}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
