"""`pando tenant` against a live admin API in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pando.command import app
from pando.ports import free_ports
from pando.tenant_text import BadValue, columns, parse_duration, parse_limit
from tests.gateway.http.admin_live import ADMIN_DIGEST, ADMIN_KEY

ROOT = Path(__file__).resolve().parents[2]
LIVE = ROOT / "tests" / "gateway" / "http" / "admin_live.py"

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def admin_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway's admin API with a tenants file, and one tenant in its configuration."""
    folder = tmp_path_factory.mktemp("admin")
    config = {
        "tenants": [{"id": "inline", "keys": ["ab" * 32]}],
        "tenants_file": str(folder / "tenants.yaml"),
        "admin": {"port": 0, "keys": [ADMIN_DIGEST]},
    }
    (folder / "gateway.json").write_text(json.dumps(config))
    process = subprocess.Popen(
        [sys.executable, str(LIVE), str(folder / "gateway.json")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.kill()
    process.communicate()


@pytest.fixture
def run(admin_url: str) -> Run:
    """Runs `pando tenant ...` with the key and the URL in the environment."""

    def invoke(*words: str, status: int = 0, **environment: str) -> Result:
        settings = {"PANDO_ADMIN_URL": admin_url, "PANDO_ADMIN_KEY": ADMIN_KEY, **environment}
        result = CliRunner().invoke(app, ["tenant", *words], env=settings)
        assert result.exit_code == status, result.output
        return result

    return invoke


def shown(run: Run, tenant: str) -> dict[str, object]:
    return dict(json.loads(run("show", tenant, "--json").stdout))


def test_a_tenants_life(run: Run) -> None:
    made = run(
        *("add", "acme", "--model", "tiny", "--model", "small", "--weight", "2"),
        *("--priority", "high", "--tokens-per-minute", "10_000", "--concurrency", "4"),
        *("--policy", "dedicated", "--policy-worker", "w0", "--debug"),
        *("--cache-share", "0.25", "--cache-cap", "0.5"),
    )
    assert made.stdout.startswith("pnd-")
    assert len(made.stdout.splitlines()) == 1
    assert "shown this once" in made.stderr
    assert "Warning: models names 'small', which no worker serves now." in made.stderr
    assert "Warning: policy.workers names 'w0'" in run("set", "acme", "--weight", "2").stderr
    text = run("show", "acme").stdout
    assert "tiny, small" in text
    assert "10000 tokens a minute, 4 at once" in text
    assert "dedicated (w0)" in text
    assert "keeps 25%, at most 50% unused" in text
    assert made.stdout.strip() not in text

    run("set", "acme", "--tokens-per-minute", "none", "--model", "none", "--max-queued", "7")
    after = shown(run, "acme")
    assert after["quota"] == {"concurrency": 4, "max_queued": 7}
    assert (after["models"], after["weight"], after["debug"]) == (None, 2.0, True)
    assert after["policy"] is not None
    run("set", "acme", "--policy-worker", "w1", "--policy-worker", "w2")
    assert "dedicated (w1, w2)" in run("show", "acme").stdout
    run("set", "acme", "--policy", "shuffle_shard", "--shard-size", "3")
    assert "shuffle_shard (3)" in run("show", "acme").stdout
    run("set", "acme", "--policy", "least_loaded")
    assert "least_loaded" in run("show", "acme").stdout
    run("set", "acme", "--policy", "none", "--no-debug", "--namespace", "shared")
    after = shown(run, "acme")
    assert (after["policy"], after["debug"], after["namespace"]) == (None, False, "shared")

    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["tenant", "kept", "in", "priority", "weight", "keys", "quota"]
    assert lines[1].split()[:5] == ["acme", "file", "high", "2", "1"]
    assert lines[2].split()[:2] == ["inline", "inline"]
    assert "is gone" in run("remove", "acme", "--yes").stderr
    assert "no tenant 'acme'" in run("show", "acme", status=1).stderr


def test_keys_come_and_go(run: Run) -> None:
    run("add", "keyed", "--no-key")
    first = run("key", "add", "keyed", "--name", "ci", "--expires-in", "30d")
    assert first.stdout.startswith("pnd-")
    assert "Key ci of keyed, until" in first.stderr
    second = run("rotate", "keyed", "--keep-old", "12h", "--name", "ci2").stdout
    assert second != first.stdout
    lines = run("key", "list", "keyed").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["key", "ci", "ci2"]
    assert "ci (expires" in run("key", "expire", "keyed", "ci", "--in", "1h").stderr
    assert "Key ci is gone" in run("key", "expire", "keyed", "ci").stderr
    assert [key["id"] for key in json.loads(run("key", "list", "keyed", "--json").stdout)] == [
        "ci2"
    ]
    run("remove", "keyed", "--yes")


def test_usage_is_a_table(run: Run) -> None:
    lines = run("usage", "inline", "--days", "3").stdout.splitlines()
    assert lines[0].split() == ["day", "requests", "prompt", "of", "it", "cached", "completion"]
    assert lines[-1].split() == ["total", "0", "0", "0", "0"]


def test_removing_asks_first(run: Run) -> None:
    run("add", "doubtful", "--no-key")
    refused = run("remove", "doubtful", status=1)
    assert "Nothing was removed" in refused.stderr or "Aborted" in refused.stderr
    assert shown(run, "doubtful")["id"] == "doubtful"
    run("remove", "doubtful", "--yes")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("add", "inline"), "tenant 'inline' is kept in the inline configuration"),
        (("add", "x y"), "id is 'x y'"),
        (("add", "new", "--priority", "urgent"), "priority is 'urgent'"),
        (("add", "new", "--concurrency", "many"), "concurrency is 'many'"),
        (("add", "new", "--concurrency", "0"), "quota.concurrency is 0"),
        (("add", "new", "--policy-worker", "w0"), "policy.workers is ['w0']"),
        (("set", "nobody", "--weight", "2"), "no tenant 'nobody'"),
        (("key", "add", "inline", "--expires-in", "soon"), "'soon' is no duration"),
        (("key", "expire", "inline", "none"), "kept in the inline configuration"),
        (("usage", "inline", "--by", "year"), "by is 'year'"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(run: Run, words: tuple[str, ...], sentence: str) -> None:
    result = run(*words, status=1)
    assert result.stderr.startswith("pando tenant ")
    assert sentence.lower() in result.stderr.lower(), result.stderr
    assert result.stdout == ""


def test_without_a_key_or_with_a_wrong_one_it_says_so(run: Run) -> None:
    assert "PANDO_ADMIN_KEY is not set" in run("list", status=1, PANDO_ADMIN_KEY="").stderr
    assert "needs one of its own keys" in run("list", status=1, PANDO_ADMIN_KEY="no").stderr


def test_where_nobody_listens_or_somebody_else_does_it_says_so(run: Run) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert "PANDO_ADMIN_URL names it" in run("list", status=1, PANDO_ADMIN_URL=nowhere).stderr
    assert "can't be asked" in run("list", "--admin-url", "nonsense", status=1).stderr

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        other = f"http://127.0.0.1:{server.server_port}"
        assert "not as an admin API" in run("list", status=1, PANDO_ADMIN_URL=other).stderr
        server.shutdown()
        thread.join()


def test_it_loads_neither_a_gateway_nor_a_worker() -> None:
    program = (
        "import sys, pando.command; "
        "print({'grpc', 'starlette', 'torch', 'gateway', 'worker'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1.5h", 5400), ("30d", 2_592_000)]
)
def test_durations_have_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "0s", "-1h", "1w", "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="no duration"):
        parse_duration(text)


def test_limits_are_numbers_or_none() -> None:
    assert parse_limit("concurrency", "none") is None
    assert parse_limit("concurrency", "10_000") == 10_000
    with pytest.raises(BadValue, match="concurrency is 'x'"):
        parse_limit("concurrency", "x")


def test_columns_stand_under_one_another() -> None:
    assert columns(("who", "n"), [("a", "1"), ("long", "1,000")]) == [
        "who       n",
        "a         1",
        "long  1,000",
    ]
    assert columns(("who", "n"), []) == ["who  n"]
