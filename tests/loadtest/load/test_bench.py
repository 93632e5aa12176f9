"""What a worker says of its memory is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.errors import FleetFailed
from loadtest.load.bench import bytes_a_token, peak_bytes, used_pages
from worker.memory import PagePlan, start_lines


def test_a_workers_own_words_are_understood() -> None:
    [line] = start_lines(PagePlan(64, 16, 23040), "off", 2048)[:1]
    assert bytes_a_token(line) == 23040
    assert used_pages("# HELP x\npando_worker_kv_used_pages 12.0\n") == 12
    assert peak_bytes("VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\n") == 2 << 20
    assert peak_bytes(Path("/proc/self/status").read_text()) > 1 << 20
    with pytest.raises(FleetFailed, match="kv_used_pages"):
        used_pages("pando_worker_kv_pages 12.0\n")
    with pytest.raises(FleetFailed, match="bytes a token"):
        bytes_a_token("nothing")
