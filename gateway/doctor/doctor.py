"""Why a prompt missed: asked before it is computed, answered with what came from the cache. Pure.

    visit = doctor.asked(prompt, now)                 what of it was seen, what the rest resembles
    finding = doctor.answered(visit, served, now)     why it came from the cache, or did not

Between the two nothing is held but the visit; a visit that is never answered costs nothing. Time is
a parameter, and so are the key of all digests and what is known of the workers (`Fleetwide`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from gateway.doctor.allowance import Allowance
from gateway.doctor.finding import Finding, Reason
from gateway.doctor.history import (
    TELLING_CHARS,
    Fault,
    Fresh,
    History,
    leads_of,
    part_lead,
)
from gateway.doctor.likeness import Likeness
from gateway.doctor.memory import Memory, Sight
from gateway.doctor.prompt import Parts
from gateway.doctor.recent import Recent
from gateway.doctor.served import Fleetwide, Seen, Served, whereabouts
from gateway.doctor.shape import PartShape, PartText, Shaper
from gateway.routing.prefix import Chain

# Of one prompt: parts that are given a shape, characters in them, and parts that are remembered.
MAX_SHAPES = 64
# A longer prompt takes milliseconds to take apart, in which nothing else is done.
MAX_PROMPT_BYTES = 1024 * 1024
MAX_SHAPED_CHARS = 49_152
MAX_NOTED = 256
# Parts from the end of what was seen whose use is noted, besides the first ones.
TOUCHED = 8
# Fewer tokens are within a page or two, and no fault.
MIN_LOST_TOKENS = 32
# Where tokens are only estimated from bytes, that may be off by so much.
ESTIMATE_SLACK = 0.25
# What a part takes in the memory, on average.
BYTES_PER_PART = 3072
_EXCERPT = 48


@dataclass(frozen=True, slots=True)
class DoctorSettings:
    """remember: parts of prompts. examinations_per_s: prompts whose new parts are looked at.

    show_text: findings have the text around their place.
    """

    remember: int = 20_000
    examinations_per_s: float = 200.0
    show_text: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt as the doctor is asked. parts None: only its chain is known.

    is_whole: the tokens that are told later are those of the chain; a program's are of all steps.
    """

    tenant: str
    model: str
    namespace: bytes
    chain: Chain
    parts: Callable[[], Parts] | None = None
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Visit:
    """A prompt between question and answer. depth: boundaries of it that were seen before.

    outcome: of the examination, `made`, `left_out` or `too_long`; "" where nothing was to be looked
    at. name: of the part with the fault.
    """

    asked: Asked
    owner: bytes
    depth: int
    seen: Seen | None
    fault: Fault | None
    outcome: str = ""
    name: str = ""
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class _New:
    """What an examination found of the parts from a depth on."""

    shapes: list[PartShape]
    names: list[str]
    fault: Fault | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where what was seen of a prompt ends, and whose it is."""

    owner: bytes
    depth: int


class Doctor:
    """Lives in one event loop, or in one analysis. key: of its digests, random and kept nowhere."""

    def __init__(self, settings: DoctorSettings, key: bytes, fleet: Fleetwide):
        self._settings = settings
        self._fleet = fleet
        self._shaper = Shaper(key)
        self.memory = Memory(settings.remember, settings.remember * BYTES_PER_PART)
        self._history = History(self.memory)
        self.allowance = Allowance(settings.examinations_per_s)
        self.recent = Recent()
        self._tag = lru_cache(4096)(self._digest)

    def asked(self, asked: Asked, now: float) -> Visit:
        """What is known of the prompt; it is remembered from now on."""
        owner = self._tag(asked.tenant, asked.model, asked.namespace)
        digests = asked.chain.digests
        depth = self._depth(owner, digests)
        sight = self.memory.get(owner + digests[depth - 1]) if depth else None
        seen = None
        if sight is not None:
            seen = Seen(sight.worker, sight.incarnation, sight.at, sight.computed_at)
        new, outcome = None, ""
        if depth < len(digests) and asked.parts is not None:
            if asked.chain.num_bytes > MAX_PROMPT_BYTES:
                outcome = "too_long"
            elif self.allowance.take(now):
                outcome, new = "made", self._examined(asked, owner, depth, asked.parts())
            else:
                outcome = "left_out"
        self.memory.use([owner + digests[at] for at in _touched(depth)], now)
        if outcome != "left_out":  # else its next request would find it seen, and without a shape
            self._remember(asked, Place(owner, depth), new, now)
        if new is None or new.fault is None:
            return Visit(asked, owner, depth, seen, None, outcome)
        name = _INSTEAD.get(new.fault.like.detail) or new.names[new.fault.part - depth]
        return Visit(asked, owner, depth, seen, new.fault, outcome, name, new.excerpt)

    def answered(self, visit: Visit, served: Served, now: float) -> Finding:
        """Why the prompt came from a cache, or did not; it is noted for its tenant."""
        finding = self._finding(visit, served, now)
        digests, depth = visit.asked.chain.digests, visit.depth
        new = range(depth, min(len(digests), depth + MAX_NOTED))
        for at in (*_touched(depth), *new):
            sight = self.memory.get(visit.owner + digests[at])
            if sight is not None:
                sight.worker, sight.incarnation = served.worker, served.incarnation
                sight.computed_at = now
        return self.recent.note(visit.asked.tenant, finding, now)

    # ------------------------------------------------------------------ asked

    def _digest(self, tenant: str, model: str, namespace: bytes) -> bytes:
        state = hashlib.blake2b(digest_size=8)
        for one in (tenant.encode(), model.encode(), namespace):
            state.update(len(one).to_bytes(4, "little") + one)
        return state.digest()

    def _depth(self, owner: bytes, digests: tuple[bytes, ...]) -> int:
        """The deepest boundary that was seen."""
        get = self.memory.get
        for depth in range(len(digests), 0, -1):
            if get(owner + digests[depth - 1]) is not None:
                return depth
        return 0

    def _examined(self, asked: Asked, owner: bytes, depth: int, parts: Parts) -> _New:
        """The new parts' shapes, and what they resemble."""
        digests = asked.chain.digests
        shapes: list[PartShape] = []
        names: list[str] = []
        first, num_chars = None, 0
        for index in range(depth, min(len(digests), depth + MAX_SHAPES)):
            part = parts.part(index)
            first = first or part
            shapes.append(self._shaper.shape(part))
            names.append(part.name)
            num_chars += len(part.text)
            if num_chars > MAX_SHAPED_CHARS:
                break
        assert first is not None, "something is new"
        beginning = digests[depth - 1] if depth else b""
        is_text = first.window is not None
        fresh = Fresh(owner, beginning, depth, shapes, parts.num_static, is_text)
        fault = self._history.fault(fresh)
        if fault is None and not depth:
            fault = self._kin(asked, owner, shapes[0])
        return _New(shapes, names, fault, self._excerpt(first, fault))

    def _kin(self, asked: Asked, owner: bytes, shape: PartShape) -> Fault | None:
        """The same beginning under another namespace of the tenant, or of another model."""
        if shape.num_chars < TELLING_CHARS:
            return None
        for lead, like in zip(self._kin_leads(asked, shape), (_NAMESPACE, _MODEL), strict=True):
            key = self.memory.lead(lead)
            sight = self.memory.get(key)
            if sight is not None and not key.startswith(owner):
                return Fault(like, 0, 1, sight.at)
        return None

    def _kin_leads(self, asked: Asked, shape: PartShape) -> tuple[bytes, bytes]:
        """Under what a beginning is found in all namespaces of a model, and for all models."""
        everywhere = self._tag(asked.tenant, asked.model, b"")
        every_model = self._tag(asked.tenant, "", asked.namespace)
        return everywhere + b"kin" + shape.form, every_model + b"kin" + shape.form

    def _excerpt(self, part: PartText, fault: Fault | None) -> str:
        if not self._settings.show_text or fault is None or fault.like.offset is None:
            return ""
        place = fault.like.offset
        return part.text[max(place - _EXCERPT // 2, 0) : place + _EXCERPT]

    def _remember(self, asked: Asked, place: Place, new: _New | None, now: float) -> None:
        """Every new part of the prompt was seen now and can be found."""
        memory, chain, owner = self.memory, asked.chain, place.owner
        digests, depth = chain.digests, place.depth
        before = owner + digests[depth - 1] if depth else b""
        for index in range(depth, min(len(digests), depth + MAX_NOTED)):
            key, offset = owner + digests[index], index - depth
            shape = new.shapes[offset] if new and offset < len(new.shapes) else None
            name = new.names[offset] if new and offset < len(new.names) else ""
            size = chain.sizes[index] - (chain.sizes[index - 1] if index else 0)
            memory.put(key, Sight(index, name, size, now, before=before, shape=shape))
            if before and (sight := memory.get(before)) is not None:
                sight.behind = key
            if shape is not None:
                self._lead(owner, digests[index - 1] if index else b"", key, shape)
            before = key
        if new is not None and not depth:
            for lead in self._kin_leads(asked, new.shapes[0]):
                memory.put_lead(lead, owner + digests[0])

    def _lead(self, owner: bytes, beginning: bytes, key: bytes, shape: PartShape) -> None:
        for digest in leads_of(owner, beginning, shape):
            self.memory.put_lead(digest, key)
        if shape.num_chars >= TELLING_CHARS or shape.tools:
            self.memory.put_lead(part_lead(owner, shape), key)

    # ------------------------------------------------------------------ answered

    def _finding(self, visit: Visit, served: Served, now: float) -> Finding:
        if not served.has_cache:
            return Finding(Reason.CACHE_OFF, served.cached_tokens, served.prompt_tokens)
        missing, is_unserved = self._missing(visit, served)
        lost = self._lost(visit, served)
        if is_unserved and missing >= lost and visit.seen is not None:
            digests = visit.asked.chain.digests[: visit.depth]
            found = whereabouts(visit.seen, digests, served, self._fleet, now)
            worker = visit.seen.worker
            return Finding(
                found.reason,
                served.cached_tokens,
                served.prompt_tokens,
                detail=found.detail,
                age_s=found.age_s,
                lost_tokens=missing,
                worker=worker,
            )
        if lost and visit.fault is not None:
            return replace(
                _of_fault(visit, visit.fault, lost, now),
                cached_tokens=served.cached_tokens,
                prompt_tokens=served.prompt_tokens,
            )
        return self._plain(visit, served, now)

    def _plain(self, visit: Visit, served: Served, now: float) -> Finding:
        """Nothing is wrong: it came from the cache, or is new."""
        cached, prompt = served.cached_tokens, served.prompt_tokens
        if visit.seen is not None:
            missed = Reason.TOO_SHORT if visit.asked.is_whole else Reason.UNEXPLAINED
            reason = Reason.HIT if cached else missed
            return Finding(reason, cached, prompt, age_s=now - visit.seen.at)
        if cached * 2 >= prompt > 0:
            return Finding(Reason.HIT, cached, prompt)
        lost = max(prompt - cached, 0)
        is_known = visit.outcome in ("", "made")
        reason = Reason.NEVER_SEEN if is_known else Reason.UNEXAMINED
        return Finding(reason, cached, prompt, lost_tokens=lost)

    def _missing(self, visit: Visit, served: Served) -> tuple[int, bool]:
        """Tokens of what was seen that did not come from the cache, and whether they count."""
        if not visit.depth or not visit.asked.is_whole:
            return 0, False
        chain = visit.asked.chain
        told = self._fleet.num_tokens(served.worker, chain.digests[visit.depth - 1])
        if told is not None:
            missing = min(told, served.prompt_tokens) - served.cached_tokens
            return missing, missing >= MIN_LOST_TOKENS
        share = chain.sizes[visit.depth - 1] / max(chain.num_bytes, 1)
        expected = int(served.prompt_tokens * share)
        missing = expected - served.cached_tokens
        return missing, missing >= max(MIN_LOST_TOKENS, ESTIMATE_SLACK * expected)

    def _lost(self, visit: Visit, served: Served) -> int:
        """Tokens that would have come from a cache but for the fault; 0: too few to tell of."""
        fault, chain = visit.fault, visit.asked.chain
        if fault is None or not chain.num_bytes:
            return 0
        end = min(chain.sizes[min(fault.end, len(chain.sizes)) - 1] + fault.beyond, chain.num_bytes)
        shared = served.prompt_tokens * end // chain.num_bytes
        lost = shared - served.cached_tokens
        return lost if lost >= MIN_LOST_TOKENS else 0


# Where it is no message that differs.
_INSTEAD = {"variables": "chat_template_kwargs", "model": "model"}
_NAMESPACE = Likeness(Reason.NAMESPACE_CHANGED)
_MODEL = Likeness(Reason.TEMPLATE_DRIFT, detail="model")


def _of_fault(visit: Visit, fault: Fault, lost: int, now: float) -> Finding:
    return Finding(
        fault.like.reason,
        part=fault.part,
        name=visit.name,
        offset=fault.like.offset,
        value=fault.like.value,
        detail=fault.like.detail,
        age_s=now - fault.at,
        lost_tokens=lost,
        excerpt=visit.excerpt,
    )


def _touched(depth: int) -> list[int]:
    """Places, of so many that were seen, whose use is noted: the last ones and the first."""
    if depth <= 2 * TOUCHED:
        return list(range(depth - 1, -1, -1))
    last = range(depth - 1, depth - 1 - TOUCHED, -1)
    return [*last, *range(TOUCHED - 1, -1, -1)]
