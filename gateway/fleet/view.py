"""What a worker's cache holds, at message grain: the gateway's digests, told by the worker.

    stored   digest -> prompt tokens up to it; exact, in the order of last use; told by events
    guesses  digest -> an estimate; made when a request is sent, until the worker's word comes

A guess ends when the worker stores the digest (confirmed), when the request that made it has its
first output or its end and nothing was stored (wrong), or after a while (the worker hangs). So
siblings of a request that is still being computed go where it went. A worker that tells nothing at
all is believed what was guessed of it, and its view is stale.

One view lives as long as one link. Only the link writes what is stored, only the router guesses.
Not thread-safe: it lives in one event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

DEFAULT_MAX_BOUNDARIES = 200_000
DEFAULT_GUESS_S = 60.0
# Requests in a row of which the worker should have stored something and did not.
SILENT_AFTER = 16
# A shorter prompt may lie in the cache without a whole page, and is then never told of.
TELLING_TOKENS = 256


class Watcher(Protocol):
    """Hears which digests a view begins and ceases to hold, guessed ones included."""

    def held(self, digest: bytes) -> None:
        """The view holds it from now on."""
        ...

    def gone(self, digest: bytes) -> None:
        """The view holds it no more."""
        ...

    def emptied(self, digests: dict[bytes, int]) -> None:
        """None of these is held any more; the watcher may take the dictionary apart."""
        ...


@dataclass(frozen=True, slots=True)
class Match:
    """The deepest boundary of a chain that is held: chain[:depth] is. depth 0: none."""

    depth: int = 0
    num_tokens: int = 0
    is_exact: bool = True


@dataclass(slots=True)
class _Guess:
    """A boundary that `count` requests will bring."""

    num_tokens: int
    count: int
    expires_at: float


class View:
    """What one worker holds. Bounded; beyond that the longest unused is forgotten."""

    def __init__(
        self, max_boundaries: int = DEFAULT_MAX_BOUNDARIES, guess_s: float = DEFAULT_GUESS_S
    ) -> None:
        self._max_boundaries = max_boundaries
        self._guess_s = guess_s
        self._stored: dict[bytes, int] = {}
        self._guesses: dict[bytes, _Guess] = {}
        self._watcher: Watcher | None = None
        self._num_disappointed = 0
        self.is_lost = False

    def __len__(self) -> int:
        """How many boundaries it holds, guessed ones included."""
        return len(self._stored) + len(self._guesses)

    def __contains__(self, digest: object) -> bool:
        """Whether the boundary is held, or about to be."""
        return digest in self._stored or digest in self._guesses

    @property
    def num_guesses(self) -> int:
        """How many boundaries are only expected."""
        return len(self._guesses)

    @property
    def stored(self) -> Mapping[bytes, int]:
        """What the worker told: prompt tokens by digest."""
        return self._stored

    @property
    def is_silent(self) -> bool:
        """Whether the worker stored nothing of what was sent, request after request."""
        return self._num_disappointed >= SILENT_AFTER

    @property
    def is_stale(self) -> bool:
        """Whether it is no true account: events were lost, or none come."""
        return self.is_lost or self.is_silent

    def watch(self, watcher: Watcher) -> None:
        """Tell the watcher of every change from now on, and of all that is held."""
        self._watcher = watcher
        for digest in (*self._stored, *self._guesses):
            watcher.held(digest)

    def detach(self) -> dict[bytes, int]:
        """Nobody watches any more; returns all that was held, for the watcher to take apart."""
        self._watcher = None
        return self._stored | dict.fromkeys(self._guesses, 0)

    def tokens(self, digest: bytes) -> int | None:
        """Prompt tokens up to a boundary that is held."""
        if (num_tokens := self._stored.get(digest)) is not None:
            return num_tokens
        guess = self._guesses.get(digest)
        return None if guess is None else guess.num_tokens

    def matched(self, chain: Sequence[bytes]) -> Match:
        """The deepest boundary of the chain that is held."""
        for depth in range(len(chain), 0, -1):
            num_tokens = self.tokens(chain[depth - 1])
            if num_tokens is not None:
                is_told = chain[depth - 1] in self._stored and not self.is_silent
                return Match(depth, num_tokens, is_told)
        return Match()

    def touch(self, digest: bytes) -> None:
        """The boundary was used: it is forgotten last."""
        num_tokens = self._stored.pop(digest, None)
        if num_tokens is not None:
            self._stored[digest] = num_tokens

    # ------------------------------------------------------------ told by the worker

    def store(self, digest: bytes, num_tokens: int) -> None:
        """The worker holds the boundary."""
        self._num_disappointed = 0
        self._put(digest, num_tokens)

    def _put(self, digest: bytes, num_tokens: int) -> None:
        known = self._stored.pop(digest, None)
        self._stored[digest] = num_tokens
        if known is not None:
            return
        if self._guesses.pop(digest, None) is None and self._watcher is not None:
            self._watcher.held(digest)
        if len(self._stored) > self._max_boundaries:
            # Several at once: a dictionary finds its first entry slowly where many went before it.
            for oldest in list(islice(self._stored, 1 + self._max_boundaries // 64)):
                self.evict(oldest)

    def evict(self, digest: bytes) -> None:
        """The worker holds the boundary no more."""
        stored = self._stored.pop(digest, None)
        guessed = self._guesses.pop(digest, None)
        if self._watcher is not None and not (stored is None and guessed is None):
            self._watcher.gone(digest)

    def clear(self) -> None:
        """The worker's cache is empty; what is on its way there is still expected."""
        former, self._stored = self._stored, {}
        if self._watcher is not None:
            self._watcher.emptied(former | dict.fromkeys(self._guesses, 0))
            for digest in self._guesses:
                self._watcher.held(digest)

    def replace(self, snapshot: Iterable[tuple[bytes, int]]) -> None:
        """The worker holds exactly these boundaries: digests and prompt tokens."""
        self.clear()
        self.is_lost, self._num_disappointed = False, 0
        for digest, num_tokens in snapshot:
            self.store(digest, num_tokens)

    # ------------------------------------------------------------ guessed by the router

    def expect(self, boundaries: Iterable[tuple[bytes, int]], now: float) -> Expectation:
        """A request was sent that brings these boundaries; what is stored already needs no guess.

        boundaries: digests and estimated prompt tokens. now: seconds of the router's clock.
        """
        self.expire(now)
        digests = []
        for digest, num_tokens in boundaries:
            if digest in self._stored:
                continue
            guess = self._guesses.pop(digest, None)
            if guess is None:
                guess = _Guess(num_tokens, 0, now)
                if self._watcher is not None:
                    self._watcher.held(digest)
            guess.count += 1
            guess.expires_at = now + self._guess_s
            self._guesses[digest] = guess
            digests.append(digest)
        return Expectation(self, digests)

    def expire(self, now: float) -> None:
        """Forget guesses whose time is over; they lie in the order of their ends."""
        num_over = 0
        for guess in self._guesses.values():
            if guess.expires_at > now:
                break
            num_over += 1
        for digest in list(islice(self._guesses, num_over)):
            self._forget(digest)

    def computed(self, digests: Sequence[bytes]) -> None:
        """The request that made these guesses has its first output. Expectations call it.

        What the worker has not stored by now it does not hold, unless it never tells anything.
        """
        open_guesses = [guess for digest in digests if (guess := self._guesses.get(digest))]
        is_due = any(guess.num_tokens >= TELLING_TOKENS for guess in open_guesses)
        if is_due and not any(digest in self._stored for digest in digests):
            self._num_disappointed += 1
        if self.is_silent:
            self._believe(digests)
        else:
            self.abandon(digests)

    def abandon(self, digests: Sequence[bytes]) -> None:
        """The request that made these guesses is over. Expectations call it."""
        for digest in digests:
            guess = self._guesses.get(digest)
            if guess is None:
                continue
            guess.count -= 1
            if not guess.count:
                self._forget(digest)

    def _believe(self, digests: Sequence[bytes]) -> None:
        for digest in digests:
            if (guess := self._guesses.get(digest)) is not None:
                self._put(digest, guess.num_tokens)

    def _forget(self, digest: bytes) -> None:
        del self._guesses[digest]
        if self._watcher is not None:
            self._watcher.gone(digest)


class Expectation:
    """What one request will bring to a view. It ends once: computed, or over without an output."""

    __slots__ = ("_digests", "_view")

    def __init__(self, view: View, digests: list[bytes]):
        self._view = view
        self._digests = digests

    def computed(self) -> None:
        """The first output came: the worker has told whatever it has to tell of the prompt."""
        self._view.computed(self._take())

    def over(self) -> None:
        """The request ended; nothing happens if it was computed."""
        self._view.abandon(self._take())

    def _take(self) -> list[bytes]:
        digests, self._digests = self._digests, []
        return digests
