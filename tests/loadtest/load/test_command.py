"""The command, from its words to its files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from loadtest.__main__ import app
from loadtest.errors import LoadTestError
from loadtest.load.arrivals import Closed, Open, Replayed
from loadtest.load.asked import Asked, keys_of
from loadtest.load.samples import read
from tests.loadtest.load.server import serving

SHORT = ["short", "--set", "num_prompts=4", "--set", "output_tokens=3"]


def test_a_run_against_any_server_leaves_samples_figures_and_the_page(tmp_path: Path) -> None:
    with serving() as server, serving() as other:
        words = ["run", *SHORT, "--url", server.url, "--compare-url", other.url, "--rounds", "2"]
        words += [
            "--rate",
            "200",
            "--key",
            "=secret-key",
            "--slo-ttft",
            "30",
            "--out",
            str(tmp_path),
        ]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert [len(one.bodies) for one in (server, other)] == [8, 8]
        assert set(server.keys) == {"Bearer secret-key"}
    last = done.stdout.splitlines()[-1]
    assert last.startswith("run: requests=8 failed=0 ttft_p50=")
    assert "_ratio=" in last
    recording = read(tmp_path / "samples.jsonl")
    assert len(recording.samples) == 16
    assert recording.head.targets == {"A": server.url, "B": other.url}
    assert recording.head.settings["rate"] == "200.0"
    written = [path.read_text("utf-8") for path in tmp_path.iterdir()]
    assert not any("secret-key" in text for text in written)
    told = CliRunner().invoke(
        app, ["report", f"{tmp_path}/samples.jsonl", "--out", f"{tmp_path}/2"]
    )
    assert told.exit_code == 0, told.output
    again = msgspec.json.decode((tmp_path / "2" / "figures.json").read_bytes())
    assert again["figures"]["A"]["within_slo"] == 8


def test_what_cannot_be_done_ends_with_a_sentence() -> None:
    for words, sentence in (
        (["run", "nothing", "--url", "http://127.0.0.1:9"], "workload 'nothing' is none of"),
        (["run", *SHORT, "--url", "http://127.0.0.1:9"], "names no model"),
        (["run", *SHORT, "--rate", "1", "--ramp", "1:2"], "--rate and --ramp: only one of them"),
        (
            ["run", *SHORT, "--compare-url", "http://x", "--compare-prefix-cache", "off"],
            "--compare-url and --compare-prefix-cache: only one of them",
        ),
        (["run", *SHORT, "--out", __file__], "File exists"),
        (["report", "none.jsonl"], "no samples of a load test"),
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 1
        assert sentence in done.stderr


def test_every_workload_is_shown_with_its_parameters() -> None:
    shown = CliRunner().invoke(app, ["workloads"], env={"COLUMNS": "200"}).stdout
    assert "generated-shared-prefix" in shown
    assert "prompts_per_group=16" in shown


def test_ways_of_arriving_are_chosen_by_their_option() -> None:
    cases = {
        Asked(workload="chat"): Closed(4),
        Asked(workload="chat", concurrency=9): Closed(9),
        Asked(workload="chat", rate=2.0, burstiness=0.5): Open(2.0, burstiness=0.5),
        Asked(workload="chat", ramp="1:3"): Open(1.0, 3.0),
        Asked(workload="trace", speed=8.0): Replayed(8.0),
    }
    for asked, arrival in cases.items():
        assert asked.course().plan.arrival == arrival


def test_keys_are_by_tenant_and_never_told() -> None:
    assert keys_of(["a=1", "=2=3"], "4") == {"": "2=3", "a": "1"}
    assert keys_of([], "") == {}
    with pytest.raises(LoadTestError) as raised:
        keys_of(["verysecret"], "")
    assert "verysecret" not in str(raised.value)
