"""What measuring processes do on the made-up card, which is not there. Every number is made up.

`insert()` puts it in the place of the GPU in the process that measures; its worker processes are real.
"""

import functools
import zlib
from multiprocessing.connection import Connection
from typing import Any

from analysis.measure import run
from analysis.measure.on_gpu import Row, Task, outcome, row_of
from analysis.records.measured import CEILINGS
from kernels.checking.reference import INPUTS
from tests.measure.stub_card import CARD


def identify(send: Connection) -> None:
    send.send(("identity", CARD))


def check_all(tasks: list[Task], send: Connection) -> None:
    for study, pair in tasks:
        for kind in INPUTS:
            found = {"status": "ok", "reason": "", "max_abs_err": 1e-6, "allowed_abs_err": 1e-4, "nan_share": 0.0}
            send.send(("checks", row_of(study, pair, inputs=kind, **found)))
    send.send(("gpu", {**CARD, "ceilings": dict.fromkeys(CEILINGS, 100.0)}))


def time_all(process: int, tasks: list[tuple[Task, str, Row]], send: Connection) -> None:
    for (study, pair), timer, checked in tasks:
        us = 10 + zlib.crc32(f"{pair} {timer}".encode()) % 1000 + process / 10
        numbers = {"n": 3, "p20_us": us, "median_us": us, "p80_us": us, "sm_mhz": 2000}
        send.send(("timings", row_of(study, pair, process=process, timer=timer, **outcome(checked), **numbers)))
    send.send(("throttle", "none"))


def insert() -> None:
    run.identify, run.check_all, run.time_all = identify, check_all, time_all
    run._compile = _nothing
    run.measure_studies = functools.partial(run.measure_studies, processes=2)


def _nothing(pair: Any, target: str) -> None:
    """In the place of compiling."""
