"""What `python -m loadtest run` is asked for, as one value, and what its words mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from loadtest.errors import LoadTestError
from loadtest.load.arrivals import Arrival, Closed, Open, Replayed, parsed_ramp
from loadtest.load.figures import Slo
from loadtest.load.runs import Course
from loadtest.load.samples import Head
from loadtest.load.sending import Plan

DEFAULT_CONCURRENCY = 4
# Never written down.
_SECRET = ("keys",)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The command's options, under their names."""

    workload: str
    settings: list[str] | None = None
    url: str | None = None
    compare_url: str | None = None
    model: str | None = None
    keys: list[str] | None = None
    prefix_cache: str = "radix"
    compare_prefix_cache: str | None = None
    workers: int = 1
    rate: float | None = None
    ramp: str | None = None
    burstiness: float = 1.0
    concurrency: int | None = None
    speed: float | None = None
    think_s: float = 0.0
    live_answers: bool = False
    ignore_eos: bool = False
    rounds: int = 1
    seed: int = 0
    slo_ttft: float | None = None
    slo_tpot: float | None = None
    out: Path = Path("reports/load")

    @property
    def slo(self) -> Slo:
        """What an answer must keep."""
        return Slo(self.slo_ttft, self.slo_tpot)

    def course(self) -> Course:
        """Returns how it is sent. Raises LoadTestError."""
        _at_most_one(
            {
                "--compare-url": self.compare_url,
                "--compare-prefix-cache": self.compare_prefix_cache,
            }
        )
        plan = Plan(self._arrival(), self.think_s, self.live_answers, self.seed)
        return Course(plan, self.seed, self.rounds)

    def head(self, targets: Mapping[str, str]) -> Head:
        """Returns the line that says what was asked for, without keys."""
        given = {
            field.name: getattr(self, field.name)
            for field in msgspec.structs.fields(self)
            if field.name not in _SECRET
        }
        said = {name: str(value) for name, value in given.items() if value not in (None, [])}
        return Head(workload=self.workload, seed=self.seed, settings=said, targets=dict(targets))

    def _arrival(self) -> Arrival:
        _at_most_one(
            {
                "--rate": self.rate,
                "--ramp": self.ramp,
                "--concurrency": self.concurrency,
                "--speed": self.speed,
            }
        )
        if self.rate is not None:
            return Open(self.rate, burstiness=self.burstiness)
        if self.ramp is not None:
            return parsed_ramp(self.ramp, self.burstiness)
        if self.speed is not None:
            return Replayed(self.speed)
        return Closed(self.concurrency or DEFAULT_CONCURRENCY)


def _at_most_one(options: Mapping[str, object]) -> None:
    """Raises LoadTestError where several of them are given."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise LoadTestError(f"{' and '.join(given)}: only one of them")


def keys_of(given: Sequence[str], everybody: str) -> dict[str, str]:
    """Returns keys by tenant from TENANT=KEY; everybody: of those without one, or empty.

    Raises LoadTestError, which does not say the key.
    """
    found = {"": everybody} if everybody else {}
    for pair in given:
        tenant, separator, key = pair.partition("=")
        if not separator or not key:
            raise LoadTestError(f"a --key of {len(pair)} characters: TENANT=KEY is expected")
        found[tenant] = key
    return found
