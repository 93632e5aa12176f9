"""Tenants of several sources, and in files: read, followed, written, never all lost at once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path

import msgspec
import pytest

from gateway.errors import TenantsUnknown, Unauthenticated
from gateway.tenancy.file_source import FileSource
from gateway.tenancy.sources import Configs, Source, SourceBroken
from gateway.tenancy.tenants import Roster, Tenants
from gateway.tenancy.watch import Watch
from gateway.tenant_config import KeyConfig, TenantConfig, TenantQuota
from tests.gateway.tenancy.conftest import Seen


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


ACME = TenantConfig("acme", (digest("a"),), models=("tiny",))
GLOBEX = TenantConfig(
    "globex", (KeyConfig(digest("g"), "ci"),), quota=TenantQuota(tokens_per_minute=9)
)


def write(path: Path, *tenants: TenantConfig) -> None:
    """As an editor does: never two states of one stamp."""
    path.write_bytes(msgspec.yaml.encode({"tenants": list(tenants)}))
    os.utime(path, ns=(path.stat().st_mtime_ns,) * 2)


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


class Kept:
    """A source that gives what it is told to."""

    def __init__(self, name: str, *answers: Configs | SourceBroken | None):
        self.name = name
        self.answers = list(answers)

    async def read(self) -> Configs | None:
        answer = self.answers.pop(0)
        if isinstance(answer, SourceBroken):
            raise answer
        return answer


def by_id(*tenants: TenantConfig) -> Configs:
    return {tenant.id: tenant for tenant in tenants}


# ------------------------------------------------------------------ the roster of all sources


def watch_of(
    seen: Seen, *sources: Source, inline: tuple[TenantConfig, ...] = ()
) -> tuple[Tenants, Watch]:
    tenants = Tenants(Roster())
    return tenants, Watch(inline, sources, tenants, seen.telemetry)


async def test_without_sources_the_gateway_is_open(seen: Seen) -> None:
    tenants, watch = watch_of(seen)
    assert tenants.of(None).id == "default"
    await watch.look()
    assert tenants.of(None).id == "default"


async def test_inline_tenants_are_known_before_anything_is_looked_at(seen: Seen) -> None:
    tenants, _ = watch_of(seen, inline=(ACME,))
    assert tenants.of("Bearer a").id == "acme"
    with pytest.raises(Unauthenticated):
        tenants.of("Bearer b")


async def test_a_source_with_nobody_in_it_lets_nobody_in(seen: Seen) -> None:
    tenants, watch = watch_of(seen, Kept("file", {}))
    with pytest.raises(TenantsUnknown):
        tenants.of("Bearer a")
    await watch.look()
    with pytest.raises(Unauthenticated):
        tenants.of("Bearer a")


async def test_a_source_that_breaks_keeps_its_tenants_and_says_so_once(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    broken = SourceBroken("cannot be read")
    source = Kept("file", by_id(ACME), broken, broken, None, by_id(GLOBEX))
    tenants, watch = watch_of(seen, source)
    for _ in range(3):
        await watch.look()
        assert tenants.of("Bearer a").id == "acme"
    assert seen.metric("tenants_stale", source="file") == 1
    assert caplog.text.count("tenants_stale") == 1
    await watch.look()
    assert seen.metric("tenants_stale", source="file") == 0
    await watch.look()
    assert tenants.of("Bearer g").id == "globex"
    with pytest.raises(Unauthenticated):
        tenants.of("Bearer a")


async def test_the_stronger_source_wins_and_one_key_has_one_tenant(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    other_acme = TenantConfig("acme", (digest("other"),))
    thief = TenantConfig("thief", (digest("a"), digest("t")))
    tenants, watch = watch_of(seen, Kept("redis", by_id(other_acme, thief)), inline=(ACME,))
    await watch.look()
    assert tenants.of("Bearer a").id == "acme"
    assert tenants.of("Bearer t").id == "thief"
    with pytest.raises(Unauthenticated):
        tenants.of("Bearer other")
    assert caplog.text.count("tenant_shadowed") == 2


async def test_a_tenant_that_did_not_change_stays_the_same_object(seen: Seen) -> None:
    changed = msgspec.structs.replace(GLOBEX, weight=2.0)
    source = Kept("file", by_id(ACME, GLOBEX), by_id(ACME, changed))
    tenants, watch = watch_of(seen, source)
    await watch.look()
    acme, globex = tenants.of("Bearer a"), tenants.of("Bearer g")
    await watch.look()
    assert tenants.of("Bearer a") is acme
    assert tenants.of("Bearer g") is not globex
    assert (globex.weight, tenants.of("Bearer g").weight) == (1.0, 2.0)


# ------------------------------------------------------------------ files


async def test_a_file_is_read_when_it_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    write(path, ACME)
    source = FileSource(path, may_be_missing=False)
    assert await source.read() == by_id(ACME)
    assert await source.read() is None
    write(path, ACME, GLOBEX)
    assert await source.read() == by_id(ACME, GLOBEX)
    replacement = tmp_path / "new"
    write(replacement, GLOBEX)
    replacement.replace(path)
    assert await source.read() == by_id(GLOBEX)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["tenants.yaml", "object"]),
        ("tenants: [", ["tenants.yaml"]),
        ("tenants: [{id: acme, quota: {concurrency: 0}}]", ["tenants[0].quota.concurrency", "0"]),
        ("tenants: [{id: acme, colour: red}]", ["tenants[0]", "colour"]),
        ("tenants: [{id: acme}, {id: acme}]", ["tenants.id", "acme"]),
        ("[]", ["object"]),
    ],
)
async def test_a_broken_file_is_told_with_field_and_value(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "tenants.yaml"
    write(path, ACME)
    source = FileSource(path, may_be_missing=False)
    await source.read()
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(SourceBroken) as caught:
            await source.read()
        assert all(word in str(caught.value) for word in words), str(caught.value)
    with pytest.raises(SourceBroken):
        await source.write("globex", None, GLOBEX)
    assert path.read_text() == text
    write(path, GLOBEX)
    assert await source.read() == by_id(GLOBEX)


async def test_a_file_that_goes_is_no_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    write(path, ACME)
    source = FileSource(path, may_be_missing=True)
    await source.read()
    path.unlink()
    with pytest.raises(SourceBroken, match="missing"):
        await source.read()
    write(path, ACME, GLOBEX)
    assert await source.read() == by_id(ACME, GLOBEX)


async def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    write(path, ACME)
    source = FileSource(path, may_be_missing=False)
    await source.read()
    half = path.read_bytes()
    path.write_bytes(half[:-5])
    reading = asyncio.create_task(source.read())
    await asyncio.sleep(0.02)
    write(path, ACME, GLOBEX)
    assert await reading is None
    assert await source.read() == by_id(ACME, GLOBEX)


class WrittenWhileRead(FileSource):
    """Somebody writes the file behind its reader's back."""

    async def _load(self) -> Configs:
        configs = await super()._load()
        write(self._path, ACME, GLOBEX, TenantConfig("third"))
        return configs


