from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.audit import IGNORED, PINS, Pin, ignores, main, pins

Answer = Callable[[str, Any], object]
ADVISORY = {"id": "GHSA-1", "aliases": ["CVE-1"], "summary": "it can be broken"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Whoever left while it was answered is no matter."""


class Database:
    """One that answers what a test says; asked: what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Answer = self.nothing
        database = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                self._tell(json.loads(self.rfile.read(length)))

            def do_GET(self) -> None:
                self._tell(None)

            def _tell(self, asked: Any) -> None:
                database.asked.append(asked)
                told = database.answer(self.path, asked)
                body = told if isinstance(told, bytes) else json.dumps(told).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def nothing(self, path: str, asked: Any) -> object:
        return {"results": [{} for _ in asked["queries"]]}

    def one(self, **advisory: object) -> Answer:
        """An answer that finds something in starlette."""

        def answer(path: str, asked: Any) -> object:
            if path.startswith("/v1/vulns/"):
                return {**ADVISORY, **advisory}
            names = [query["package"]["name"] for query in asked["queries"]]
            return {"results": [{"vulns": [ADVISORY]} if n == "starlette" else {} for n in names]}

        return answer


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    thread = threading.Thread(target=database.server.serve_forever, args=(0.01,))
    thread.start()
    yield database
    database.server.shutdown()
    thread.join()
    database.server.server_close()


def audit(url: str, *more: str) -> int:
    return main(["--database", url, *more])


def written(path: Path, until: datetime, id_: str = "GHSA-1") -> Path:
    path.write_text(f'[[ignored]]\nid = "{id_}"\nreason = "not called"\nuntil = {until:%Y-%m-%d}\n')
    return path


def test_every_pinned_package_is_asked_for_at_its_version(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(database.url) == 0
    [asked] = database.asked
    told = {(one["package"]["name"], one["version"]) for one in asked["queries"]}
    assert ("starlette", "1.10.0") in told
    assert ("ast-serialize", "0.13.1") in told
    assert capsys.readouterr().out == f"audit: {len(told)} packages, 0 vulnerabilities\n"
    assert len(told) > 100


def test_a_finding_fails_and_is_told(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.answer = database.one()
    assert audit(database.url) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first == "starlette 1.10.0: GHSA-1 it can be broken"
    assert last.endswith(", 1 vulnerabilities")


@pytest.mark.parametrize("id_", ["GHSA-1", "CVE-1"])
def test_what_is_ignored_with_a_reason_passes_until_its_day(
    database: Database, tmp_path: Path, id_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database.answer = database.one()
    now = datetime.now(UTC)
    later = written(tmp_path / "later", now + timedelta(days=1), id_)
    assert audit(database.url, "--ignored", str(later)) == 0
    assert capsys.readouterr().out.endswith(", 0 vulnerabilities (1 ignored)\n")
    over = written(tmp_path / "over", now - timedelta(days=1), id_)
    assert audit(database.url, "--ignored", str(over)) == 1


def test_what_was_withdrawn_is_no_finding(database: Database) -> None:
    database.answer = database.one(withdrawn="2026-01-01T00:00:00Z")
    assert audit(database.url) == 0


@pytest.mark.parametrize("told", [b"not json", {}, {"results": [{}]}, {"results": "x"}])
def test_an_answer_that_means_nothing_is_no_finding_and_no_pass(
    database: Database, told: object, capsys: pytest.CaptureFixture[str]
) -> None:
    database.answer = lambda path, asked: told
    assert audit(database.url) == 0
    assert capsys.readouterr().out.startswith("audit: skipped, the database can't be reached (")


def test_who_is_not_there_or_says_nothing_is_not_waited_for(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("http://127.0.0.1:9") == 0
    over = threading.Event()
    database.answer = lambda path, asked: over.wait(30) and {}
    assert audit(database.url, "--limit-s", "0.2") == 0
    over.set()
    one, two = capsys.readouterr().out.splitlines()
    assert one == "audit: skipped, the database can't be reached (ConnectError)"
    assert two == "audit: skipped, the database can't be reached (no answer within 0.2 s)"


def test_what_is_ignored_here_has_a_reason_and_an_end(tmp_path: Path) -> None:
    assert all(one.reason for one in ignores(IGNORED))
    bad = tmp_path / "bad"
    bad.write_text('[[ignored]]\nid = "GHSA-1"\n')
    with pytest.raises(msgspec.ValidationError, match="reason"):
        ignores(bad)


def test_pins_of_all_files_count_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('A_b==1.0\nc==2 ; python_version == "3.11"\n# d==3\n')
    (tmp_path / "b").write_text("a-b==1.0 \\\n    --hash=sha256:00\nc==3\n")
    found = pins([tmp_path / "a", tmp_path / "b"])
    assert found == [Pin("a-b", "1.0"), Pin("c", "2"), Pin("c", "3")]
    assert len(pins(PINS)) > 100
