"""Faults of the caches: whose content is believed, who references it, what a reader copies."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

CACHE = "tests/worker/cache"
QUICK = tuple(f"{CACHE}/test_{one}.py" for one in ("radix", "regions", "worked_example", "pages"))
TESTS = (*QUICK, f"{CACHE}/test_state_machine.py")

radix = Room("worker/cache/radix.py", TESTS)
node = Room("worker/cache/node.py", TESTS)
block = Room("worker/cache/block_hash.py", TESTS)
pages_held = Room("worker/cache/interface.py", TESTS)
scope = Room("worker/cache/scope.py", TESTS)
stems = Room("worker/cache/stems.py", TESTS)

FAULTS: tuple[Fault, ...] = (
    pages_held.fault(
        "duplicates freed, not swapped",
        "Of two that computed the same page, one gives its own back and goes on reading it.",
        "            self.pages[index] = canonical\n",
        "",
    ),
    pages_held.fault(
        "pages released from the head",
        "What stands in front is released, and so evicted, before what continues it.",
        "pool.release(reversed(self.pages))",
        "pool.release(self.pages)",
    ),
    pages_held.fault(
        "copy source kept for ever",
        "The page that was copied from never loses the reference for the copy.",
        "            pool.release([self.tail_source])\n            self.tail_source = None",
        "            self.tail_source = None",
    ),
    radix.fault(
        "radix: matched page without a reference",
        "The last page of a match is not locked, as in a walk that skips its own node.",
        "self.pool.share(pages)",
        "self.pool.share(pages[:-1])",
    ),
    radix.fault(
        "radix: canonical page without a reference",
        "A duplicate's canonical page is swapped in, and nobody counted the new reader.",
        "                self.pool.share([canonical])\n",
        "",
    ),
    radix.fault(
        "radix: copy from a page not yet computed",
        "A page that the step under way will fill is copied before it is filled.",
        "tail_len == 0 or page in self._fresh",
        "tail_len == 0",
    ),
    radix.fault(
        "radix: failed step stays matchable",
        "Pages that a failed step never filled are found by the next request.",
        "        for page in reversed(list(self._fresh)):\n"
        "            self._forget(page)\n"
        "            self.pool.unindex(page)",
        "        self._fresh.clear()",
    ),
    radix.fault(
        "radix: a split forgets the owner",
        "Pages of the upper half still name the lower node as theirs.",
        "            self._owner[page] = upper\n",
        "            pass\n",
    ),
    radix.fault(
        "radix: covered stub stays",
        "The same tokens stand under two nodes, and both of their pages are counted.",
        "if before >= 0 and first.startswith(node.firsts[before]):",
        "if before > len(node.firsts):",
    ),
    radix.fault(
        "radix: running sequence stores after a reset",
        "What ran while the cache was cleared enters the new tree with old pages.",
        "        if full <= held.num_committed or held.generation != self._generation:",
        "        if full <= held.num_committed:",
    ),
    radix.fault(
        "radix: tail kept after a reset",
        "The partial page of an old sequence enters the new tree.",
        "whole == held.num_committed and held.generation == self._generation",
        "whole == held.num_committed",
    ),
    radix.fault(
        "radix: growth not told",
        "A page comes into the cache, and those who wait for it don't hear of it.",
        "if self.on_grown is not None:",
        "if self.on_grown is not None and not self._roots:",
    ),
    radix.fault(
        "radix: digest of a stem outlives its page",
        "A page that is used again still stands for the prefix that it held before.",
        "        self._stems.forget(page)\n",
        "",
    ),
    radix.fault(
        "radix: one path on two accounts",
        "What continues a page is counted for another account, so the page can go first.",
        "return self.pool.account_of(before)",
        "return held.scope.account",
    ),
    radix.fault(
        "radix: a namespace continues the public tree",
        "Private pages are matched below the public ones, whoever wrote them.",
        "        own = self._match_in(root, tokens, len(stem))",
        "        root = next((one for one in self._roots if one.behind), root)\n"
        "        own = self._match_in(root, tokens, len(stem))",
    ),
    node.fault(
        "radix: merged run keeps its old parent",
        "Children of a run that was taken over still point at what is gone.",
        "            below.parent = self\n",
        "            pass\n",
    ),
    node.fault(
        "radix: merged run is not followed",
        "A sequence goes on where a node stood that another has taken over.",
        "        child.merged_into = self\n",
        "",
    ),
    node.fault(
        "radix: one token too many from a partial page",
        "The first token that differs is taken from the cache too.",
        "return ((differ & -differ).bit_length() - 1) // (8 * TOKEN_BYTES)",
        "return ((differ & -differ).bit_length() - 1) // (8 * TOKEN_BYTES) + 1",
    ),
    node.fault(
        "radix: longest partial page not looked for",
        "Of two neighbours only one is compared, so less is reused than could be.",
        "self.firsts[max(following - 1, 0) : following + 1]",
        "self.firsts[following : following + 1]",
    ),
    block.fault(
        "block: hit believed without its tokens",
        "Two prefixes with one digest get each other's pages.",
        "                return chain[:depth]\n",
        "                break\n",
    ),
    block.fault(
        "block: hit believed without its root",
        "A digest that collides between tenants gives one the other's pages.",
        "        if step != root:\n            return []\n",
        "",
    ),
    block.fault(
        "block: duplicate believed without its tokens",
        "A page with the same key is swapped in, though it holds other tokens.",
        "elif runs[page] == run and parents[page] == before:",
        "elif parents[page] == before:",
    ),
    block.fault(
        "block: duplicate believed without its parents",
        "A page with the same tokens is swapped in, though it stands behind another prefix.",
        "elif runs[page] == run and parents[page] == before:",
        "elif runs[page] == run:",
    ),
    block.fault(
        "block: duplicate without a reference",
        "The canonical page is swapped in, and nobody counted the new reader.",
        "                self.pool.share((page,))\n",
        "",
    ),
    block.fault(
        "block: failed step stays matchable",
        "Pages that a failed step never filled are found by the next request.",
        "        for page in reversed(list(self._fresh)):\n"
        "            self._forget(page)\n"
        "            self.pool.unindex(page)",
        "        self._fresh.clear()",
    ),
    block.fault(
        "block: one path on two accounts",
        "What continues a page is counted for another account, so the page can go first.",
        "self.pool.index(pages, self.pool.account_of(before))",
        "self.pool.index(pages, scope.account)",
    ),
    block.fault(
        "block: public pages on a tenant's account",
        "Who first asked for a public prefix pays for it.",
        "PUBLIC if before.public else scope.account",
        "scope.account",
    ),
    block.fault(
        "block: digest of a stem outlives its page",
        "A page that is used again still stands for the prefix that it held before.",
        "        self._stems.forget(page)\n",
        "",
    ),
    scope.fault(
        "namespace left out of the root",
        "All tenants share one tree.",
        "return Root(self.namespace, adapter=self.adapter, behind=behind)",
        "return Root(adapter=self.adapter, behind=behind)",
    ),
    scope.fault(
        "adapter left out of the root",
        "Other weights reuse what the base model has computed.",
        "return Root(self.namespace, adapter=self.adapter, behind=behind)",
        "return Root(self.namespace, behind=behind)",
    ),
    scope.fault(
        "adapter left out of the public root",
        "Other weights reuse public pages of the base model.",
        "return Root(public=True, adapter=self.adapter)",
        "return Root(public=True)",
    ),
    scope.fault(
        "fields of a root run together",
        "An adapter named as a namespace goes on gives both the same salt.",
        'state.update(len(part).to_bytes(8, "little") + part)',
        "state.update(part)",
    ),
    scope.fault(
        "public prefix left out of a private root's salt",
        "Private pages behind one public prefix are found behind another.",
        "        state.update(self.behind)\n",
        "",
    ),
    scope.fault(
        "the page that straddles is public",
        "The page in which the public part ends is shared with its private tokens.",
        "return self.public_tokens // page_size",
        "return -(-self.public_tokens // page_size)",
    ),
    stems.fault(
        "namespace lost behind a public prefix",
        "Behind the public part all tenants share one tree.",
        "        return scope.private_root(digest)",
        "        return Root(adapter=scope.adapter, behind=digest)",
    ),
)
