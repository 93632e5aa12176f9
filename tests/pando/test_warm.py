"""`pando warm`, against a small server that keeps what it was asked as a cache does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from pando.command import app
from pando.errors import WarmFailed
from pando.warm import Gateway
from pando.warm_file import Declared

Run = Callable[..., Result]
SYSTEM = {"role": "system", "content": "You are the guide of this forest. " * 5}
PREFIXES: list[dict[str, Any]] = [
    {"name": "guide", "messages": [SYSTEM]},
    {"prompt": "Once upon a time " * 10, "model": "other"},
]


class FakeGateway(ThreadingHTTPServer):
    """Ten tokens of each prompt are never cached; forgets: caches nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.models = ["tiny"]
        self.forgets = False
        self.busy = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: FakeGateway

    def do_GET(self) -> None:
        self._answer(200, {"data": [{"id": name} for name in self.server.models]})

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if server.busy:
            server.busy -= 1
            self._answer(503, {"error": {"message": "No worker yet."}})
            return
        if "refuse" in body:
            self._answer(400, {"error": {"message": "Unknown field: refuse."}})
            return
        prompt = json.dumps(body.get("messages", body.get("prompt")))
        seen = any(prompt == json.dumps(b.get("messages", b.get("prompt"))) for b in server.bodies)
        server.bodies.append({**body, "path": self.path})
        server.keys.append(self.headers["authorization"])
        cached = len(prompt) - 10 if seen and not server.forgets else 0
        details = {"cached_tokens": cached}
        self._answer(
            200, {"usage": {"prompt_tokens": len(prompt), "prompt_tokens_details": details}}
        )

    def _answer(self, status: int, body: object) -> None:
        told = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(told)))
        self.send_header("x-pando-worker", "w3")
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    server = FakeGateway()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def run(gateway: FakeGateway, tmp_path: Path) -> Run:
    (tmp_path / "prefixes.json").write_text(json.dumps(PREFIXES))

    def invoke(*words: str, status: int = 0, file: str = "prefixes.json") -> Result:
        environment = {"PANDO_API_KEY": "pnd-x", "PANDO_BASE_URL": f"{gateway.url}/v1"}
        named = ["warm", str(tmp_path / file), *words]
        result = CliRunner().invoke(app, named, env=environment)
        assert result.exit_code == status, result.output
        return result

    return invoke


def test_each_prefix_is_asked_for_twice_with_one_token(run: Run, gateway: FakeGateway) -> None:
    told = run().stdout.splitlines()
    assert [body["path"] for body in gateway.bodies] == [
        *["/v1/chat/completions"] * 2,
        *["/v1/completions"] * 2,
    ]
    assert [body["model"] for body in gateway.bodies] == ["tiny", "tiny", "other", "other"]
    assert {body["max_tokens"] for body in gateway.bodies} == {1}
    assert "name" not in gateway.bodies[0]
    assert set(gateway.keys) == {"Bearer pnd-x"}
    first = len(json.dumps([SYSTEM]))
    assert told[0] == (
        f"guide: {first - 10} of {first} tokens come from the cache on w3; 0 did before."
    )
    assert told[1].startswith("prefix 2: ")
    total = first + len(json.dumps(PREFIXES[1]["prompt"]))
    assert (
        told[2] == f"Asked for again, {(total - 20) / total:.1%} of all tokens came from a cache."
    )


def test_the_last_runs_rate_is_compared_and_a_low_one_fails(
    run: Run, gateway: FakeGateway, tmp_path: Path
) -> None:
    state = str(tmp_path / "state.json")
    run("--state", state)
    assert "% in the last run." in run("--state", state).stdout
    gateway.forgets = True
    result = run("--state", state, "--least", "0.9", status=1)
    assert "came from a cache: less than the" in result.stdout
    assert "the hit rate is 0.000, below --least 0.9." in result.stderr
    assert json.loads(Path(state).read_text())["hit_rate"] == 0.0
    run("--state", state, "--least", "0")


@pytest.mark.parametrize("suffix", ["yaml", "jsonl"])
def test_other_forms_of_the_file_say_the_same(
    run: Run, gateway: FakeGateway, tmp_path: Path, suffix: str
) -> None:
    text = json.dumps({"prefixes": PREFIXES})  # YAML as well
    if suffix == "jsonl":
        text = "\n".join(json.dumps(one) for one in PREFIXES) + "\n"
    (tmp_path / f"other.{suffix}").write_text(text)
    run(file=f"other.{suffix}")
    assert len(gateway.bodies) == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[", "Expecting value"),
        ("[]", "a list of prefixes is expected"),
        ('[{"messages": [], "prompt": "x"}]', "prefix 1 must have either messages or prompt."),
        ('[{"prompt": "x", "n": 2}]', "prefix 1 has n: one token is asked for"),
        ('["x"]', "prefix 1 is no object"),
        (
            '[{"prompt": "x", "refuse": 1}]',
            "prefix 1: /v1/completions answered with status 400: Un",
        ),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    run: Run, tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    assert sentence in run(file="bad.json", status=1).stderr


def test_a_state_that_is_none_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("my notes")
    assert "is no state" in run("--state", str(tmp_path / "notes"), status=1).stderr
    assert (tmp_path / "notes").read_text() == "my notes"


def test_without_one_model_the_sentence_lists_them(run: Run, gateway: FakeGateway) -> None:
    gateway.models = ["a", "b"]
    assert "Models served: a, b." in run(status=1).stderr
    run("--model", "a")


def test_a_gateway_that_is_not_ready_is_waited_for(gateway: FakeGateway) -> None:
    now, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds
        pauses.append(seconds)

    one = Declared("x", "/v1/completions", {"prompt": "x"})
    with httpx.Client(base_url=gateway.url, trust_env=False) as http:
        gateway.busy = 3
        asked = Gateway(http, 10, lambda: now[0], sleep)
        assert asked.ask(one, "tiny").worker == "w3"
        assert len(pauses) == 3
        gateway.busy = 100
        with pytest.raises(WarmFailed, match="status 503: No worker yet"):
            asked.ask(one, "tiny")
        assert now[0] == 10
