"""The `s` of a program: text grows by `+=`, values are read by name, forks go on side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol

from pando.errors import UnknownName
from pando.programs.checks import MAX_NAME_LEN, whole
from pando.programs.document import AskStep, ForkStep, MessageStep, Read, Step, TextStep
from pando.programs.expression import ROLES, Expression, Gen, Joined, Message, Select
from pando.programs.place import mistake, user_place
from pando.programs.value import Part


class Reader(Protocol):
    """What a value is: a mark while tracing, the text itself later."""

    def read(self, name: str) -> Read:
        """The value of that name in the graph."""

    def parts(self, text: str) -> list[Part]:
        """A text of the user's as literal parts and values."""

    def text(self, steps: Sequence[Step]) -> str:
        """The text of a branch."""

    def messages(self, steps: Sequence[Step]) -> list[dict[str, str]]:
        """The messages of a branch."""


class Run:
    """What all states of one run share. has_messages: None until the first text or message."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.has_messages: bool | None = None

    def enter(self, *, is_message: bool) -> None:
        """A program has messages or none. Raises BadProgram."""
        if self.has_messages is not None and self.has_messages != is_message:
            raise mistake(
                "A message beside text outside of messages: a program has messages, or none."
                if is_message
                else "Text or a gen outside of messages, beside messages: put it into one."
            )
        self.has_messages = is_message


class State:
    """One branch of a program; only its own function's code appends to it."""

    def __init__(self, run: Run, steps: list[Step], path: str = "") -> None:
        self._run = run
        self._steps = steps
        self._path = path
        self._names: dict[str, str] = {}
        self._own: set[str] = set()
        self._open: MessageStep | None = None
        # The message that a fork was begun in: it goes on in there.
        self._within: str | None = None
        self._num_forks = 0
        self._is_ended = False

    def __iadd__(self, other: Expression | str) -> State:
        self._append(other)
        return self

    def __getitem__(self, name: str) -> Any:
        """The value of a gen or select, the branch's own or one from before its fork.

        Raises UnknownName, and in a session ProgramError.
        """
        if name not in self._names:
            known = ", ".join(sorted(self._names)) or "none so far"
            raise UnknownName(f"No gen or select has set {name!r}; set are: {known}.")
        return self._run.reader.read(self._names[name])

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def text(self) -> str:
        """The branch's own text so far: messages as `role: text`."""
        return self._run.reader.text(self._steps)

    def messages(self) -> list[dict[str, str]]:
        """The branch's own messages so far, as chat completions take them."""
        return self._run.reader.messages(self._steps)

    def system(self, content: Expression | str | None = None) -> Role:
        """With content: a system's message. Without: `with s.system(): s += ...`."""
        return self._role("system", content)

    def user(self, content: Expression | str | None = None) -> Role:
        """With content: a user's message. Without: `with s.user(): s += ...`."""
        return self._role("user", content)

    def assistant(self, content: Expression | str | None = None) -> Role:
        """With content: an assistant's message. Without: `with s.assistant(): s += ...`."""
        return self._role("assistant", content)

    def fork(self, n: int = 1) -> Forks:
        """n branches that go on from this text; this one goes on without theirs."""
        whole("n", n, 1)
        self._refuse_ended()
        if self._open is not None and self._open.role != "assistant":
            raise mistake(f"A fork in the message of the role {self._open.role!r}.")
        step = ForkStep([[] for _ in range(n)])
        self._here.append(step)
        states = [self._branch(step.branches[i], f"{self._num_forks}.{i}") for i in range(n)]
        self._num_forks += 1
        return Forks(states)

    def _branch(self, steps: list[Step], place: str) -> State:
        path = f"{self._path}.{place}" if self._path else place
        state = State(self._run, steps, path)
        state._names = dict(self._names)
        state._within = self._open.role if self._open else self._within
        return state

    @property
    def _here(self) -> list[Step]:
        return self._steps if self._open is None else self._open.body

    def _role(self, role: str, content: Expression | str | None) -> Role:
        if content is not None:
            self._append(Message(role, content))
        return Role(self, role)

    def _append(self, other: object) -> None:
        self._refuse_ended()
        if isinstance(other, Joined):
            for piece in other.pieces:
                self._append(piece)
        elif isinstance(other, Message):
            with Role(self, other.role):
                self._append(other.content)
        elif isinstance(other, str):
            self._append_text(other)
        elif isinstance(other, Gen | Select):
            self._append_ask(other)
        else:
            raise mistake(f"{other!r} can't be appended: text, gen, select and messages can.")

    def _append_text(self, text: str) -> None:
        parts = self._run.reader.parts(text)
        if parts:
            self._enter_content()
            self._here.append(TextStep(parts, user_place()))

    def _append_ask(self, ask: Gen | Select) -> None:
        self._enter_content()
        role = self._open.role if self._open else self._within
        if role not in (None, "assistant"):
            raise mistake(f"gen and select can't stand in a message of the role {role!r}.")
        if ask.name in self._own:
            raise mistake(f"name is {ask.name!r}: it was set before; each name is set once.")
        full = f"{ask.name}#{self._path}" if self._path else ask.name
        if len(full) > MAX_NAME_LEN:
            raise mistake(f"name is {full!r} in its fork, longer than {MAX_NAME_LEN} characters.")
        if isinstance(ask, Gen):
            step = AskStep("gen", full, ask.fields, [], ask.place)
        else:
            choices = [self._run.reader.parts(choice) for choice in ask.choices]
            step = AskStep("select", full, {"method": ask.method}, choices, ask.place)
        self._here.append(step)
        self._own.add(ask.name)
        self._names[ask.name] = full

    def _enter_content(self) -> None:
        if self._open is None and self._within is None:
            self._run.enter(is_message=False)

    def _refuse_ended(self) -> None:
        if self._is_ended:
            raise mistake("This fork was joined: its values can be read, nothing appended.")


class Role:
    """`with s.user():` what is appended inside is that message's."""

    def __init__(self, state: State, role: str) -> None:
        assert role in ROLES
        self._state = state
        self._role = role

    def __enter__(self) -> State:
        state = self._state
        state._refuse_ended()
        within = state._open.role if state._open else state._within
        if within is not None:
            raise mistake(f"A message of {self._role!r} within one of {within!r}.")
        state._run.enter(is_message=True)
        state._open = MessageStep(self._role)
        state._steps.append(state._open)
        return state

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._state._open is not None
        self._state._open.is_open = False
        self._state._open = None


class Forks:
    """Branches of one fork; each is a state of its own."""

    def __init__(self, states: list[State]) -> None:
        self._states = states

    def __iter__(self) -> Iterator[State]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, place: int | str) -> Any:
        """By number a branch; by name the value of each branch, in a list."""
        if isinstance(place, str):
            return [state[place] for state in self._states]
        return self._states[place]

    def __setitem__(self, place: int, state: State) -> None:
        """What `forks[0] += x` does at its end; nothing else may stand here."""
        if self._states[place] is not state:
            raise mistake("A branch can't be replaced; append to it.")

    def __iadd__(self, other: Expression | str) -> Forks:
        for state in self._states:
            state._append(other)
        return self

    def join(self) -> None:
        """The branches are at their end: values can be read, nothing appended any more.

        Whoever reads a value waits for it, here or in the worker; so this waits for nothing.
        """
        for state in self._states:
            state._is_ended = True
