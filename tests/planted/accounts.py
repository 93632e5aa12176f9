"""Faults of the pool, of eviction and its accounts, of pins, and of what is told of boundaries."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

CACHE = "tests/worker/cache"
STATES = f"{CACHE}/test_state_machine.py"
SCHEDULER = "tests/worker/test_scheduler.py"
BOUNDARIES = f"{CACHE}/test_boundaries.py"
POOL = tuple(f"{CACHE}/test_{one}.py" for one in ("pages", "pins", "regions"))

pool = Room("worker/cache/pages.py", (*POOL, STATES))
eviction = Room(
    "worker/cache/eviction.py", (f"{CACHE}/test_eviction.py", f"{CACHE}/test_pages.py", STATES)
)
pins = Room("worker/cache/pins.py", (f"{CACHE}/test_pins.py",))
tags = Room("worker/cache/boundaries.py", (BOUNDARIES, SCHEDULER))
block_tags = Room("worker/cache/block_hash.py", (BOUNDARIES, SCHEDULER))
radix_tags = Room("worker/cache/radix.py", (BOUNDARIES, SCHEDULER))
tagging = Room("worker/allotment.py", ("tests/worker/test_allotment.py", SCHEDULER))

FAULTS: tuple[Fault, ...] = (
    pool.fault(
        "page in use is evictable",
        "A cached page that is taken into use stays among those that may be given up.",
        "            if self._refs[page] == 0:\n                self._evictable.remove(page)\n",
        "",
    ),
    pool.fault(
        "page in use is freed when it leaves the index",
        "Whoever reads it finds another's tokens there.",
        "            self._evictable.remove(page)\n            self._to_free(page)",
        "            self._evictable.remove(page)\n        self._to_free(page)",
    ),
    pool.fault(
        "pool hands out less than asked",
        "An allocation that can't be had gives what is there.",
        "        if count > self.num_available:\n            return None\n",
        "        count = min(count, self.num_available)\n",
    ),
    pool.fault(
        "pool's limit on cached pages ignored",
        "More lies in the cache than the operator allows.",
        "while len(self._evictable) > self._max_cached:",
        "while len(self._evictable) > self.num_pages:",
    ),
    pool.fault(
        "eviction counted twice",
        "The counter of evicted pages runs ahead of what was given up.",
        "self.evicted_total += 1",
        "self.evicted_total += 2",
    ),
    pool.fault(
        "eviction not told to the index",
        "A page that has been given up is still found.",
        "        self._on_evict(page, whose != pressing)\n",
        "",
    ),
    pool.fault(
        "public account never active",
        "Public pages that are read all the time count as idle and go first.",
        "        if scope.public_tokens:\n            self._evictable.touch(PUBLIC)\n",
        "",
    ),
    eviction.fault(
        "lru gives up the newest",
        "The page that came to rest last goes first.",
        "self._pages.popitem(last=False)[0]",
        "self._pages.popitem()[0]",
    ),
    eviction.fault(
        "fair gives up a parent before its child",
        "Within an account the page that was released last goes first.",
        "page = next(iter(self._pages if ledger is None else ledger.resting))\n        self.remove",
        "page = next(reversed(self._pages if ledger is None else ledger.resting))\n"
        "        self.remove",
    ),
    eviction.fault(
        "cap ignored",
        "An account may fill the whole pool with pages that nobody uses.",
        "        while self._capped:\n",
        "        while self._capped and not self._ledgers:\n",
    ),
    eviction.fault(
        "cap counts pages in use",
        "An account above its cap loses pages though few of them lie unused.",
        "            if len(ledger.resting) > ledger.cap:\n                page",
        "            if ledger.resting and ledger.num_pages > ledger.cap:\n                page",
    ),
    eviction.fault(
        "idle account keeps its guarantee",
        "Pages of a tenant that has left stay for ever.",
        "return ledger if self._clock - ledger.active_at >= self._idle_after else None",
        "return None",
    ),
    eviction.fault(
        "guarantee ignored",
        "A tenant within its share loses pages to one above its own.",
        "return bool(self.resting) and self.num_pages > self.guarantee",
        "return bool(self.resting)",
    ),
    eviction.fault(
        "weight ignored",
        "Who pays for twice the room holds as much as everybody.",
        "return self.num_pages / self.account.weight",
        "return float(self.num_pages)",
    ),
    eviction.fault(
        "stale ratio believed",
        "Who has given up pages is still taken for the one that holds most.",
        "elif ledger.ratio == ledger.offered:",
        "elif ledger.offered >= 0:",
    ),
    eviction.fault(
        "risen ratio not entered",
        "Who holds most isn't asked, since it had nothing at rest when it grew.",
        "        if first or ledger.ticket is None:\n",
        "        if ledger.ticket is None:\n",
    ),
    eviction.fault(
        "evicted page stays on the account",
        "Counts of pages by account only grow.",
        "        ledger.num_pages -= 1\n",
        "        ledger.num_pages -= 1 if ledger.resting else 0\n",
    ),
    eviction.fault(
        "new weight waits for the next page",
        "A tenant's new settings count only for pages that come later.",
        "            ledger.account = account\n            self._bound(ledger)\n",
        "            self._bound(ledger)\n",
    ),
    eviction.fault(
        "asking is no activity",
        "A tenant whose requests find nothing counts as idle.",
        "            self._offer(ledger)\n        self._note(ledger)\n\n    def allocated",
        "            self._offer(ledger)\n\n    def allocated",
    ),
    pins.fault(
        "pins never end",
        "A prefix stays pinned past its deadline.",
        "entry[0] <= now:",
        "entry[0] <= now - 1e9:",
    ),
    pins.fault(
        "pins without a bound",
        "Pinned prefixes may take the whole pool.",
        "self._num_pages_with(key, pages) > self.max_pages:",
        "len(pages) > self._pool.num_pages:",
    ),
    pins.fault(
        "renewed pin leaks",
        "A pin that is renewed never gives its first references back.",
        "        self.unpin(key)\n        self._pins[key]",
        "        self._pins[key]",
    ),
    pins.fault(
        "pinned prefix released from the head",
        "What was pinned together is evicted from its beginning.",
        "self._pool.release(reversed(pin.pages))",
        "self._pool.release(pin.pages)",
    ),
    pins.fault(
        "passed deadlines hold room",
        "A pin is refused for the pages of others that have ended already.",
        "        self.expire()\n        if",
        "        if",
    ),
    pins.fault(
        "what has ended given back before it is pinned again",
        "Where little may lie unused, a prefix is evicted while it is pinned.",
        "        self._pool.share(pages)  # what has ended may be all that holds them\n"
        "        self.expire()\n",
        "        self.expire()\n        self._pool.share(pages)\n",
    ),
    pins.fault(
        "refused pin keeps its pages",
        "A client that asks for too much takes pages that nobody gives back.",
        "            self._pool.release(reversed(pages))\n            return False",
        "            return False",
    ),
    pins.fault(
        "pin that grows escapes the bound",
        "Pages that a key holds already count for nothing when it is pinned again.",
        "page not in self._times_pinned or page in leaving}",
        "page not in self._times_pinned}",
    ),
    pins.fault(
        "pages that others pin counted as leaving",
        "A key that takes another prefix brings the pinned pages over the bound.",
        "{page for page in held.pages if self._times_pinned[page] == 1}",
        "set(held.pages)",
    ),
    pins.fault(
        "deadlines out of order",
        "Once they have been gathered anew, a pin that has ended is hidden by one that hasn't.",
        "            heapq.heapify(self._deadlines)\n",
        "",
    ),
    tags.fault(
        "boundary events without an eviction",
        "A boundary that moves to another page is told evicted, though it is there.",
        "                self._by_page[known].pop(digest)\n",
        "                self._by_page[known].pop(digest)\n"
        "                self._emit(EventKind.EVICTED, digest, num_tokens)\n",
    ),
    tags.fault(
        "boundary stored again and again",
        "Every request tells the same boundary once more.",
        "        if known == page:\n            return\n",
        "",
    ),
    tags.fault(
        "eviction of a boundary not told",
        "Others believe for ever that it is cached.",
        "                self._emit(EventKind.EVICTED, digest, num_tokens, by_another=by_another)"
        "\n",
        "",
    ),
    tags.fault(
        "moved boundary leaves with its old page",
        "A boundary that another page carries is told evicted when the first one goes.",
        "            if known is not None:\n                self._by_page[known].pop(digest)\n",
        "",
    ),
    tags.fault(
        "boundaries of a page without a bound",
        "A client that names many boundaries at one place makes the view large.",
        "            if len(tags) >= MAX_TAGS_PER_PAGE:\n                return\n",
        "",
    ),
    tags.fault(
        "boundary events told twice",
        "What has been taken is given out with the next report too.",
        "events, self._events = self._events, []",
        "events = self._events",
    ),
    tags.fault(
        "boundaries survive a reset",
        "Everything is forgotten, and others still count on it.",
        "            self._by_page.clear()\n            self._page_of.clear()\n",
        "",
    ),
    tags.fault(
        "event numbers with a gap",
        "A reset takes two numbers, so that others ask for everything once more.",
        '            self._emit(EventKind.CLEARED, b"", 0)',
        '            self.sequence += 1\n            self._emit(EventKind.CLEARED, b"", 0)',
    ),
    block_tags.fault(
        "block: eviction keeps the boundary",
        "A page leaves the table and its boundary doesn't.",
        "        self.tags.evict(page, by_another=by_another)\n",
        "",
    ),
    radix_tags.fault(
        "radix: eviction keeps the boundary",
        "A page leaves the tree and its boundary doesn't.",
        "        self.tags.evict(page, by_another=by_another)\n",
        "",
    ),
    tagging.fault(
        "boundary tied to the duplicate",
        "It goes with a page that is given back at once, or never.",
        "page = held.canonical(num_pages - 1)",
        "page = held.pages[num_pages - 1]",
    ),
    tagging.fault(
        "boundary told before its page is there",
        "It is told stored when its first token is scheduled.",
        "            if num_pages > held.num_committed:\n                return\n",
        "            num_pages = min(num_pages, held.num_committed)\n",
    ),
    tagging.fault(
        "boundary tied to the page behind it",
        "A page that goes on behind the boundary is taken for its last one.",
        "num_pages = boundary.num_tokens // self._page_size",
        "num_pages = -(-boundary.num_tokens // self._page_size)",
    ),
)
