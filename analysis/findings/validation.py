"""The test that NaN always passes: NaN, a wide tolerance, a race."""

import functools
from typing import Any

from kernels import VERSIONS, Problem

from ..claims.measures import forgotten_rope
from ..evidence import Evidence, NotMeasured, said
from ..measure.studies import MAIN
from . import Says, checks, exact, finding, not_slower, numbers, of_values

ONLINE, FIXED, V7 = "attention_online", "attention_online_fixed", "rope_v7"
HDIM, LOG = MAIN.hdim, (512, 2048, 4096, 8192)
ALLOWED = 0.05  # by the authors' programs


@finding("checks-nan", """The documents' recommended attention kernel returns {nan} NaN. With its reductions corrected,
it returns none.""")
def nan(e: Evidence) -> Says:
    nan, fixed = e.nan_share(ONLINE, hdim=LOG), e.nan_share(FIXED, hdim=LOG)
    return numbers(nan=nan.at(HDIM)), checks(nan > 0.5, fixed <= 0)


@finding("checks-cost", """With correct reductions the kernel takes only {cost:faster} longer. So the published times
are usable, and this book keeps them.""")
def cost(e: Evidence) -> Says:
    gain = e.speedup(ONLINE, over=FIXED, hdim=LOG)
    return numbers(cost=gain.at(HDIM)), checks(gain < 1.1, of_values(not_slower(gain)))


@finding("checks-rotation", """The write-up names a tolerance. Its programs allow a thousand times that: {allowed}.
Leave every rotation out of V7, and its result moves by {moved:.2}. So the test would pass a RoPE kernel without
RoPE.""")
def rotation(e: Evidence) -> Says:
    moved, told = forgotten_rope((512, HDIM), "uniform"), said("N395").value
    return numbers(moved=moved.at(HDIM), allowed=ALLOWED), checks(
        moved < ALLOWED, moved > told, round(ALLOWED / told) == 1000
    )


@finding("checks-sharp", """On these, leaving out the rotation moves the result by {moved:.1}. V7's own error is less
than a hundred-thousandth of that.""")
def sharp(e: Evidence) -> Says:
    moved, off = forgotten_rope((512, HDIM), "sharp"), e.error(V7, hdim=(512, HDIM))
    return numbers(moved=moved.at(HDIM)), checks(moved > ALLOWED, off < 1e-5 * moved)


@finding("checks-race", """In {few} checks at *their shapes* the race never shows. On a *full card* it shows in {wrong}
of {full}, and then the result is garbage.""")
def race(e: Evidence) -> Says:
    (few, hidden), (full, shown) = (raced(e, study) for study in ("log", "filled"))
    at, on = (e.study(study).source("checks") for study in ("log", "filled"))
    return numbers(**exact(at, few=few), **exact(on, wrong=len(shown), full=full)), checks(
        not hidden, bool(shown), all(row["max_abs_err"] > 100 * row["allowed_abs_err"] for row in shown)
    )


def raced(e: Evidence, study: str) -> tuple[int, list[dict[str, Any]]]:
    """How many checks there are of RoPE versions that have a race and are right without it, and those found wrong.

    Raises: NotMeasured where there are none.
    """
    rows = e.study(study).checks
    rows = rows[rows["status"].isin(("ok", "wrong"))].to_dict("records")
    judged = [row for row in rows if races(row["version"], row["problem"], e.target)]
    if not judged:
        raise NotMeasured(f"no version with a race was checked in study {study}")
    return len(judged), [row for row in judged if row["status"] == "wrong"]


@functools.cache
def races(version: str, problem: Problem, target: str) -> bool:
    if problem.family != "rope" or version not in VERSIONS or VERSIONS[version].is_peer:
        return False
    plan = VERSIONS[version](problem, target)
    return plan.expected == "ok" and any(hazard.kind == "race" for hazard in plan.hazards)
