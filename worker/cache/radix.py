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
from collections.abc import Iterator

from worker.cache.boundaries import BoundaryTags
from worker.cache.interface import TOKEN_BYTES, GrowthListener, Match, SequencePages
from worker.cache.node import Node, common_pages
from worker.cache.pages import PagePool
from worker.cache.scope import PUBLIC, Account, CacheScope, Root
from worker.cache.stems import Stems


class RadixCache:
    """Longest match in memcmp time; O(log siblings) to store, O(1) to evict a page."""

    name = "radix"

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.tags = BoundaryTags()
        self.on_grown: GrowthListener | None = None
        self._stems = Stems(pool)
        self._size = pool.page_size * TOKEN_BYTES
        self._roots: dict[Root, Node] = {}
        self._owner: list[Node | None] = [None] * pool.num_pages
        self._generation = 0
        # Committed since the last step, in order: matchable, but not to be copied yet.
        self._fresh: dict[int, None] = {}
        pool.bind(self._forget)

    def match(self, scope: CacheScope, tokens: bytes) -> Match:
        """Returns the longest cached prefix, to the token."""
        num_public = scope.num_public_pages(self.pool.page_size)
        if not num_public:
            return self._match_in(scope.private_root(), tokens, 0)
        stem = tokens[: num_public * self._size]
        public = self._match_in(scope.public_root, stem, 0)
        if len(public.pages) < num_public:
            return public
        root = self._stems.root_behind(scope, stem, public.pages[-1])
        own = self._match_in(root, tokens, len(stem))
        return Match(public.pages + own.pages, own.tail_page, own.tail_len)

    def match_pages(self, scope: CacheScope, tokens: bytes) -> tuple[int, int | Root]:
        """Returns how many whole pages match, and the last one or the root of the next one."""
        num_public = scope.num_public_pages(self.pool.page_size)
        if not num_public:
            return self._count_in(scope.private_root(), tokens, 0)
        stem = tokens[: num_public * self._size]
        count, at = self._count_in(scope.public_root, stem, 0)
        if isinstance(at, Root) or count < num_public:
            return count, at
        own, at = self._count_in(self._stems.root_behind(scope, stem, at), tokens, len(stem))
        return count + own, at

    def hold(self, scope: CacheScope, pages: list[int]) -> SequencePages:
        """Returns a sequence's pages: the match's whole ones, with a reference on each."""
        self.pool.touch(scope)
        self.pool.share(pages)
        return SequencePages(
            scope,
            self._generation,
            list(pages),
            num_committed=len(pages),
            cursor=self._owner[pages[-1]] if pages else None,
            num_public=scope.num_public_pages(self.pool.page_size),
        )

    def commit(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Puts the whole pages below num_tokens into the trees, or notes those that are there."""
        full = num_tokens // self.pool.page_size
        if full <= held.num_committed or held.generation != self._generation:
            return
        self.pool.touch(held.scope)
        if held.num_committed < held.num_public:
            self._store(held, tokens, min(full, held.num_public))
        if held.num_committed < full:
            self._store(held, tokens, full)

    def finish(self, held: SequencePages, tokens: bytes, num_tokens: int) -> None:
        """Keeps the whole pages and the partial last one, then releases everything."""
        self.commit(held, tokens, num_tokens)
        self.pool.touch(held.scope)
        held.settle(self.pool)
        whole = num_tokens // self.pool.page_size
        if whole == held.num_committed and held.generation == self._generation:
            rest = tokens[whole * self._size : num_tokens * TOKEN_BYTES]
            if rest:
                self._keep_partial(held, tokens, whole, rest)
        held.release(self.pool)

    def is_fresh(self, page: int) -> bool:
        """As PrefixCache.is_fresh."""
        return page in self._fresh

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
        self._stems.clear()
        self.tags.clear()

    def check(self) -> None:
        """Asserts the tree's shape, that owners agree, and the pool's states."""
        self.pool.check()
        seen: dict[int, Node] = {}
        for root in self._roots.values():
            assert root.firsts, "an empty tree stays"
            root.check(self._size, seen)
        for page, owner in enumerate(self._owner):
            assert owner is seen.get(page), f"page {page} has another owner"
            assert (owner is not None) == self.pool.is_indexed(page)

    # ------------------------------------------------------------------ inside

    def _path(self, root: Root, tokens: bytes, offset: int) -> Iterator[tuple[Node, int]]:
        """Yields the nodes that tokens lead through, with how many pages of their runs agree."""
        node = self._roots.get(root)
        if node is None:
            return
        yield node, 0
        size = self._size
        while (child := node.children.get(tokens[offset : offset + size])) is not None:
            node = child
            if not tokens.startswith(node.key, offset):
                yield node, common_pages(tokens, offset, node.key, 0, size)
                return
            yield node, len(node.pages)
            offset += len(node.key)

    def _match_in(self, root: Root, tokens: bytes, offset: int) -> Match:
        """Returns the longest match of the tokens from offset on in one tree."""
        pages, node, common = list[int](), None, 0
        for node, common in self._path(root, tokens, offset):
            pages += node.pages if common == len(node.pages) else node.pages[:common]
        if node is None:
            return Match()
        start = offset + len(pages) * self._size
        page, tail_len = node.best_partial(common, tokens[start : start + self._size], self._size)
        if page is None or tail_len == 0 or page in self._fresh:
            return Match(pages)
        return Match(pages, page, tail_len)

    def _count_in(self, root: Root, tokens: bytes, offset: int) -> tuple[int, int | Root]:
        count = 0
        at: int | Root = root
        for node, common in self._path(root, tokens, offset):
            if common:
                count, at = count + common, node.pages[common - 1]
        return count, at

    def _store(self, held: SequencePages, tokens: bytes, full: int) -> None:
        """Puts pages of one tree into it, up to depth full."""
        depth, node, size = held.num_committed, self._cursor(held, tokens), self._size
        while depth < full:
            if depth < node.end:
                depth = self._walk(node, held, tokens, depth, full)
                if depth < min(full, node.end):
                    node = self._split(node, depth)
                continue
            child = node.children.get(tokens[depth * size : (depth + 1) * size])
            if child is None:
                key = tokens[depth * size : full * size]
                node = self._append(node, key, held, depth)
                depth = full
            else:
                node = child
        held.cursor, held.num_committed = node, full

    def _cursor(self, held: SequencePages, tokens: bytes) -> Node:
        """The node whose run holds the last committed page, or the root of the next page's tree."""
        if held.num_committed in (0, held.num_public):
            is_public = held.num_committed < held.num_public
            root = held.scope.public_root if is_public else self._stems.own_root(held, tokens)
            found = self._roots.get(root)
            if found is None:
                found = self._roots[root] = Node(None, held.num_committed, root)
            return found
        node = held.cursor
        assert isinstance(node, Node)
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

    def _append(self, node: Node, key: bytes, held: SequencePages, depth: int) -> Node:
        """Adds a run of the sequence's pages where node ends: in place when nothing else does."""
        before: int | Root = node.root if node.is_root else node.pages[-1]
        account = self._account(before, held)
        if node.is_root or node.children or node.stubs:
            node = self._new_child(node, key[: self._size])
        pages = held.pages[depth : depth + len(key) // self._size]
        node.key += key
        node.pages += pages
        for page in pages:
            self._owner[page] = node
            self._fresh[page] = None
        self.pool.index(pages, account)
        if self.on_grown is not None:
            self.on_grown(before, key[: self._size])
        return node

    def _account(self, before: int | Root, held: SequencePages) -> Account:
        """For whom a page is counted: as the one before it, so that a path has one account."""
        if isinstance(before, Root):
            return PUBLIC if before.public else held.scope.account
        return self.pool.account_of(before)

    def _new_child(self, node: Node, first: bytes) -> Node:
        """Returns an empty run that begins with that page; it may be node itself."""
        child = Node(node, node.end)
        node.children[first] = child
        insort(node.firsts, first)
        self._drop_shorter(node, first)
        return child.merged_into or child

    def _keep_partial(self, held: SequencePages, tokens: bytes, depth: int, rest: bytes) -> None:
        """Leaves a finished sequence's partial last page as a stub, unless something covers it."""
        node = self._cursor(held, tokens)
        if depth < node.end:
            offset = (depth - node.start) * self._size
            if node.key.startswith(rest, offset):
                return
            node = self._split(node, depth)
        following = bisect_left(node.firsts, rest)
        if following < len(node.firsts) and node.firsts[following].startswith(rest):
            return
        page = held.pages[depth]
        account = self._account(node.root if node.is_root else node.pages[-1], held)
        stub = Node(node, depth)
        stub.key += rest
        stub.pages.append(page)
        node.stubs[rest] = stub
        insort(node.firsts, rest)
        self._owner[page] = stub
        self.pool.index([page], account)
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

    def _forget(self, page: int, by_another: bool = False) -> None:
        """Drops a run's last page from the tree."""
        node = self._owner[page]
        assert node is not None
        assert node.pages[-1] == page
        assert not node.children
        self._owner[page] = None
        self._fresh.pop(page, None)
        self.tags.evict(page, by_another=by_another)
        self._stems.forget(page)
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
                del self._roots[parent.root]
        elif len(parent.children) == 1 and not parent.stubs:
            for page in parent.absorb():
                self._owner[page] = parent
