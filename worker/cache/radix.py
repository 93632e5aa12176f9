"""Radix prefix cache: a tree over page-aligned token runs, exact to the token at its ends.

    node    start = 3                      a run of whole pages; its depth is counted in pages
            key   = tokens of pages 3..5
            pages = [17, 4, 9]
            children: by their first page  (only where the run ends)
            stubs:    a partial page       (what a finished sequence left of its last page)

The tree only ever splits between pages, so pages stay whole. Where a match ends inside a page,
the best continuation at that point is offered as a tail to copy: its first m tokens agree. It is
found among the sorted first pages and stubs, where the longest common prefix stands next door.

No locks: a sequence's page references protect its path, since it holds all pages before the last
one and releases from the tail. A match reads and never splits.

Source: RadixAttention (arXiv 2312.07104); changed: page-aligned runs with a copied tail in place
of single-token nodes, eviction by page, no lock counts, no mutation on a match.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from worker.cache.boundaries import BoundaryTags
from worker.cache.interface import TOKEN_BYTES, Match, SequencePages
from worker.cache.node import Node, common_pages
from worker.cache.pages import PagePool


class RadixCache:
    """Longest match in memcmp time; O(log siblings) to store, O(1) to evict a page."""

    name = "radix"

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.tags = BoundaryTags()
        self._size = pool.page_size * TOKEN_BYTES
        self._roots: dict[bytes, Node] = {}
        self._owner: list[Node | None] = [None] * pool.num_pages
        self._generation = 0
        # Committed since the last step, in order: matchable, but not to be copied yet.
        self._fresh: dict[int, None] = {}
        pool.bind(self._forget)

    def match(self, namespace: bytes, tokens: bytes) -> Match:
        """Returns the longest cached prefix, to the token."""
        node = self._roots.get(namespace)
        if node is None:
            return Match()
        size, offset, pages = self._size, 0, list[int]()
        while True:
            child = node.children.get(tokens[offset : offset + size])
            if child is None:
                return self._with_tail(pages, node, len(node.pages), tokens[offset:])
            node = child
            if tokens.startswith(node.key, offset):
                pages += node.pages
                offset += len(node.key)
                continue
            common = common_pages(tokens, offset, node.key, 0, size)
            pages += node.pages[:common]
            return self._with_tail(pages, node, common, tokens[offset + common * size :])

    def hold(self, namespace: bytes, pages: list[int]) -> SequencePages:
        """Returns a sequence's pages: the match's whole ones, with a reference on each."""
        self.pool.share(pages)
        cursor = self._owner[pages[-1]] if pages else None
        return SequencePages(namespace, self._generation, list(pages), len(pages), cursor=cursor)

    def commit(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Puts the whole pages below num_tokens into the tree, or notes those that are there."""
        full = num_tokens // self.pool.page_size
        if full <= held.num_committed or held.generation != self._generation:
            return
        depth, node = held.num_committed, self._cursor(held)
        while depth < full:
            if depth < node.end:
                depth = self._walk(node, held, tokens, depth, full)
                if depth < min(full, node.end):
                    node = self._split(node, depth)
                continue
            child = node.children.get(tokens[depth * self._size : (depth + 1) * self._size])
            if child is None:
                node = self._append(
                    node, tokens[depth * self._size : full * self._size], held.pages[depth:full]
                )
                depth = full
            else:
                node = child
        held.cursor, held.num_committed = node, full

    def finish(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Keeps the whole pages and the partial last one, then releases everything."""
        self.commit(held, tokens, num_tokens)
        held.settle(self.pool)
        whole = num_tokens // self.pool.page_size
        if whole == held.num_committed and held.generation == self._generation:
            rest = tokens[whole * self._size : num_tokens * TOKEN_BYTES]
            if rest:
                self._keep_partial(held, whole, rest)
        held.release(self.pool)

    def step_done(self) -> None:
        """Whatever was committed is computed: it may be copied from now on."""
        self._fresh.clear()

    def step_failed(self) -> None:
        """Forgets what was committed since the last step, deepest first."""
        for page in reversed(list(self._fresh)):
            self._forget(page)
            self.pool.unindex(page)

    def reset(self) -> None:
        """Forgets everything; sequences that run now store nothing more."""
        self._generation += 1
        for page, owner in enumerate(self._owner):
            if owner is not None:
                self.pool.unindex(page)
                self._owner[page] = None
        self._roots.clear()
        self._fresh.clear()
        self.tags.clear()

    def check(self) -> None:
        """Asserts the tree's shape, that owners agree, and the pool's states."""
        self.pool.check()
        seen: dict[int, Node] = {}
        for root in self._roots.values():
            assert root.firsts, "an empty namespace stays"
            root.check(self._size, seen)
        for page, owner in enumerate(self._owner):
            assert owner is seen.get(page), f"page {page} has another owner"
            assert (owner is not None) == self.pool.is_indexed(page)

    # ------------------------------------------------------------------ inside

    def _with_tail(self, pages: list[int], node: Node, depth: int, rest: bytes) -> Match:
        """Adds the best partial page at a point of the tree: node's run after depth pages."""
        page, common = node.best_partial(depth, rest[: self._size], self._size)
        if page is None or common == 0 or page in self._fresh:
            return Match(pages)
        return Match(pages, page, common)

    def _cursor(self, held: SequencePages) -> Node:
        """The node whose run holds the last committed page, or the namespace's root."""
        node = held.cursor
        if not isinstance(node, Node):
            return self._roots.setdefault(held.namespace, Node(None, 0, held.namespace))
        while True:
            if node.merged_into is not None:
                node = node.merged_into
            elif node.start >= held.num_committed and node.parent is not None:
                # A node that has left the tree keeps its parent, which may be merged since.
                node = node.parent
            else:
                return node

    def _walk(self, node: Node, held: SequencePages, tokens: bytes, depth: int, full: int) -> int:
        """Follows a run that is there already; returns the depth where tokens leave it."""
        size, offset = self._size, depth - node.start
        limit = tokens[: full * size] if len(tokens) > full * size else tokens
        common = common_pages(limit, depth * size, node.key, offset * size, size)
        for index in range(depth, depth + common):
            canonical = node.pages[index - node.start]
            if held.pages[index] != canonical:
                self.pool.share([canonical])
                held.duplicates.append((index, canonical))
        return depth + common

    def _split(self, node: Node, depth: int) -> Node:
        """Cuts a run before page `depth`; returns the new upper node, the lower stays itself."""
        upper = node.cut(depth, self._size)
        for page in upper.pages:
            self._owner[page] = upper
        return upper

    def _append(self, node: Node, key: bytes, pages: list[int]) -> Node:
        """Adds a run where node ends: in place when nothing else continues it."""
        if node.is_root or node.children or node.stubs:
            node = self._new_child(node, key[: self._size])
        node.key += key
        node.pages += pages
        for page in pages:
            self._owner[page] = node
            self._fresh[page] = None
        self.pool.index(pages)
        return node

    def _new_child(self, node: Node, first: bytes) -> Node:
        """Returns an empty run that begins with that page; it may be node itself."""
        child = Node(node, node.end)
        node.children[first] = child
        insort(node.firsts, first)
        self._drop_shorter(node, first)
        return child.merged_into or child

    def _keep_partial(self, held: SequencePages, depth: int, rest: bytes) -> None:
        """Leaves a finished sequence's partial last page as a stub, unless something covers it."""
        node = self._cursor(held)
        if depth < node.end:
            offset = (depth - node.start) * self._size
            if node.key.startswith(rest, offset):
                return
            node = self._split(node, depth)
        following = bisect_left(node.firsts, rest)
        if following < len(node.firsts) and node.firsts[following].startswith(rest):
            return
        page = held.pages[depth]
        stub = Node(node, depth)
        stub.key += rest
        stub.pages.append(page)
        node.stubs[rest] = stub
        insort(node.firsts, rest)
        self._owner[page] = stub
        self.pool.index((page,))
        self._drop_shorter(node, rest)

    def _drop_shorter(self, node: Node, first: bytes) -> None:
        """Drops the stub that a new first page covers: it can only stand right before it."""
        before = bisect_left(node.firsts, first) - 1
        if before >= 0 and first.startswith(node.firsts[before]):
            stub = node.stubs.get(node.firsts[before])
            if stub is not None:
                page = stub.pages[0]
                self._forget(page)
                self.pool.unindex(page)

    def _forget(self, page: int) -> None:
        """Drops a run's last page from the tree."""
        node = self._owner[page]
        assert node is not None
        assert node.pages[-1] == page
        assert not node.children
        self._owner[page] = None
        self._fresh.pop(page, None)
        self.tags.evict(page)
        node.pages.pop()
        first = bytes(node.key[: self._size])
        del node.key[len(node.pages) * self._size :]
        if not node.pages:
            self._detach(node, first)

    def _detach(self, node: Node, first: bytes) -> None:
        parent = node.parent
        assert parent is not None
        (parent.stubs if parent.stubs.get(first) is node else parent.children).pop(first)
        del parent.firsts[bisect_left(parent.firsts, first)]
        if parent.is_root:
            if not parent.firsts:
                del self._roots[parent.namespace]
        elif len(parent.children) == 1 and not parent.stubs:
            for page in parent.absorb():
                self._owner[page] = parent
