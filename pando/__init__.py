"""What a user types and imports: the `pando` command, programs; over HTTP and child processes.

Read in this order: `command`, `up` -> `keeper` -> `children`, `check` over `machine` <- `probe`,
`run` over `programs`, `warm` over `warm_file`.

    import pando

    @pando.program
    def capital(s, country):
        s += f"The capital of {country} is" + pando.gen("city", max_tokens=8, stop=".")

    print(capital.run("France")["city"])
"""

from pando.errors import (
    BadProgram,
    BatchError,
    PandoError,
    ProgramError,
    SessionLost,
    Stopped,
    UnknownName,
)
from pando.programs.client import Client, set_default_client
from pando.programs.expression import Expression, assistant, gen, select, system, user
from pando.programs.function import Program, program
from pando.programs.result import Result
from pando.programs.state import Forks, State
from pando.programs.streaming import AsyncStream, Stream
from pando.programs.tracing import Traced
from pando.programs.wire import Event, NodeTrace, Usage

__all__ = [
    "AsyncStream",
    "BadProgram",
    "BatchError",
    "Client",
    "Event",
    "Expression",
    "Forks",
    "NodeTrace",
    "PandoError",
    "Program",
    "ProgramError",
    "Result",
    "SessionLost",
    "State",
    "Stopped",
    "Stream",
    "Traced",
    "UnknownName",
    "Usage",
    "assistant",
    "gen",
    "program",
    "select",
    "set_default_client",
    "system",
    "user",
]
