"""Deaths on a clock of the test's own: when a worker is started again, and when not any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pando.children import Children
from pando.errors import NoWorkerLeft
from pando.keeper import Keeper, Patience

DIES = ("sh", "-c", "echo began; exit 3")
LIVES = ("sleep", "600")


class Scene:
    """A keeper whose clock stands still; said: what the user was told."""

    def __init__(self, children: Children, folder: Path):
        self.now = 0.0
        self.said: list[str] = []
        self.children = children
        self.folder = folder
        patience = Patience(quick_s=60.0, max_deaths=4, pause_s=1.0)
        self.keeper = Keeper(children, self.said.append, patience, lambda: self.now)

    def num_starts(self, name: str) -> int:
        return (self.folder / f"{name}.log").read_text().count("began")

    def look_at_the_death_of(self, name: str) -> None:
        """The next look finds the worker dead; others that live don't matter."""
        [child] = [child for child in self.children.running if child.name == name]
        child.process.wait(10)
        self.keeper.look()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Children(tmp_path, tmp_path) as children:
        yield Scene(children, tmp_path)


def test_the_pause_grows_with_every_quick_death_and_then_it_is_given_up(scene: Scene) -> None:
    scene.keeper.start({"a": DIES, "b": LIVES})
    pauses = []
    for _ in range(3):
        scene.look_at_the_death_of("a")
        before = scene.now
        while not [child for child in scene.children.running if child.name == "a"]:
            scene.now += 0.5
            scene.keeper.look()
        pauses.append(scene.now - before)
    assert pauses == [1.0, 2.0, 4.0]
    scene.look_at_the_death_of("a")
    scene.now += 1000
    scene.keeper.look()
    assert scene.num_starts("a") == 4
    assert scene.said[0].startswith("a ended with status 3; it is started again in 1 s. Its log is")
    assert "a ended with status 3 soon after its start, 4 times in a row" in scene.said[-1]
    assert len(scene.said) == 4


def test_after_a_long_life_deaths_are_counted_anew(scene: Scene) -> None:
    scene.keeper.start({"a": DIES, "b": LIVES})
    for _ in range(10):
        scene.now += 60.0
        scene.look_at_the_death_of("a")
        assert scene.said[-1].startswith("a ended with status 3; it is started again now.")
        scene.keeper.look()
    assert [child.name for child in scene.children.running] == ["b", "a"]


def test_loading_is_no_part_of_a_life(scene: Scene) -> None:
    scene.keeper.start({"a": DIES, "b": LIVES})
    scene.now += 300.0
    scene.keeper.loaded()
    scene.now += 59.0
    scene.look_at_the_death_of("a")
    assert "it is started again in 1 s" in scene.said[-1]
    scene.now += 1.0
    scene.keeper.look()
    scene.now += 360.0
    scene.look_at_the_death_of("a")
    assert "it is started again now" in scene.said[-1]


def test_when_the_last_one_is_given_up_the_end_of_its_log_is_told(scene: Scene) -> None:
    scene.keeper.start({"a": DIES})

    def live_and_die() -> None:
        for _ in range(4):
            scene.look_at_the_death_of("a")
            scene.now += 4.0
            scene.keeper.look()

    with pytest.raises(NoWorkerLeft, match=r"alive: a ended with status 3 .*\n(began\n?){4}"):
        live_and_die()
