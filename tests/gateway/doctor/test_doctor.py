"""The doctor names what is wrong, and says nothing where nothing is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.doctor.doctor import DoctorSettings
from gateway.doctor.finding import Finding, Reason
from gateway.doctor.shape import MAX_CHARS
from gateway.fleet.departures import Departure
from tests.gateway.doctor.scene import ANSWER, LONG, Scene, system, tool, user

Q1, Q2 = user("What is the first thing to do?"), user("And which is the second one?")


def told(finding: Finding) -> tuple[str, str]:
    return finding.reason.value, finding.place


def test_a_time_is_named_with_its_message_place_class_and_age() -> None:
    scene = Scene()
    lead = "Today is the day of "
    assert scene.chat([system(f"{lead}2026-11-30. {LONG}"), Q1]).reason is Reason.NEVER_SEEN
    finding = scene.chat([system(f"{lead}2026-12-01. {LONG}"), Q2])
    assert told(finding) == ("timestamp", f"messages[0]:{len(lead)}")
    assert finding.value is not None
    assert (finding.value.value, finding.age_s, finding.part) == ("timestamp", 1.0, 0)
    assert finding.lost_tokens > 100
    assert "messages[0]:20" in finding.sentence


def test_of_several_values_the_one_that_changed_is_named() -> None:
    scene = Scene()
    for number in (17, 18):
        prompt = f"Policy of 2024-05-15, id 550e8400-e29b-41d4-a716-446655440000. {LONG} Turn "
        finding = scene.chat([system(f"{prompt}{number}."), Q1])
    assert told(finding) == ("counter", f"messages[0]:{len(prompt)}")


def test_every_further_time_is_counted() -> None:
    scene = Scene()
    findings = [scene.chat([system(f"Turn {n}. {LONG}"), Q1]) for n in range(4)]
    assert [one.times for one in findings] == [1, 1, 2, 3]
    assert scene.doctor.recent.counts("t") == {Reason.NEVER_SEEN: 1, Reason.COUNTER: 3}
    assert [one.finding.times for one in scene.doctor.recent.findings("t")] == [3, 2, 1, 1]


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        (lambda text: text.replace(". ", ".\n"), "whitespace", "newline"),
        (lambda text: text.replace(". ", ".  "), "whitespace", "space"),
        (lambda text: "<s>" + text, "whitespace", "bos"),
        (lambda text: text.replace("agent", "ag\u200bent"), "whitespace", "invisible"),
        (lambda text: text.replace("h says", "h, of all things, says"), "template_drift", "text"),
    ],
)
def test_a_system_prompt_that_is_nearly_the_same(
    change: Callable[[str], str], reason: str, detail: str
) -> None:
    scene = Scene()
    scene.chat([system(LONG), Q1])
    finding = scene.chat([system(change(LONG)), Q2])
    assert (finding.reason.value, finding.detail) == (reason, detail)
    assert finding.name == "messages[0]"


def test_tools_in_another_order_with_other_keys_and_fewer_of_them_are_told_apart() -> None:
    tools = [tool(name, LONG) for name in ("search", "book", "cancel")]
    turned = [{**one, "function": dict(reversed(one["function"].items()))} for one in tools]
    for others, reason in (
        (tools[::-1], "tool_order"),
        (turned, "key_order"),
        (tools[:2], "tools_changed"),
        ([], "tools_changed"),
    ):
        scene = Scene()
        scene.chat([system(LONG), Q1], tools=tools)
        finding = scene.chat([system(LONG), Q1], tools=others)
        assert finding.reason.value == reason
        assert reason != "tools_changed" or finding.detail == f"0_added_{3 - len(others)}_removed"


@pytest.mark.parametrize(("letters", "is_told"), [(60_000, True), (70_000, False)])
def test_a_list_of_tools_is_taken_apart_to_a_size(letters: int, is_told: bool) -> None:
    scene = Scene()
    others, last = [tool("a"), tool("b")], tool("c", "x" * letters)
    scene.chat([Q1], tools=[*others, last])
    finding = scene.chat([Q1], tools=[*others[::-1], last])
    assert (finding.reason is Reason.TOOL_ORDER) is is_told


def test_another_list_of_tools_is_no_change_of_the_tools() -> None:
    scene = Scene()
    for names in ("abcdef", "ghijkl"):
        finding = scene.chat([system(LONG), Q1], tools=[tool(name * 3) for name in names])
    assert finding.reason is Reason.NEVER_SEEN


def test_variables_of_the_template_and_the_model_are_template_drift() -> None:
    scene = Scene()
    scene.chat([system(LONG), Q1], kwargs={"enable_thinking": False})
    finding = scene.chat([system(LONG), Q1], kwargs={"enable_thinking": True})
    assert (finding.reason.value, finding.name) == ("template_drift", "chat_template_kwargs")
    finding = scene.chat([system(LONG), Q1], model="other")
    assert (finding.reason.value, finding.detail) == ("template_drift", "model")


def talk(scene: Scene, num_turns: int) -> list[dict[str, object]]:
    """A talk whose every turn was asked; all of it."""
    messages = [system("Be good to all of them, always.")]
    for turn in "abcdefgh"[:num_turns]:
        messages.append(user(f"Now tell me of thing {turn}, and everything about it, please."))
        finding = scene.chat(messages, cached=10_000)
        assert finding.reason in (Reason.HIT, Reason.NEVER_SEEN)
        messages.append({"role": "assistant", "content": f"Of {turn} there is much to say. {LONG}"})
    return messages


def test_a_message_that_was_rewritten_is_named() -> None:
    scene = Scene()
    messages = talk(scene, 4)
    changed = [*messages]
    changed[2] = {"role": "assistant", "content": "(removed)"}
    finding = scene.chat([*changed, Q1], cached=100)
    assert (finding.reason.value, finding.name) == ("history_rewritten", "messages[2]")


def test_messages_that_changed_places_are_a_rewritten_history() -> None:
    scene = Scene()
    messages = talk(scene, 3)
    swapped = [messages[0], messages[1], messages[2], messages[4], messages[3], *messages[5:]]
    finding = scene.chat([*swapped, Q1], cached=100)
    assert finding.reason.value == "history_rewritten"


@pytest.mark.parametrize("dropped", [1, 2, 4])
def test_a_history_without_its_oldest_messages_is_truncated(dropped: int) -> None:
    scene = Scene()
    messages = talk(scene, 5)
    finding = scene.chat([messages[0], *messages[1 + dropped :], Q1], cached=30)
    assert (finding.reason.value, finding.detail) == ("history_truncated", f"{dropped}_messages")
    assert finding.name == "messages[1]"


def test_talks_that_go_on_raise_no_alarm_whatever_they_share() -> None:
    scene = Scene()
    numbers = [4711, 4712, 4713]
    for number in numbers:
        messages = [system(LONG), user(f"My order {number} did not come.")]
        for _ in range(3):
            finding = scene.chat(messages, cached=10_000)
            assert finding.reason is Reason.HIT or number == numbers[0]
            messages += [ANSWER, user(f"It was number {number}, as I told you.")]


def test_what_differs_behind_all_that_is_looked_at_is_no_space() -> None:
    common = LONG * 60
    assert len(common) > MAX_CHARS
    ends = "What of the oak?", "And of the elm?"
    for make, reason in ((user, Reason.NEVER_SEEN), (system, Reason.TEMPLATE_DRIFT)):
        scene = Scene()
        scene.chat([make(common + ends[0]), Q1])
        assert scene.chat([make(common + ends[1]), Q2]).reason is reason
        stamped = [make(f"Turn {number}. {common}{ends[1]}") for number in (1, 2)]
        scene.chat([stamped[0], Q1])
        assert scene.chat([stamped[1], Q1]).reason is Reason.COUNTER


def test_two_questions_that_differ_in_a_number_are_two_questions() -> None:
    scene = Scene()
    asked = "did not come, though it was paid for weeks ago and nobody at the desk knew of it. " * 2
    for number in (4711, 4712):
        finding = scene.chat([system(LONG), user(f"My order {number} {asked}")], cached=len(LONG))
    assert finding.reason is Reason.HIT


def test_another_tenants_prompts_are_never_told_of() -> None:
    scene = Scene()
    scene.chat([system(f"Turn 1. {LONG}"), Q1], tenant="a", namespace=b"shared")
    for namespace in (b"shared", b"b"):
        finding = scene.chat([system(f"Turn 2. {LONG}"), Q1], tenant="b", namespace=namespace)
        assert finding.reason is not Reason.COUNTER
    assert scene.doctor.recent.findings("c") == []


def test_the_same_prompt_under_another_namespace_of_a_tenant() -> None:
    scene = Scene()
    scene.chat([system(LONG), Q1], namespace=b"old")
    finding = scene.chat([system(LONG), Q1], namespace=b"new")
    assert finding.reason is Reason.NAMESPACE_CHANGED


def test_a_plain_prompt_with_a_time_in_front_is_found_though_all_of_it_moved() -> None:
    scene = Scene()
    scene.text(f"It is 9:05. {LONG} {LONG}")
    finding = scene.text(f"It is 12:15:03. {LONG} {LONG}")
    assert told(finding) == ("timestamp", "prompt:6")


def test_a_change_at_the_end_of_a_window_is_no_change_of_the_namespace() -> None:
    scene = Scene()
    text = f"{LONG} {LONG} {LONG}"
    for at in (1000, 1015):
        scene.text(text)
        finding = scene.text(f"{text[:at]}  {text[at:]}")
        assert finding.reason in (Reason.NEVER_SEEN, Reason.WHITESPACE)


def test_what_was_seen_and_is_not_in_a_cache_is_looked_for() -> None:
    scene = Scene()
    prompt = [system(LONG), Q1]
    scene.chat(prompt)
    first = scene.chain.digests[0]
    assert scene.chat(prompt, worker="w1", route="diverted").detail == "diverted"
    scene.workers.left["w1", first] = Departure(scene.now + 0.5, by_another=True)
    finding = scene.chat(prompt, worker="w1")
    assert (finding.reason.value, finding.detail) == ("evicted", "by_another")
    assert finding.age_s == 0.5
    assert scene.chat(prompt, worker="w1").reason is Reason.UNEXPLAINED, "that was before"
    scene.workers.incarnations["w1"] = "b"
    assert scene.chat(prompt, worker="w0").detail == "began_anew"
    del scene.workers.incarnations["w0"]
    assert scene.chat(prompt, worker="w1", incarnation="b").detail == "has_left"
    assert scene.chat(prompt, has_cache=False).reason is Reason.CACHE_OFF


def test_all_who_ask_at_once_for_what_was_evicted_are_told_of_it() -> None:
    scene = Scene()
    scene.chat([system(LONG), Q1])
    scene.workers.left["w0", scene.chain.digests[0]] = Departure(scene.now + 0.5, by_another=False)
    scene.asked([system(LONG), Q1])
    assert scene.chat([system(LONG), Q1]).reason is Reason.EVICTED, "though its twin came behind it"
    assert scene.chat([system(LONG), Q1]).reason is Reason.UNEXPLAINED, "it was computed again"


def test_of_a_long_talk_that_came_at_once_every_part_is_known_to_be_computed() -> None:
    scene = Scene()
    talk = [system(LONG), *(user(f"Question {word} {LONG}") for word in "abcdefghijklmnopqrstuvwx")]
    scene.chat(talk)
    scene.now += 1000
    finding = scene.chat([*talk[:12], user("Something else")], worker="w1", route="diverted")
    assert (finding.reason, finding.worker) == (Reason.OTHER_WORKER, "w0")


def test_a_prompt_whose_twin_is_still_computed_says_so() -> None:
    scene = Scene()
    scene.asked([system(LONG), Q1])
    assert scene.chat([system(LONG), Q1]).reason is Reason.STILL_COMPUTING
    assert scene.chat([system(LONG), Q1]).reason is Reason.UNEXPLAINED


def test_a_prompt_whose_twin_never_had_an_output_is_as_good_as_new() -> None:
    scene = Scene()
    scene.asked([system(LONG), Q1])
    scene.now += 1000
    finding = scene.chat([system(LONG), Q1])
    assert (finding.reason.value, finding.detail) == ("never_seen", "never_computed")


def test_of_a_program_only_its_beginning_is_known() -> None:
    scene = Scene()
    scene.chat([system(LONG), Q1], is_whole=False)
    assert scene.chat([system(LONG), Q1], is_whole=False, cached=40).reason is Reason.HIT
    assert scene.chat([system(LONG), Q1], is_whole=False).reason is Reason.UNEXPLAINED


def test_a_prompt_shorter_than_a_page_is_too_short() -> None:
    scene = Scene()
    scene.chat([user("Hi there")])
    assert scene.chat([user("Hi there")]).reason is Reason.TOO_SHORT


def test_what_the_worker_says_of_a_boundary_counts_more_than_an_estimate() -> None:
    scene = Scene()
    scene.chat([system(LONG), Q1])
    scene.workers.tokens[scene.chain.digests[1]] = 20
    assert scene.chat([system(LONG), Q1], cached=80).reason is Reason.HIT
    scene.workers.tokens[scene.chain.digests[1]] = 200
    assert scene.chat([system(LONG), Q1], cached=80).reason is Reason.UNEXPLAINED


def test_more_than_may_be_examined_is_left_out_and_said() -> None:
    scene = Scene(DoctorSettings(examinations_per_s=0))
    for number in range(2):
        assert scene.chat([system(f"Turn {number}. {LONG}"), Q1]).reason is Reason.UNEXAMINED
    assert scene.chat([system(f"Turn 1. {LONG}"), Q1], cached=10_000).reason is Reason.HIT
    assert (scene.doctor.allowance.num_taken, scene.doctor.allowance.num_refused) == (0, 3)


def test_what_was_left_out_is_looked_at_with_its_next_request() -> None:
    scene = Scene(DoctorSettings(examinations_per_s=1))
    prompts = [[system(f"Turn {number}. {LONG}"), Q1] for number in (1, 2, 3)]
    scene.asked(prompts[0])
    scene.now -= 1
    assert scene.chat(prompts[1]).reason is Reason.UNEXAMINED
    assert scene.chat(prompts[1]).reason is Reason.COUNTER


def test_a_prompt_that_is_too_long_is_known_by_its_chain() -> None:
    scene = Scene()
    huge = [system("x" * 1_100_000), Q1]
    assert scene.chat(huge).reason is Reason.UNEXAMINED
    assert scene.chat(huge, cached=2_000_000).reason is Reason.HIT
    assert scene.chat(huge, worker="w1", route="miss").reason is Reason.OTHER_WORKER
    assert scene.doctor.allowance.num_taken == 0


def test_text_is_told_only_where_it_may_be() -> None:
    for shows in (False, True):
        scene = Scene(DoctorSettings(show_text=shows))
        for number in (1, 2):
            finding = scene.chat([system(f"This is turn {number}. {LONG}"), Q1])
        assert ("turn 2" in finding.excerpt) is shows


def test_the_memory_stays_within_its_bounds_and_forgets_the_oldest() -> None:
    scene = Scene(DoctorSettings(remember=100, examinations_per_s=1e9))
    for number in range(300):
        scene.chat([system(f"{'x' * (number % 7)} {number} {LONG}"), user(f"About {number}?")])
    memory = scene.doctor.memory
    assert len(memory) <= 100
    assert memory.num_bytes <= 100 * 3072
    assert scene.chat([system(f"{'x' * (299 % 7)} 299 {LONG}"), Q2], cached=9999).age_s is not None


def test_a_header_is_one_line_of_ascii() -> None:
    scene = Scene()
    for number in (1, 2):
        finding = scene.chat([system(f"Turn {number}. {LONG}"), Q1])
    header = finding.header()
    assert header.isascii()
    assert "\n" not in header
    assert header.startswith(f"hit=0/{finding.prompt_tokens}, reason=counter, at=messages[0]:5")
    assert header.endswith("age=1s")


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_sentence(reason: Reason) -> None:
    assert Finding(reason, name="messages[0]", worker="w0").sentence.endswith(".")
