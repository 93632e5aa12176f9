"""One run of a program: traced into one request where that is possible, else a session.

    trace ──▶ a graph? ──yes──▶ one request ──▶ run again with its values: same graph? ──yes──▶ end
                 │ no                                            │ no
                 └─────────────▶ session ◀───────────────────────┘

Without the second run, a function could have looked at a mark unnoticed (`value` says how). A
function that read no value needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pando.programs.checks import sampling_of
from pando.programs.client import Client, Stopper, Tell, default_client
from pando.programs.document import Step, asks
from pando.programs.place import mistake
from pando.programs.result import Result
from pando.programs.session import Request, Session
from pando.programs.state import Run, State
from pando.programs.tracing import Checked, Function, Traced, check, trace
from pando.programs.wire import Event, NodeTrace, Usage

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed")
_CLIENT = ("client", "model", "base_url", "api_key")
SETTINGS = (*_CLIENT, *_SAMPLING)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is done. is_own: the client was made for it, and is closed behind it."""

    client: Client
    is_own: bool
    model: str | None
    sampling: dict[str, Any]

    @staticmethod
    def of(wishes: Mapping[str, Any]) -> Settings:
        """From a run's arguments, those of SETTINGS. Raises BadProgram."""
        client, url, key = (wishes.get(name) for name in ("client", "base_url", "api_key"))
        is_own = url is not None or key is not None
        if client is not None and is_own:
            raise mistake("client excludes base_url and api_key, which make one.")
        if client is not None and not isinstance(client, Client):
            raise mistake(f"client is {client!r}: expected a pando.Client.")
        sampling = sampling_of({name: wishes.get(name) for name in _SAMPLING})
        made = Client(url, key) if is_own else client or default_client()
        return Settings(made, is_own, wishes.get("model"), sampling)

    def close(self) -> None:
        """The client is closed, if it is the run's own."""
        if self.is_own:
            self.client.close()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: a function with its arguments. diverged: called when a trace proved wrong."""

    function: Function
    is_traceable: bool
    heal: bool
    diverged: Callable[[], None]


def execute(plan: Plan, settings: Settings, stopper: Stopper, tell: Tell | None) -> Result:
    """Runs the function to its end. Raises ProgramError and what the function raises."""
    model = settings.model or settings.client.model_for(stopper)
    request = Request(settings.client, model, settings.sampling, plan.heal, stopper, tell)
    if not plan.is_traceable:
        return _in_session(plan, request, "it was not traced")
    traced = trace(plan.function)
    if traced.needs is not None:
        return _in_session(plan, request, traced.needs)
    return _as_graph(plan, request, traced)


def _as_graph(plan: Plan, request: Request, traced: Traced) -> Result:
    if not traced.steps:
        return Result([], {}, [], Usage(), traced.returned, None)
    answer = request.ask(traced.nodes(), {})
    values = answer.variables
    checked = (
        check(plan.function, traced, values) if traced.reads else Checked(True, traced.returned)
    )
    if not checked.is_same:
        plan.diverged()
        if request.tell is not None:
            request.tell(Event("restart"))
        reason = "with its values the function makes another graph than it was traced to"
        result = _in_session(plan, request, reason)
        return replace(result, usage=answer.usage + result.usage)
    nodes = _sorted(answer.nodes, traced.steps)
    return Result(traced.steps, values, nodes, answer.usage, checked.returned, None)


def _in_session(plan: Plan, request: Request, needs: str) -> Result:
    steps: list[Step] = []
    session = Session(request, steps)
    try:
        returned = plan.function(State(Run(session), steps))
        session.finish()
    finally:
        session.close()
    nodes = _sorted(session.nodes, steps)
    values = {ask.name: session.values[ask.name] for ask in asks(steps)}
    return Result(steps, values, nodes, session.usage, returned, needs)


def _sorted(nodes: list[NodeTrace], steps: list[Step]) -> list[NodeTrace]:
    """In the graph's order; they came as they ended."""
    places = {ask.name: place for place, ask in enumerate(asks(steps))}
    return sorted(nodes, key=lambda node: (places.get(node.name, len(places)), node.index))
