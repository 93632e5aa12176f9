"""`@pando.program`: a function that writes a program, and the ways to run it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from pando.errors import ProgramError
from pando.programs.batch import raise_failures, run_all
from pando.programs.checks import whole
from pando.programs.client import Stopper, Tell
from pando.programs.document import Node
from pando.programs.execution import SETTINGS, Plan, Settings, execute
from pando.programs.place import mistake
from pando.programs.result import Result
from pando.programs.state import State
from pando.programs.streaming import AsyncStream, Stream, awaited
from pando.programs.tracing import Traced, trace
from pando.programs.value import NeedsValue

DEFAULT_CONCURRENCY = 16


class Program:
    """A program. Every way to run it takes the function's own arguments, and beside them:

    client, or base_url and api_key; model; temperature, top_p, top_k, min_p and seed for all nodes
    that name none of their own.
    """

    def __init__(self, function: Callable[..., Any], *, traceable: bool, heal: bool) -> None:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        taken = [one.name for one in parameters if one.name in SETTINGS]
        if taken:
            raise mistake(f"The parameter {taken[0]!r} is a setting of every run: rename it.")
        if inspect.iscoroutinefunction(function):
            raise mistake("A program is a plain function (def); `await f.arun()` runs it so.")
        self._function = function
        self._traceable = traceable
        self._heal = heal
        functools.update_wrapper(self, function)

    def __call__(self, s: State, /, *args: Any, **kwargs: Any) -> Any:
        """Within another program: goes on with its text. Returns what the function returns."""
        if not isinstance(s, State):
            raise mistake(f"{self.__name__} is a program: run it by {self.__name__}.run(...).")
        return self._function(s, *args, **kwargs)

    __name__: str

    def run(self, *args: Any, **kwargs: Any) -> Result:
        """Runs it, and waits. Raises ProgramError and what the function raises."""
        settings, plan = self._prepared(args, kwargs)
        return self._finished(plan, settings, Stopper(), None)

    async def arun(self, *args: Any, **kwargs: Any) -> Result:
        """As run, on an event loop; a cancelled one ends in its worker."""
        settings, plan = self._prepared(args, kwargs)
        stopper = Stopper()
        return await awaited(lambda: self._finished(plan, settings, stopper, None), stopper)

    def stream(self, *args: Any, **kwargs: Any) -> Stream:
        """Runs it; the stream's events tell each node's text while it comes."""
        settings, plan = self._prepared(args, kwargs)
        stopper = Stopper()
        return Stream(lambda tell: self._finished(plan, settings, stopper, tell), stopper)

    def astream(self, *args: Any, **kwargs: Any) -> AsyncStream:
        """As stream, for `async for`."""
        settings, plan = self._prepared(args, kwargs)
        stopper = Stopper()
        return AsyncStream(lambda tell: self._finished(plan, settings, stopper, tell), stopper)

    def run_batch(
        self,
        arguments: Sequence[Mapping[str, Any]],
        *,
        concurrency: int | None = None,
        num_threads: int | None = None,
        progress_bar: bool = False,
        return_errors: bool = False,
        **wishes: Any,
    ) -> list[Any]:
        """A result for each dict of arguments, in order. num_threads: concurrency, by another name.

        One failure ends no other run. Behind the last, BatchError is raised with all outcomes; with
        return_errors exceptions stand in their places instead.
        """
        unknown = set(wishes) - set(SETTINGS)
        if unknown:
            raise mistake(
                f"{sorted(unknown)[0]!r} is no setting of a run; arguments go into dicts."
            )
        at_once = concurrency or num_threads or DEFAULT_CONCURRENCY
        whole("concurrency", at_once, 1)
        settings = Settings.of(wishes)

        def one(given: Mapping[str, Any], stopper: Stopper) -> Result:
            return execute(self._plan((), given), settings, stopper, None)

        try:
            outcomes = run_all(one, arguments, at_once, progress_bar=progress_bar)
        finally:
            settings.close()
        if not return_errors:
            raise_failures(outcomes)
        return list(outcomes)

    def traced(self, *args: Any, **kwargs: Any) -> Traced:
        """What tracing finds for these arguments: a graph, or why and where it needs a value."""
        if not self._traceable:
            return Traced([], "it isn't traced, by traceable=False or since a trace proved wrong")
        return trace(self._plan(args, kwargs).function)

    def graph(self, *args: Any, **kwargs: Any) -> list[Node]:
        """The graph's JSON for these arguments. Raises ProgramError where it needs a value."""
        traced = self.traced(*args, **kwargs)
        if traced.needs is not None:
            raise ProgramError(f"{self.__name__} runs as a session: {traced.needs}")
        return traced.nodes()

    def _prepared(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Settings, Plan]:
        own = {name: value for name, value in kwargs.items() if name not in SETTINGS}
        plan = self._plan(args, own)
        return Settings.of(kwargs), plan

    def _plan(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Plan:
        try:
            inspect.signature(self._function).bind(None, *args, **kwargs)
        except TypeError as error:
            raise mistake(f"{self.__name__}: {error}.") from error

        def function(s: State) -> Any:
            return self._function(s, *args, **kwargs)

        return Plan(function, self._traceable, self._heal, self._distrust)

    def _distrust(self) -> None:
        """Tracing has been wrong about this function once: it isn't tried again."""
        self._traceable = False

    def _finished(
        self, plan: Plan, settings: Settings, stopper: Stopper, tell: Tell | None
    ) -> Result:
        try:
            return execute(plan, settings, stopper, tell)
        except NeedsValue as need:
            raise ProgramError(f"A value of another run was used: {need}") from need
        finally:
            settings.close()


@overload
def program(function: Callable[..., Any], /) -> Program: ...


@overload
def program(
    *, traceable: bool = True, heal: bool = True
) -> Callable[[Callable[..., Any]], Program]: ...


def program(
    function: Callable[..., Any] | None = None, /, *, traceable: bool = True, heal: bool = True
) -> Program | Callable[[Callable[..., Any]], Program]:
    """Makes a program of a function whose first parameter is the state `s`.

    traceable: False runs it as a session at once, so that it runs only once. heal: the token before
    a gen may be taken back and written with what follows (docs/programs.md).
    """
    if function is not None:
        return Program(function, traceable=traceable, heal=heal)
    return lambda one: Program(one, traceable=traceable, heal=heal)
