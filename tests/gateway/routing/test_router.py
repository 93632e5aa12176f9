"""Where a prompt goes: to who holds it, unless too much waits there; else by the ring."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from gateway.errors import NoWorker
from gateway.fleet.workers import WorkerInfo, WorkerLoad
from gateway.routing.route import NoCredit, Reason, Want
from gateway.tenant_config import PolicyConfig
from tests.gateway.conftest import NoDoor
from tests.gateway.routing.scene import PLAIN, Scene, chain, system, text

SYSTEM = system("s", 1000)
CHAT = chain(SYSTEM, text("hello", 500))
LONGER = chain(SYSTEM, text("hello", 500), text("answer", 300), text("more", 200))


def test_a_follow_up_goes_where_its_conversation_is() -> None:
    scene = Scene()
    scene.hold("w2", CHAT)
    route = scene.route(LONGER)
    assert route.worker.name == "w2"
    assert route.reason is Reason.HIT
    assert route.matched_tokens == CHAT.num_bytes
    assert route.expected_tokens == LONGER.num_bytes - CHAT.num_bytes


def test_the_deepest_match_wins() -> None:
    scene = Scene()
    scene.hold("w1", CHAT, depth=1)
    scene.hold("w3", CHAT)
    assert scene.route(LONGER).worker.name == "w3"


def test_what_waits_there_can_cost_more_than_what_is_saved() -> None:
    scene = Scene()
    scene.hold("w2", CHAT)
    worth = int(PLAIN.reuse_weight * CHAT.num_bytes)
    scene.worker("w2").others_tokens = worth - 100
    assert scene.route(LONGER).worker.name == "w2"
    scene.worker("w2").others_tokens = worth + 100
    route = scene.route(LONGER)
    assert route.worker.name != "w2"
    assert route.reason is Reason.DIVERTED
    assert [other.name for other in route.others] == ["w2"]


def test_of_two_holders_the_less_loaded_takes_it() -> None:
    scene = Scene()
    for name in ("w0", "w1"):
        scene.hold(name, CHAT)
    scene.worker("w0").others_tokens = 50
    assert scene.route(CHAT).worker.name == "w1"


def test_a_worker_with_a_crowd_has_to_be_worth_more() -> None:
    scene = Scene()
    long = chain(system("long", 7000), text("hello", 500))
    scene.hold("w2", long)
    scene.worker("w2").num_sequences = PLAIN.load_floor + 3
    assert scene.route(long).worker.name == "w2"
    scene.worker("w2").num_sequences = PLAIN.load_floor + 4
    assert scene.route(long).reason is Reason.DIVERTED


def test_others_keep_their_holders_when_one_is_overloaded() -> None:
    scene = Scene()
    chats = [chain(system(f"s{n}", 1000), text(f"u{n}", 500)) for n in range(4)]
    for number, one in enumerate(chats):
        scene.hold(f"w{number}", one)
    scene.worker("w0").others_tokens = 10**6
    routes = [scene.route(one) for one in chats]
    assert [route.worker.name for route in routes[1:]] == ["w1", "w2", "w3"]
    assert routes[0].worker.name != "w0"


def test_siblings_go_where_the_first_one_went_before_anything_is_stored() -> None:
    scene = Scene()
    siblings = [chain(SYSTEM, text(f"u{n}", 50)) for n in range(8)]
    names = {scene.send(one).name for one in siblings}
    assert len(names) == 1
    reasons = [sent.route.reason for sent in scene.sent]
    assert reasons == [Reason.MISS] + [Reason.HIT] * 7


def test_an_expectation_that_was_wrong_is_forgotten() -> None:
    scene = Scene()
    sent = scene.send(CHAT).computed()
    assert scene.route(LONGER).matched_tokens == 0
    assert len(sent.route.worker.view) == 0


def test_a_worker_without_a_cache_is_expected_to_hold_nothing() -> None:
    scene = Scene(num_workers=0)
    scene.join("w0", prefix_cache="off")
    scene.rebuild()
    scene.send(CHAT)
    assert scene.route(CHAT).matched_tokens == 0


def test_what_nobody_holds_goes_to_one_of_two_owners_the_same_for_every_gateway() -> None:
    gateways = [Scene(8), Scene(8)]
    for number in range(200):
        prompt = chain(text(f"p{number}", 300))
        routes = [scene.route(prompt) for scene in gateways]
        pairs = [{route.worker.name, *(other.name for other in route.others)} for route in routes]
        assert pairs[0] == pairs[1]
        assert len(pairs[0]) == 2
        assert routes[0].reason is Reason.MISS


def test_the_less_loaded_of_the_two_owners_takes_it() -> None:
    scene = Scene()
    prompt = chain(text("p", 300))
    first = scene.route(prompt).worker
    first.others_tokens = 1000
    second = scene.route(prompt)
    assert second.worker is not first
    assert second.reason is Reason.MISS


def test_a_beginning_that_all_share_does_not_name_the_owner() -> None:
    scene = Scene(8)
    for number in range(8):
        scene.hold(f"w{number}", chain(SYSTEM))
    names = Counter(scene.send(chain(SYSTEM, text(f"u{n}", 900))).name for n in range(160))
    assert len(names) == 8
    assert max(names.values()) < 1.5 * 20


def test_a_small_advantage_does_not_bind() -> None:
    scene = Scene()
    prompt = chain(system("s", 90), text("u", 2000))
    names = set()
    for number in range(40):
        one = chain(system("s", 90), text(f"u{number}", 2000))
        names.add(scene.send(one).first_output().end().name)
    assert len(names) == 4
    assert scene.route(prompt).reason is Reason.MISS


def test_an_old_view_leaves_one_choice() -> None:
    scene = Scene()
    prompt = chain(text("p", 300))
    pair = scene.route(prompt)
    first = min(scene.worker(pair.worker.name), scene.worker(pair.others[0].name), key=id)
    for worker in scene.fleet.workers():
        worker.view.is_lost = True
    routes = []
    for load in (0, 5000):
        first.others_tokens = load
        routes.append(scene.route(prompt))
    assert {route.reason for route in routes} == {Reason.ONE_CHOICE}
    assert routes[0].worker is routes[1].worker


def test_a_worker_that_failed_the_request_is_avoided_by_identity() -> None:
    scene = Scene(2)
    scene.hold("w0", CHAT)
    failed = scene.worker("w0")
    assert scene.route(CHAT, avoid={failed}).worker.name == "w1"
    scene.fleet.leave("w0")
    scene.join("w0", incarnation="second")
    scene.hold("w0", CHAT)
    assert scene.route(CHAT, avoid={failed}).worker.name == "w0"


def test_who_lacks_credit_is_passed_over_and_when_all_do_the_request_waits() -> None:
    scene = Scene(2)
    scene.hold("w0", CHAT)
    assert scene.route(CHAT, eligible=lambda worker: worker.name != "w0").worker.name == "w1"
    with pytest.raises(NoCredit):
        scene.route(CHAT, eligible=lambda worker: False)
    tried = set(scene.fleet.workers())
    with pytest.raises(NoWorker):
        scene.route(CHAT, avoid=tried, eligible=lambda worker: False)


def test_without_a_worker_there_is_an_error() -> None:
    scene = Scene(1)
    with pytest.raises(NoWorker):
        scene.route(Want("huge", "acme", CHAT))
    with pytest.raises(NoWorker):
        scene.route(CHAT, avoid=set(scene.fleet.workers()))


def test_a_draining_worker_gets_nothing_new_and_comes_back() -> None:
    scene = Scene(2)
    scene.hold("w0", CHAT)
    scene.fleet.report("w0", WorkerLoad(draining=True))
    assert scene.route(CHAT).worker.name == "w1"
    scene.fleet.report("w0", WorkerLoad())
    assert scene.route(CHAT).worker.name == "w0"


def test_a_worker_that_left_is_forgotten_at_once_with_all_that_it_held() -> None:
    scene = Scene(2)
    scene.hold("w0", CHAT)
    scene.fleet.leave("w0")
    assert scene.route(CHAT).worker.name == "w1"
    scene.join("w0", incarnation="second")
    assert scene.route(CHAT).matched_tokens == 0


def test_models_have_workers_of_their_own() -> None:
    scene = Scene(2)
    scene.fleet.join(WorkerInfo("x0", "first", "other"), NoDoor())
    assert scene.route(Want("other", "acme", CHAT)).worker.name == "x0"
    assert {scene.send(chain(text(f"p{n}", 300))).name for n in range(20)} == {"w0", "w1"}


def test_only_what_the_worker_does_not_hold_is_named() -> None:
    scene = Scene(1)
    scene.hold("w0", CHAT)
    named = [boundary.digest for boundary in scene.route(LONGER).boundaries]
    assert named == list(LONGER.digests[2:])


def test_the_density_is_learned_from_what_workers_say() -> None:
    scene = Scene(1, settings=replace(PLAIN, tokens_per_byte=0.25))
    before = scene.route(CHAT).prompt_tokens
    for _ in range(60):
        scene.send(CHAT).first_output().end()
    scene.worker("w0").view.clear()
    after = scene.route(CHAT).prompt_tokens
    assert before == int(CHAT.num_bytes * 0.25)
    assert after == pytest.approx(CHAT.num_bytes, rel=0.05)


def test_the_prediction_is_judged() -> None:
    scene = Scene(1)
    scene.hold("w0", CHAT)
    scene.send(LONGER).first_output().end(cached_tokens=CHAT.num_bytes - 10)
    assert sample(scene, "predicted_tokens_total") == CHAT.num_bytes
    assert sample(scene, "prediction_error_tokens_total") == 10


def sample(scene: Scene, name: str) -> float:
    return (
        scene.telemetry.registry.get_sample_value(f"pando_gateway_{name}", {"model": "tiny"}) or 0
    )


def test_decisions_are_counted_by_worker_policy_and_reason() -> None:
    scene = Scene(1)
    scene.send(CHAT)
    labels = {"worker": "w0", "policy": "cost", "reason": "miss"}
    name = "pando_gateway_routing_decisions_total"
    assert scene.telemetry.registry.get_sample_value(name, labels) == 1


def test_a_route_explains_itself() -> None:
    scene = Scene(2)
    scene.hold("w1", CHAT)
    scene.worker("w1").others_tokens = 70
    size, rest = CHAT.num_bytes, LONGER.num_bytes - CHAT.num_bytes
    assert scene.route(LONGER).explain() == (
        f"cost/hit worker=w1 matched={size}/{size + rest} queued=70"
    )
    scene.worker("w1").others_tokens = 10**6
    assert scene.route(LONGER).explain() == (
        f"cost/diverted worker=w0 matched=0/{size + rest} queued=0 next=w1:1000000+{rest}"
    )


def test_asking_again_changes_nothing() -> None:
    scene = Scene()
    for policy in ("cost", "round_robin", "least_loaded", "consistent"):
        want = scene.want(CHAT, PolicyConfig(policy))
        assert len({scene.route(want).worker.name for _ in range(5)}) == 1


def test_before_the_ring_stands_keys_have_an_order_of_their_own() -> None:
    scene = Scene(0)
    for number in range(4):
        scene.join(f"w{number}")
    prompts = [chain(text(f"p{number}", 300)) for number in range(60)]
    names = {scene.route(prompt).worker.name for prompt in prompts}
    assert len(names) == 4
    assert [scene.route(p).worker for p in prompts] == [scene.route(p).worker for p in prompts]


async def test_the_rings_follow_the_fleet_by_themselves() -> None:
    scene = await asyncio.to_thread(Scene, 2)
    follower = asyncio.create_task(scene.router.follow_fleet())
    scene.join("w9")
    want = scene.want(CHAT, PolicyConfig("consistent"))
    async with asyncio.timeout(20):
        while not any(owner_of(scene, n) == "w9" for n in range(50)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    follower.cancel()
    assert scene.route(want).reason is Reason.OWNER


def owner_of(scene: Scene, number: int) -> str:
    want = scene.want(chain(text(f"p{number}", 100)), PolicyConfig("consistent"))
    return scene.route(want).worker.name


def test_a_hot_prefix_lives_on_no_more_workers_than_allowed() -> None:
    settings = replace(PLAIN, max_replicas=2, load_floor=2)
    scene = Scene(6, settings)
    for number in range(60):
        scene.send(chain(SYSTEM, text(f"u{number}", 900))).first_output()
    holders = [w.name for w in scene.fleet.workers() if chain(SYSTEM).digests[0] in w.view]
    assert len(holders) == 2
    assert sum(count > 0 for count in scene.counts().values()) == 2


def test_work_of_other_gateways_counts() -> None:
    scene = Scene(2, replace(PLAIN, miss_share=1.0))
    for computed in (1, 90_001):
        scene.fleet.report("w0", WorkerLoad(prompt_tokens_total=computed))
        scene.now += 2
        scene.route(CHAT)
    names = {scene.send(chain(text(f"p{number}", 300))).name for number in range(12)}
    assert names == {"w1"}
