"""Work of measuring processes on a made-up card. Every number is made up.

`insert()` puts it in the place of the GPU in the process that measures; its worker processes are real.
"""

import functools
import zlib
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from analysis.measure import run
from analysis.measure.on_gpu import Pair, Trial, row_of
from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.reference import INPUTS
from tests.evidence.made_up import CEILINGS
from tests.measure.stub_card import CARD


def identify(send: Connection) -> None:
    send.send(("identity", CARD))


def check_all(pairs: list[Pair], send: Connection) -> None:
    right = {"status": "ok", "reason": "", "max_abs_err": 1e-6, "allowed_abs_err": 1e-4, "nan_share": 0.0}
    for place, pair in enumerate(pairs):
        send.send(("begun", place))
        found = _refusal(*pair) or right
        send.send(("checks", [row_of(pair, inputs=kind, **found) for kind in INPUTS]))


def _refusal(version: str, problem: Problem) -> dict[str, str]:
    """Status and reason where the version refuses the problem on this card, as a real one finds them."""
    try:
        VERSIONS[version](problem, CARD["target"])
    except Unsupported as error:
        return {"status": error.status, "reason": str(error)}
    return {}


def load_all(pairs: Sequence[Any], send: Connection) -> None:
    send.send(("begun", 0))


def time_all(trials: list[Trial], process: int, send: Connection) -> None:
    for place, trial in enumerate(trials):
        send.send(("begun", place))
        for timer in trial.timers:
            us = 10 + zlib.crc32(f"{trial.pair} {timer}".encode()) % 1000 + process / 10
            numbers = {"n": 3, "p20_us": us, "median_us": us, "p80_us": us, "sm_mhz": 2000}
            columns = {"process": process, "timer": timer, "status": trial.status, **numbers}
            send.send(("timings", row_of(trial.pair, **columns)))
    send.send(("seen", frozenset()))


def survey(send: Connection) -> None:
    send.send(("ceilings", dict.fromkeys(CEILINGS, 100.0)))


def compile_pair(pair: Any, target: str) -> None:
    """In the place of compiling."""


STUBS = (identify, survey, load_all, check_all, time_all, compile_pair)  # by their names in analysis.measure.run


def insert() -> None:
    for stub in STUBS:
        setattr(run, stub.__name__, stub)
    run.measure_studies = functools.partial(run.measure_studies, processes=2)
