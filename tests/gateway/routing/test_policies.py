"""Each policy keeps its promise."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from gateway.config import RoutingConfig
from gateway.errors import NoWorker
from gateway.routing.policies import POLICIES
from gateway.routing.prefix import Chain
from gateway.routing.route import NoCredit, Reason, Want
from gateway.tenant_config import PolicyConfig
from tests.gateway.routing.scene import MODEL, PLAIN, Scene, chain, system, text


def prompts(count: int) -> list[Chain]:
    return [chain(system(f"s{number}", 400), text(f"u{number}", 300)) for number in range(count)]


def by(name: str, **parameters: object) -> RoutingConfig:
    policy = PolicyConfig(name, **parameters)  # type: ignore[arg-type]
    return replace(PLAIN, policy=policy)


def test_every_policy_that_may_be_named_exists() -> None:
    for name in POLICIES:
        PolicyConfig(name, workers=("w0",) if name == "dedicated" else ())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_whatever_the_policy_somebody_is_found_or_told_why_not(name: str) -> None:
    workers = ("w0", "w1") if name == "dedicated" else ()
    scene = Scene(4, by(name, workers=workers))
    for prompt in prompts(12):
        scene.send(prompt)
    with pytest.raises(NoCredit):
        scene.route(prompts(1)[0], eligible=lambda worker: False)
    with pytest.raises(NoWorker):
        scene.route(prompts(1)[0], avoid=set(scene.fleet.workers()))


def test_consistent_keeps_a_static_prefix_on_its_owner() -> None:
    scene = Scene(4, by("consistent"))
    for number in range(30):
        for turn in range(3):
            scene.send(chain(system(f"s{number}", 400), text(f"u{turn}", 300))).end()
    names = [sent.name for sent in scene.sent]
    assert all(len(set(names[start : start + 3])) == 1 for start in range(0, 90, 3))
    assert len(set(names)) == 4
    assert {sent.route.reason for sent in scene.sent} == {Reason.OWNER}


def test_consistent_passes_an_overloaded_owner_over_and_takes_it_again() -> None:
    scene = Scene(4, replace(by("consistent"), load_floor=2))
    prompt = prompts(1)[0]
    owner = scene.route(prompt).worker
    owner.num_sequences = 3
    other = scene.route(prompt)
    assert other.worker is not owner
    assert other.reason is Reason.PASSED_OVER
    owner.num_sequences = 2
    assert scene.route(prompt).worker is owner


def test_consistent_spreads_conversations_of_one_prefix_and_keeps_their_turns_together() -> None:
    scene = Scene(4, by("consistent"))
    work: Counter[str] = Counter()
    workers: dict[int, set[str]] = {}
    for number in range(400):
        messages = [system("s", 3000), text(f"c{number % 100}", 500)]
        messages += [text(f"c{number % 100} t{turn}", 1000) for turn in range(number // 100)]
        sent = scene.send(chain(*messages)).first_output()
        sent.end()
        work[sent.name] += sent.route.expected_tokens
        workers.setdefault(number % 100, set()).add(sent.name)
    assert {sent.route.reason for sent in scene.sent} == {Reason.OWNER, Reason.PASSED_OVER}
    assert max(work.values()) < 1.5 * sum(work.values()) / 4
    assert sum(len(names) <= 2 for names in workers.values()) > 80


def test_consistent_moves_nothing_for_little_work() -> None:
    scene = Scene(4, by("consistent"))
    for number in range(50):
        scene.send(chain(system("s", 3000), text(f"c{number}", 1000))).first_output().end()
    assert {sent.route.reason for sent in scene.sent} == {Reason.OWNER}


def test_a_session_stays_whatever_it_asks_and_however_loaded() -> None:
    scene = Scene(4, by("session"))
    wants = [scene.want(prompt, session="alice") for prompt in prompts(10)]
    owner = scene.route(wants[0]).worker
    owner.num_sequences, owner.others_tokens = 500, 10**7
    assert {scene.route(want).worker for want in wants} == {owner}
    elsewhere = scene.route(wants[0], eligible=lambda worker: worker is not owner)
    assert elsewhere.worker is not owner
    assert elsewhere.reason is Reason.PASSED_OVER or elsewhere.reason is Reason.OWNER
    scene.fleet.leave(owner.name)
    assert scene.route(wants[0]).worker is elsewhere.worker


def test_sessions_of_one_name_of_two_tenants_are_two() -> None:
    scene = Scene(8, by("session"))
    prompt = prompts(1)[0]
    owners = {
        scene.route(Want(MODEL, tenant, prompt, session="s")).worker.name
        for tenant in ("a", "b", "c", "d", "e", "f")
    }
    assert len(owners) > 1


def test_a_request_without_a_session_goes_by_its_static_prefix() -> None:
    scene = Scene(4, by("session"))
    consistent = Scene(4, by("consistent"))
    for prompt in prompts(20):
        assert scene.route(prompt).worker.name == consistent.route(prompt).worker.name


def test_least_loaded_takes_the_shortest_queue_then_the_fewest_sequences() -> None:
    scene = Scene(3, by("least_loaded"))
    loads = {"w0": (10, 0), "w1": (0, 5), "w2": (0, 3)}
    for name, (queued, sequences) in loads.items():
        worker = scene.worker(name)
        worker.others_tokens, worker.num_sequences = queued, sequences
    assert scene.route(prompts(1)[0]).worker.name == "w2"


def test_least_loaded_ties_fall_by_work() -> None:
    scene = Scene(4, by("least_loaded"))
    for prompt in prompts(40):
        scene.send(prompt).first_output().end()
    assert set(scene.counts().values()) == {10}


def test_round_robin_takes_one_after_the_other_and_passes_over_who_may_not() -> None:
    scene = Scene(3, by("round_robin"))
    names = [scene.send(prompt).name for prompt in prompts(7)]
    assert names == ["w0", "w1", "w2", "w0", "w1", "w2", "w0"]
    assert scene.route(prompts(1)[0], eligible=lambda one: one.name != "w1").worker.name == "w2"


def test_dedicated_never_leaves_its_workers() -> None:
    scene = Scene(4, by("dedicated", workers=("w1", "w3", "w9")))
    for number, prompt in enumerate(prompts(40)):
        scene.send(prompt)
        scene.worker("w1").others_tokens = 10**9 if number > 20 else 0
    assert {name for name, count in scene.counts().items() if count} == {"w1", "w3"}
    with pytest.raises(NoCredit):
        scene.route(prompts(1)[0], eligible=lambda worker: worker.name in ("w0", "w2"))
    scene.fleet.leave("w1")
    scene.fleet.leave("w3")
    with pytest.raises(NoWorker, match=r"^routing.policy names no worker .* 'tiny': w1, w3, w9$"):
        scene.route(prompts(1)[0], eligible=lambda worker: True)


def shards(scene: Scene, tenants: int) -> dict[str, frozenset[str]]:
    found = {}
    for number in range(tenants):
        tenant = f"tenant-{number}"
        names = {scene.route(Want(MODEL, tenant, prompt)).worker.name for prompt in prompts(60)}
        found[tenant] = frozenset(names)
    return found


def test_a_shuffle_shard_is_stable_and_of_its_size() -> None:
    scene = Scene(8, by("shuffle_shard", shard_size=3))
    before = shards(scene, 20)
    assert {len(shard) for shard in before.values()} == {3}
    assert shards(scene, 20) == before
    assert len(set(before.values())) > 10


def test_a_worker_that_leaves_moves_only_the_shards_that_it_was_in() -> None:
    scene = Scene(8, by("shuffle_shard", shard_size=3))
    before = shards(scene, 20)
    scene.fleet.leave("w0")
    scene.rebuild()
    for tenant, shard in shards(scene, 20).items():
        assert shard >= before[tenant] - {"w0"}
        assert len(shard) == 3


def test_a_tenants_own_policy_goes_before_the_fleets() -> None:
    scene = Scene(4)
    want = Want(MODEL, "acme", prompts(1)[0], PolicyConfig("dedicated", workers=("w2",)))
    assert scene.route(want).worker.name == "w2"
    assert scene.route(want).policy == "dedicated"


def test_a_policy_that_names_nobody_says_whose_it_is() -> None:
    scene = Scene(2)
    want = Want(MODEL, "acme", prompts(1)[0], PolicyConfig("dedicated", workers=("w-typo",)))
    with pytest.raises(NoWorker, match=r"the policy of tenant 'acme' names no .*: w-typo$"):
        scene.route(want)


def test_very_many_workers_share_what_nobody_holds() -> None:
    scene = Scene(150, by("least_loaded"))
    names = Counter(scene.send(prompt).name for prompt in prompts(300))
    assert max(names.values()) <= 8
    assert len(names) > 100
