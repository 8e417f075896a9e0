"""The tables of the chapters, by what they are about; how a table and its cells are written is in `tables/table.py`."""

from ..measure.studies import SOURCE_TIMER
from .claims import flipped, ledger, verdicts
from .claims import summary as verdict_summary
from .counters import bounds, caches, emulator_agreement, points, resources
from .environment import ceilings, changes, coverage, machine, repeatability, runs, statuses
from .map import advice, map_problems
from .setup import saved, shapes
from .speed import checks, fastest, home, peers, speedups, throughput, times
from .steps import speeds
from .table import NOTHING, VERDICT_STYLE, Table, badge, code, link, microseconds, name, ratio, small
from .versions import overview
from .work import tested, work

__all__ = [
    "NOTHING", "SOURCE_TIMER", "VERDICT_STYLE", "Table", "advice", "badge", "bounds", "caches", "ceilings", "changes",
    "checks", "code", "coverage", "emulator_agreement", "fastest", "flipped", "home", "ledger", "link", "machine",
    "map_problems", "microseconds", "name", "overview", "peers", "points", "ratio", "repeatability", "resources",
    "runs", "saved", "shapes", "small", "speeds", "speedups", "statuses", "tested", "throughput", "times",
    "verdict_summary", "verdicts", "work",
]  # fmt: skip
