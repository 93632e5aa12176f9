"""Asks a gateway's admin API over HTTP; what goes wrong is a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from pando.errors import PandoError

TIMEOUT_S = 30.0
# Tenants that are asked for at once: as many as the API gives.
PAGE = 1000

# What the API gives: its JSON, as documented in docs/tenants.md.
Record = dict[str, Any]


class AdminError(PandoError):
    """The admin API could not be reached, or said no. code: its error's, if it gave one."""

    def __init__(self, text: str, code: str | None = None):
        super().__init__(text)
        self.code = code


class AdminClient:
    """Talks to one gateway. key None: the environment names none."""

    def __init__(self, url: str, key: str | None):
        self._url = url.rstrip("/")
        self._key = key

    def tenants(self) -> list[Record]:
        """All tenants, by id, however many pages they are."""
        found: list[Record] = []
        while True:
            after = {"after": found[-1]["id"]} if found else {}
            told = self._ask("GET", "/admin/tenants", query={"limit": str(PAGE), **after})
            found += told["data"]
            if not told["has_more"]:
                return found

    def tenant(self, id_: str) -> Record:
        """One tenant."""
        return self._ask("GET", _path(id_))

    def create(self, id_: str, settings: Record) -> Record:
        """A tenant that was not there before."""
        return self._ask("PUT", _path(id_), settings, headers={"if-none-match": "*"})

    def change(self, id_: str, settings: Record) -> Record:
        """The tenant as it is when what is named is so, and null its default."""
        return self._ask("PATCH", _path(id_), settings)

    def remove(self, id_: str) -> None:
        """The tenant is gone."""
        self._ask("DELETE", _path(id_))

    def add_key(self, id_: str, name: str | None, expires_in: float | None) -> Record:
        """A new key, with its text."""
        wish = {"id": name, "expires_in": expires_in}
        body = {field: value for field, value in wish.items() if value is not None}
        return self._ask("POST", f"{_path(id_)}/keys", body)

    def end_key(self, id_: str, name: str, expires_in: float | None) -> Record:
        """The key is gone, or will be."""
        query = {} if expires_in is None else {"expires_in": f"{expires_in:g}"}
        return self._ask("DELETE", f"{_path(id_)}/keys/{quote(name, safe='')}", query=query)

    def usage(self, id_: str, days: int, by: str) -> Record:
        """What the tenant used."""
        query = {"days": str(days), "by": by}
        return self._ask("GET", f"{_path(id_)}/usage", query=query)

    def _ask(
        self,
        method: str,
        path: str,
        body: Record | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Record:
        """What the API says. Raises AdminError."""
        if not self._key:
            raise AdminError("PANDO_ADMIN_KEY is not set: put the admin API's key there.")
        try:
            answer = httpx.request(
                method,
                self._url + path,
                json=body,
                params=query,
                headers={"authorization": f"Bearer {self._key}", **(headers or {})},
                timeout=TIMEOUT_S,
            )
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise AdminError(
                f"The admin API at {self._url} can't be asked ({error}): --admin-url or "
                "PANDO_ADMIN_URL names it, and the gateway's admin.port opens it."
            ) from error
        return self._read(answer)

    def _read(self, answer: httpx.Response) -> Record:
        try:
            body = answer.json()
            told = body if answer.is_success else body["error"]
            if answer.is_success and isinstance(told, dict):
                return told
            text, code = str(told["message"]), told["code"]
        except (ValueError, KeyError, TypeError) as error:
            raise AdminError(
                f"{self._url} answered with status {answer.status_code}, but not as an admin API "
                "does: is it the gateway's public port?"
            ) from error
        if code == "unknown_url":
            text += f" Is {self._url} the admin port?"
        raise AdminError(text, code)


def _path(id_: str) -> str:
    return f"/admin/tenants/{quote(id_, safe='')}"
