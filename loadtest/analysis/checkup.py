"""The doctor over a log: what in the prompts keeps them from being shared, beside an ideal cache.

The cache holds all that was ever sent, so all that is said is of the prompts themselves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import msgspec

from gateway.doctor.doctor import Asked, Doctor, DoctorSettings
from gateway.doctor.finding import Finding, Reason
from gateway.doctor.prompt import ChatParts, TextParts
from gateway.doctor.served import Served
from gateway.fleet.departures import Departure
from gateway.routing.prefix import Scope, chat_chain, text_chain, token_chain
from loadtest.analysis.findings import Ailment, Checkup
from loadtest.analysis.forms import Blocks, Chat, Ids, Prompt, Text

REMEMBERED_PARTS = 100_000
LEAD_CHARS = 2048
LEAD_IDS = 512
MAX_AILMENTS = 12
_NAMESPACE = b"log"
_TENANT = "log"
# Nothing is wrong with these prompts.
_WELL = (Reason.HIT, Reason.NEVER_SEEN, Reason.UNEXAMINED, Reason.TOO_SHORT)
_plain = msgspec.json.Encoder()


class IdealCache:
    """One worker that holds everything for ever. Satisfies Fleetwide."""

    def incarnation(self, worker: str) -> str:  # noqa: ARG002
        """As Fleetwide."""
        return "only"

    def holds(self, worker: str, digest: bytes) -> bool:  # noqa: ARG002
        """As Fleetwide."""
        return True

    def num_tokens(self, worker: str, digest: bytes) -> int:  # noqa: ARG002
        """As Fleetwide; what was seen is never missing here."""
        return 0

    def departure(self, worker: str, digest: bytes) -> Departure | None:  # noqa: ARG002
        """As Fleetwide."""
        return None


@dataclass(slots=True)
class _Cases:
    """Prompts of one reason and place."""

    first: int
    finding: Finding
    requests: int = 0
    lost_tokens: int = 0
    places: Counter[str] = field(default_factory=Counter)


class Examination:
    """Takes a log's prompts one by one. key: of the doctor's digests, random and kept nowhere."""

    def __init__(self, key: bytes):
        settings = DoctorSettings(remember=REMEMBERED_PARTS, examinations_per_s=1e12)
        self._doctor = Doctor(settings, key, IdealCache())
        self._reasons: Counter[str] = Counter()
        self._cases: dict[tuple[str, str], _Cases] = {}
        self._number = 0

    def take(self, prompt: Prompt, prompt_tokens: int, cached_tokens: int) -> Finding | None:
        """One more prompt, and what an ideal cache had of it; None: only its blocks are known."""
        number, self._number = self._number, self._number + 1
        if isinstance(prompt, Blocks):
            return None
        asked = _question(prompt)
        if not asked.chain.digests:
            return None
        now = float(number)
        visit = self._doctor.asked(asked, now)
        served = Served(prompt_tokens, cached_tokens, "cache", "only", "hit")
        finding = self._doctor.answered(visit, served, now)
        self._reasons[finding.reason.value] += 1
        if finding.reason not in _WELL:
            self._note(finding, number)
        return finding

    def outcome(self) -> Checkup:
        """What there is to mend, the dearest first."""
        dearest = sorted(self._cases.values(), key=lambda one: -one.lost_tokens)
        ailments = [
            Ailment(
                reason=one.finding.reason.value,
                place=one.places.most_common(1)[0][0],
                requests=one.requests,
                lost_tokens=one.lost_tokens,
                request=one.first + 1,
                sentence=one.finding.sentence,
            )
            for one in dearest[:MAX_AILMENTS]
        ]
        return Checkup(dict(self._reasons.most_common()), ailments)

    def _note(self, finding: Finding, number: int) -> None:
        is_static = finding.name in ("tools", "messages[0]", "prompt")
        group = finding.reason.value, finding.name if is_static else "later"
        cases = self._cases.setdefault(group, _Cases(number, finding))
        cases.requests += 1
        cases.lost_tokens += finding.lost_tokens
        cases.places[finding.place] += 1


def _question(prompt: Chat | Text | Ids) -> Asked:
    """The prompt as the gateway would ask it."""
    if isinstance(prompt, Chat):
        scope = Scope(prompt.model, _NAMESPACE)
        tools = _plain.encode(prompt.tools) if prompt.tools else b""
        chain = chat_chain(scope, prompt.messages, tools, prompt.variables)
        parts = partial(ChatParts, _plain.encode(prompt.messages), tools)
        return Asked(_TENANT, prompt.model, _NAMESPACE, chain, parts)
    scope = Scope("", _NAMESPACE)
    if isinstance(prompt, Ids):
        chain = token_chain(scope, prompt.ids.tobytes(), LEAD_IDS)
        return Asked(_TENANT, "", _NAMESPACE, chain)
    chain = text_chain(scope, prompt.text, LEAD_CHARS)
    text = partial(TextParts, prompt.text, chain.places)
    return Asked(_TENANT, "", _NAMESPACE, chain, text)
