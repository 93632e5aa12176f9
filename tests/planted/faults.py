"""All planted faults."""

from __future__ import annotations

from tests.planted.accounts import FAULTS as ACCOUNTS
from tests.planted.analysis import FAULTS as ANALYSIS
from tests.planted.apart import FAULTS as APART
from tests.planted.caches import FAULTS as CACHES
from tests.planted.chart import FAULTS as CHART
from tests.planted.computing import FAULTS as COMPUTING
from tests.planted.doctor import FAULTS as DOCTOR
from tests.planted.fault import Fault
from tests.planted.gpu import FAULTS as GPU
from tests.planted.grammar import FAULTS as GRAMMAR
from tests.planted.long import FAULTS as LONG
from tests.planted.parts import FAULTS as PARTS
from tests.planted.planning import FAULTS as PLANNING
from tests.planted.programs import FAULTS as PROGRAMS
from tests.planted.ranks import FAULTS as RANKS
from tests.planted.scores import FAULTS as SCORES
from tests.planted.text import FAULTS as TEXT
from tests.planted.times import FAULTS as TIMES
from tests.planted.turns import FAULTS as TURNS

FAULTS: tuple[Fault, ...] = (
    *CACHES,
    *ACCOUNTS,
    *PLANNING,
    *COMPUTING,
    *SCORES,
    *TEXT,
    *TURNS,
    *RANKS,
    *GRAMMAR,
    *PARTS,
    *PROGRAMS,
    *CHART,
    *GPU,
    *LONG,
    *APART,
    *DOCTOR,
    *ANALYSIS,
    *TIMES,
)
