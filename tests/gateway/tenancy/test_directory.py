"""What is written is what can be read, whoever asks for it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.errors import Conflict
from gateway.store.memory import MemoryStore
from gateway.tenancy.directory import Directory
from gateway.tenancy.file_source import FileSource
from gateway.tenancy.tenants import Roster, Tenants
from gateway.tenancy.watch import Watch
from gateway.tenant_config import MAX_KEYS, KeyConfig, TenantConfig, TenantQuota
from tests.gateway.tenancy.conftest import Seen

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Kept:
    """A directory over a file of tenants."""

    def __init__(self, path: Path, seen: Seen) -> None:
        self.path = path
        source = FileSource(path, may_be_missing=True)
        watch = Watch((), [source], Tenants(Roster()), seen.telemetry)
        usage = MemoryStore(15.0, time.monotonic)
        self.directory = Directory(watch, source, usage, NOW.timestamp)

    async def on_file(self) -> dict[str, TenantConfig]:
        """What a gateway finds that starts now."""
        read = await FileSource(self.path, may_be_missing=False).read()
        assert read is not None
        return dict(read)


@pytest.fixture
def kept(tmp_path: Path, seen: Seen) -> Kept:
    return Kept(tmp_path / "tenants.json", seen)


def keys(count: int, **others: datetime) -> tuple[KeyConfig, ...]:
    return tuple(KeyConfig(f"{number:064x}", f"k{number}", **others) for number in range(count))


async def test_a_key_too_many_is_refused_and_harms_no_other_tenant(kept: Kept) -> None:
    await kept.directory.put(TenantConfig("other"), keep_keys=True)
    await kept.directory.put(TenantConfig("acme", keys(MAX_KEYS - 1)), keep_keys=False)
    await kept.directory.add_key("acme", "last", None)
    with pytest.raises(Conflict, match="at most 100") as caught:
        await kept.directory.add_key("acme", "beyond", None)
    assert caught.value.code == "too_many_keys"
    await kept.directory.put(TenantConfig("third"), keep_keys=True)
    found = await kept.on_file()
    assert set(found) == {"other", "acme", "third"}
    assert len(found["acme"].keys) == MAX_KEYS


async def test_keys_that_expired_give_way_to_a_new_one_and_others_stay(kept: Kept) -> None:
    live = keys(MAX_KEYS - 2)
    gone = tuple(
        KeyConfig(f"{number:064x}", f"gone{number}", expires_at=NOW - timedelta(seconds=seconds))
        for number, seconds in ((900, 0), (901, 5))
    )
    await kept.directory.put(TenantConfig("acme", (*gone, *live)), keep_keys=False)
    new = await kept.directory.add_key("acme", "new", NOW + timedelta(days=1))
    assert (await kept.on_file())["acme"].all_keys == (*live, new.config)


async def test_keys_that_expired_stay_while_there_is_room(kept: Kept) -> None:
    await kept.directory.put(
        TenantConfig("acme", keys(3, expires_at=NOW - timedelta(days=1))), keep_keys=False
    )
    await kept.directory.add_key("acme", "new", None)
    assert len((await kept.on_file())["acme"].keys) == 4


@pytest.mark.parametrize(
    "beyond",
    [
        TenantConfig("acme", quota=TenantQuota(concurrency=0)),
        TenantConfig("acme", weight=-1.0),
        TenantConfig("acme", keys(MAX_KEYS + 1)),
        TenantConfig("acme", namespace="a b"),
    ],
)
async def test_nothing_is_written_that_cannot_be_read(kept: Kept, beyond: TenantConfig) -> None:
    acme = TenantConfig("acme")
    await kept.directory.put(acme, keep_keys=False)
    with pytest.raises(Conflict):
        await kept.directory.put(beyond, keep_keys=False)
    with pytest.raises(Conflict):
        await kept.directory.patch("acme", lambda _: beyond)
    assert (await kept.on_file()) == {"acme": acme}


async def test_what_is_written_is_what_was_asked_for(kept: Kept) -> None:
    asked = replace(
        TenantConfig("acme", keys(2, created_at=NOW, expires_at=NOW + timedelta(hours=1))),
        models=("tiny",),
        weight=2.5,
    )
    listed = await kept.directory.put(asked, keep_keys=False)
    assert listed.config == asked
    assert (await kept.on_file())["acme"] == asked
