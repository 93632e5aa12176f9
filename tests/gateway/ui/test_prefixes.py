"""The trees of what requests shared."""

from __future__ import annotations

from gateway.telemetry.lives import MAX_LIVES, Lives
from gateway.ui.prefixes import MAX_BESIDE, MAX_NODES, PrefixNode, prefix_trees
from tests.gateway.ui.scene import digest, life, worker


def test_what_several_requests_began_with_is_a_node_and_the_rest_is_not() -> None:
    workers = {
        one.name: one for one in (worker("w0", [("s", 40), ("sa", 60)]), worker("w1", [("s", 40)]))
    }
    lives = [life("sab"), life("sac"), life("sd"), life("x")]
    (tree,) = prefix_trees(lives, lambda _: workers)
    assert (tree.tenant, tree.model, tree.requests) == ("acme", "tiny", 4)
    system = PrefixNode(
        digest=digest("s")[:4].hex(),
        roles=["system"],
        requests=3,
        tokens=40,
        workers=["w0", "w1"],
        below=[PrefixNode(digest("sa")[:4].hex(), ["user"], 2, 60, ["w0"], [])],
    )
    assert tree.below == [system]


def test_a_run_without_branches_is_one_node() -> None:
    lives = [life("sabc"), life("sabc"), life("sabd")]
    (tree,) = prefix_trees(lives, lambda _: {})
    (node,) = tree.below
    assert (node.roles, node.requests) == (["system", "user", "assistant"], 3)
    assert (node.tokens, node.workers) == (None, [])
    assert [(one.roles, one.requests) for one in node.below] == [(["user"], 2)]


def test_tenants_have_trees_of_their_own_the_busiest_first() -> None:
    lives = [life("s"), life("s", tenant="b"), life("s", tenant="b")]
    trees = prefix_trees(lives, lambda _: {})
    assert [(tree.tenant, len(tree.below)) for tree in trees] == [("b", 1), ("acme", 0)]


def count(nodes: list[PrefixNode]) -> int:
    return sum(1 + count(node.below) for node in nodes)


def test_trees_are_bounded() -> None:
    names = [f"{a}{b}{c}" for a in "abcdefghijkl" for b in "01" for c in "xy"]
    (tree,) = prefix_trees([life(name) for name in names * 2], lambda _: {})
    assert len(tree.below) == MAX_BESIDE
    of_tenants = [life(n, tenant=t) for t in "abcdefghijkl" for n in names[:16] * 4]
    trees = prefix_trees(of_tenants, lambda _: {})
    assert sum(count(one.below) for one in trees) == MAX_NODES


def test_what_a_twentieth_did_not_have_is_left_out() -> None:
    lives = [life(f"s{letter}") for letter in "abcdefghijklmnopqrstuvwxyz" * 3]
    (tree,) = prefix_trees(lives, lambda _: {})
    assert count(tree.below) == 1


def test_only_so_many_requests_are_remembered_and_the_newest_come_first() -> None:
    lives = Lives()
    for number in range(MAX_LIVES + 10):
        lives.add(life("s", request_id=f"req-{number}"))
    assert len(lives) == MAX_LIVES
    assert next(iter(lives)).request_id == f"req-{MAX_LIVES + 9}"
    assert lives.find("req-9") is None
    assert lives.find("req-10") is not None
