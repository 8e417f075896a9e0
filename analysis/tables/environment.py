"""The machine, what it reaches at most, how well a run repeats the one before, and how the checks went."""

from __future__ import annotations

import math
from statistics import median

import pandas as pd

from ..evidence import Evidence, Study
from ..evidence.known import word
from ..evidence.origin import measured, measured_on
from ..evidence.pool import RUNS, covered
from ..measure.studies import STUDIES, TIMERS
from ..record import rows as rows_of
from ..record.columns import STATUSES
from ..record.files import ROOT
from .table import Missing, Table, code, lines, name, share, small

REFERENCE = {"attention": "attention_online_fixed", "sinusoidal": "sinusoidal_separate_float4", "rope": "rope_separate"}
PACKAGES = {"numba": "numba", "numba-cuda": "numba_cuda", "torch": "torch"}  # with their columns of runs.csv


def _beside_lock(package: str, measured: str) -> str:
    """A package's version as measured, and the one that requirements.txt installs, where it is another."""
    locks = (line.split("==") for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines())
    installed = next(version for name, *version in locks if name == package)[0]
    same = measured.partition("+")[0] == installed.partition("+")[0]
    return measured if same else lines(measured, small(f"requirements.txt installs {installed}"))


def machine(e: Evidence) -> Table:
    """The GPU, the software and the run."""
    gpu, run = e.gpu, e.study("log").run
    after = clock(e.study("log"))
    values = {
        "GPU": f"{e.card}, compute capability {gpu['compute_capability']}, {gpu['sms']} SMs",
        "memory": f"{gpu['memory_bytes'] / 2**30:.0f} GiB, L2 {gpu['l2_bytes'] / 2**20:.0f} MiB",
        "clock": f"SM up to {run['sm_mhz_max']} MHz, not locked; {after:.0f} MHz after samples (median)",
        "power limit": f"{run['power_limit_w']} W",
        "driver, CUDA": f"{run['driver']}, {run['cuda']}",
        "Python": str(run["python"]),
        **{package: _beside_lock(package, str(run[column])) for package, column in PACKAGES.items()},
    }
    return Table(("what", "value"), list(values.items()), source=measured(e, "log"))


def clock(study: Study) -> float:
    """The median over the samples of a run, MHz."""
    return float(study.timings["sm_mhz"].astype(float).median())


def runs(e: Evidence) -> Table:
    """The run that each study's numbers come from."""
    studies = [study for study in map(e.study, STUDIES) if study]
    return Table.from_frame(
        [{**each.run, "study": code(each.name), "commit": code(str(each.run["commit"])), "n": each.processes}
         for each in studies],
        {
            "study": ("study", str),
            "started_at": ("began (UTC)", str),
            "seconds": ("seconds", "{:.0f}"),
            "n": ("processes", str),
            "throttle": ("throttling seen", str),
            "commit": ("commit", str),
        },
        slice(2, 4),
        "",
        measured(e, *STUDIES),
    )  # fmt: skip


def changes(e: Evidence, timer: str, peers: bool = False) -> list[float]:
    """By what share each ratio of the same code, to separate kernels or corrected attention, moved since the run
    before."""
    study = e.study("log")
    before = e.record.study("log", before=str(study.run["run"]))
    found = []
    for family, base in REFERENCE.items():
        for other in study.versions(family, peers):
            same = [
                problem
                for problem in (study.problems(family) if other != base else ())
                if all(before.code(each, problem) == study.code(each, problem) for each in (base, other))
            ]
            then, now = (each.speedup(other, base, "log", timer, problem=same) for each in (e.before, e))
            found += [abs(now[p].value / then[p].value - 1.0) for p in same if now[p] and then[p]]
    return found


def repeatability(e: Evidence) -> Table | Missing:
    """How much ratios of the same code, to separate kernels or corrected attention, moved since the run before."""
    run = e.study("log").run
    before = e.record.study("log", before=str(run["run"]))
    rows = [
        (label, timer, len(moved), median(moved), max(moved))
        for peers, label in ((False, "the log's kernels"), (True, "PyTorch"))
        for timer in TIMERS
        if before and (moved := changes(e, timer, peers))
    ]
    if not rows:
        return Missing(why="There is no earlier complete run of the same code to compare with")
    cards = {each.get("uuid") for each in (before.run, run)}
    where = ", on the same card" if len(cards) == 1 else ", on another card of this kind"
    return Table.from_frame(
        pd.DataFrame(rows, columns=["whose", "timer", "ratios", "median", "largest"]),
        {
            "whose": ("whose", str),
            "timer": ("timer", str),
            "ratios": ("ratios", str),
            "median": ("median change", share),
            "largest": ("largest change", share),
        },
        slice(2, None),
        f"Against run {before.run['run']}{where if all(isinstance(each, str) and each for each in cards) else ''}.",
        measured_on(e.card, [run, before.run]),
    )


def coverage(e: Evidence) -> Table | Missing:
    """Of the ratios of each run in turn, how many lie outside the intervals of the others, by timer and study."""
    folder = e.record.folder
    found, runs = covered(folder), rows_of(folder, "runs")
    rows = []
    for timer in TIMERS:
        mine = found[found["timer"] == timer]
        for study, some in [*mine.groupby("study"), ("all", mine)] if len(mine) else ():
            ratios, outside, alone = some[["ratios", "outside", "alone"]].sum()
            later = some[~some["chose"]]
            apart = later["outside"].sum() / later["ratios"].sum() if len(later) else math.nan
            rows.append((timer, study, ratios, outside / ratios, apart, alone / ratios, some["half"].median() - 1))
    if not rows:
        return Missing(why=f"No run can be left out: that takes {RUNS + 1} complete runs of the same code")
    cards = runs.loc[runs["run"].isin(found["run"]), "uuid"]
    return Table.from_frame(
        pd.DataFrame(rows, columns=["timer", "study", "ratios", "outside", "apart", "alone", "half"]),
        {
            "timer": ("timer", str),
            "study": ("study", str),
            "ratios": ("ratios", str),
            "outside": ("outside the interval", share),
            "apart": ("outside it in runs by which the pools were not chosen", share),
            "alone": ("outside the interval within one run", share),
            "half": ("half width, median", share),
        },
        slice(2, None),
        f"On the {e.card}. Complete runs: {found['run'].nunique()}; single cards of this model that they name: "
        f"{cards.replace('', None).nunique()}.",
        measured(e, "log"),
    )


def statuses(e: Evidence) -> Table:
    """How many problems of each version have which status, and whether its code has changed since."""
    study, rows = e.study("log"), []
    problems = list(dict.fromkeys(study.checks["problem"]))
    for version in dict.fromkeys(study.checks["version"]):
        given = [check.status for problem in problems if (check := study.check(version, problem))]
        counts = (str(given.count(one) or "") for one in STATUSES)
        rows.append((name(version, version in study.stale_versions()), *counts))
    words = tuple(map(word, STATUSES))
    return Table(("version", *words), rows, words, "Problems by status.", source=measured(e, "log"))