async def test_what_was_read_while_it_was_written_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    write(path, ACME)
    assert await WrittenWhileRead(path, may_be_missing=False).read() is None


@pytest.mark.parametrize("name", ["tenants.yaml", "tenants.json"])
async def test_a_file_is_written_in_one_step(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    source = FileSource(path, may_be_missing=True)
    assert await source.read() == {}
    assert await source.read() is None
    assert await source.write("acme", None, ACME)
    assert path.stat().st_mode & 0o777 == 0o600
    assert await source.read() == by_id(ACME)
    path.chmod(0o640)
    assert await source.write("globex", None, GLOBEX)
    assert path.stat().st_mode & 0o777 == 0o640
    assert await source.read() == by_id(ACME, GLOBEX)
    assert not await source.write("globex", ACME, None)
    assert not await source.write("acme", None, ACME)
    assert await source.write("acme", ACME, None)
    assert await source.get("acme") is None
    assert await source.get("globex") == GLOBEX
    assert names_in(tmp_path) == [name]
    if name.endswith("json"):
        assert json.loads(path.read_text())["tenants"][0]["id"] == "globex"


async def test_a_link_to_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "tenants.yaml", tmp_path / "tenants.yaml"
    write(real, ACME)
    link.symlink_to(real)
    source = FileSource(link, may_be_missing=False)
    await source.read()
    assert await source.write("globex", None, GLOBEX)
    assert link.is_symlink()
    assert await source.read() == by_id(ACME, GLOBEX)


async def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    source = FileSource(Path("/proc/tenants.yaml"), may_be_missing=True)
    with pytest.raises(SourceBroken, match=r"/proc/tenants\.yaml can't be written"):
        await source.write("acme", None, ACME)


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "tenants.yaml"
    source = FileSource(path, may_be_missing=True)
    words = f"{path.parent}, the folder of tenants.yaml, is missing"
    with pytest.raises(SourceBroken, match=words):
        await source.read()
    with pytest.raises(SourceBroken, match=words):
        await source.write("acme", None, ACME)
    path.parent.mkdir()
    assert await source.read() == {}
    assert await source.write("acme", None, ACME)
