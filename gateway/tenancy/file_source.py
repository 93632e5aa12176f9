"""Tenants in a file, YAML or JSON: `tenants:` and a list as in the gateway's configuration.

It is looked at every second and read when it is another one: time, size or inode. It counts only
when it has stood still, so that half a file is not taken for a whole one. Writing replaces it in
one step; comments are lost then.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec

from gateway.fields import explain
from gateway.tenancy.sources import Configs, SourceBroken
from gateway.tenant_config import TenantConfig, refuse_shared_keys

# A file has stood still when it is the same after so long.
_STILL_S = 0.1
_Stamp = tuple[int, int, int]


class TenantsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in the file. `tenants: []` says that there are none; an empty file is broken."""

    tenants: tuple[TenantConfig, ...]

    def __post_init__(self) -> None:
        """Refuse what no single tenant shows."""
        refuse_shared_keys(self.tenants)


class FileSource:
    """Satisfies WritableSource. may_be_missing: the file appears with the first tenant written."""

    name = "file"

    def __init__(self, path: Path, may_be_missing: bool):
        self._path = path
        self._may_be_missing = may_be_missing
        self._stamp: _Stamp | None = None
        self._known = False
        self._broken: tuple[_Stamp | None, SourceBroken] | None = None
        self._writing = asyncio.Lock()

    async def read(self) -> Configs | None:
        """As Source."""
        stamp = self._look()
        if self._known and stamp == self._stamp:
            return None
        if self._known:
            await asyncio.sleep(_STILL_S)
            if self._look() != stamp:
                return None  # being written; the next look will tell
        if self._broken is not None and self._broken[0] == stamp:
            raise self._broken[1]
        try:
            configs = await self._load()
        except SourceBroken as broken:
            self._broken = stamp, broken
            raise
        if self._look() != stamp:
            return None
        self._known, self._stamp = True, stamp
        return configs

    async def get(self, tenant: str) -> TenantConfig | None:
        """As WritableSource."""
        return (await self._load()).get(tenant)

    async def write(
        self, tenant: str, before: TenantConfig | None, after: TenantConfig | None
    ) -> bool:
        """As WritableSource; another process that writes the same file is not seen in time."""
        async with self._writing:
            configs = dict(await self._load())
            if configs.get(tenant) != before:
                return False
            if after is None:
                configs.pop(tenant, None)
            else:
                configs[tenant] = after
            try:
                await asyncio.to_thread(self._replace, tuple(configs.values()))
            except OSError as error:
                raise SourceBroken(f"{self._path} can't be written: {error.strerror}") from error
            except (ValueError, msgspec.ValidationError) as error:
                raise SourceBroken(str(error)) from error
            return True

    def _look(self) -> _Stamp | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            if not self._path.parent.is_dir():
                folder, name = self._path.parent, self._path.name
                raise SourceBroken(f"{folder}, the folder of {name}, is missing") from None
            # Gone is not empty: whoever was known stays.
            if self._may_be_missing and not self._stamp:
                return None
            raise SourceBroken(f"{self._path} is missing") from None
        except OSError as error:
            raise SourceBroken(f"{self._path} can't be read: {error.strerror}") from error
        return status.st_mtime_ns, status.st_size, status.st_ino

    async def _load(self) -> Configs:
        if self._look() is None:
            return {}
        return await asyncio.to_thread(read_tenants, self._path)

    def _replace(self, tenants: tuple[TenantConfig, ...]) -> None:
        """The file holds these tenants, and at no time anything else than old or new."""
        path = self._path.resolve()
        body = TenantsFile(tenants)
        as_json = path.suffix == ".json"
        if as_json:
            data = msgspec.json.format(msgspec.json.encode(body))
        else:
            data = msgspec.yaml.encode(body)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                Path(temporary).chmod(path.stat().st_mode & 0o777)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def read_tenants(path: Path) -> Configs:
    """The file's tenants by id. Raises SourceBroken with field, value and range."""
    decode = msgspec.json.decode if path.suffix == ".json" else msgspec.yaml.decode
    try:
        settings = decode(path.read_bytes())
    except OSError as error:
        raise SourceBroken(f"{path} can't be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SourceBroken(f"{path}: {error}") from error
    try:
        read = msgspec.convert(settings, TenantsFile)
    except msgspec.ValidationError as error:
        raise SourceBroken(f"{path}: {explain(str(error), settings, TenantsFile)}") from error
    return {tenant.id: tenant for tenant in read.tenants}
