"""The machine, what it reaches at most, how well a run repeats the one before, and how the checks went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import median

import pandas as pd

from kernels import Problem

from ..book.origin import measured_in
from ..measure.studies import TIMERS
from ..records.archive import whole
from ..records.files import ROOT, gpu_folder
from ..records.known import word
from ..records.measured import Measured
from ..records.pool import RUNS, covered
from ..records.schema import STATUSES
from .table import Missing, Table, lines, name, share, small

REFERENCE = {"attention": "attention_online_fixed", "sinusoidal": "sinusoidal_separate_float4", "rope": "rope_separate"}
CEILINGS = (  # of gpu.json, with words, unit and digits
    ("read_gb_s", "DRAM read", "GB/s", 0),
    ("write_gb_s", "DRAM write", "GB/s", 0),
    ("copy_gb_s", "DRAM copy, read and write", "GB/s", 0),
    ("l2_read_gb_s", "L2 read", "GB/s", 0),
    ("fp32_tflops", "fp32 multiply-add", "TFLOP/s", 1),
    ("tensor_tflops", "bfloat16 matrix product", "TFLOP/s", 1),
    ("empty_kernel_us", "empty kernel in a graph", "µs", 2),
    ("empty_launch_us", "empty launch from the host", "µs", 2),
)


PACKAGES = {"numba": "numba", "numba-cuda": "numba_cuda", "torch": "torch"}  # with their columns of runs.csv


def _beside_lock(package: str, measured: str) -> str:
    """A package's version as measured, and the one that requirements.txt installs, where it is another."""
    locks = (line.split("==") for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines())
    installed = next(version for name, *version in locks if name == package)[0]
    same = measured.partition("+")[0] == installed.partition("+")[0]
    return measured if same else lines(measured, small(f"requirements.txt installs {installed}"))


def machine(evidence: Measured) -> Table:
    """The GPU, the software and the run."""
    gpu, run = evidence.gpu, evidence.run
    values = {
        "GPU": f"{evidence.card}, compute capability {gpu['compute_capability']}, {gpu['sms']} SMs",
        "memory": f"{gpu['memory_bytes'] / 2**30:.0f} GiB, L2 {gpu['l2_bytes'] / 2**20:.0f} MiB",
        "clock": f"SM up to {run['sm_mhz_max']} MHz, not locked; {clock(evidence):.0f} MHz after samples (median)",
        "power limit": f"{run['power_limit_w']} W",
        "driver, CUDA": f"{run['driver']}, {run['cuda']}",
        "Python": str(run["python"]),
        **{package: _beside_lock(package, str(run[column])) for package, column in PACKAGES.items()},
    }
    return Table(("what", "value"), list(values.items()))


def clock(evidence: Measured) -> float:
    """The median over the samples of a run, MHz."""
    return float(evidence.timings["sm_mhz"].astype(float).median())


def runs(studies: Sequence[Measured]) -> Table:
    """The run that each study's numbers come from."""
    return Table.from_frame(
        [
            {
                "study": f"<code>{escape(str(each.run['study']))}</code>",
                "began": str(each.run["started_at"]),
                "seconds": each.run["seconds"],
                "processes": each.processes,
                "throttle": str(each.run["throttle"]),
                "commit": f"<code>{escape(str(each.run['commit']))}</code>",
            }
            for each in studies
        ],
        {
            "study": ("study", str),
            "began": ("began (UTC)", str),
            "seconds": ("seconds", "{:.0f}"),
            "processes": ("processes", str),
            "throttle": ("throttling seen", str),
            "commit": ("commit", str),
        },
        slice(2, 4),
        "",
        measured_in(*studies),
    )


def changes(evidence: Measured, before: Measured, timer: str, peers: bool = False) -> list[float]:
    """By what share each ratio of the same code, to separate kernels or corrected attention, moved between two runs."""

    def same(version: str, problem: Problem) -> bool:
        return before.code(version, problem) == evidence.code(version, problem)

    found = []
    for family, base in REFERENCE.items():
        for other in evidence.versions(family, peers):
            for problem in evidence.problems(family) if other != base else ():
                if same(base, problem) and same(other, problem):
                    then, now = (each.ratio(base, other, problem, timer) for each in (before, evidence))
                    found += [abs(now.value / then.value - 1.0)] if then and now else []
    return found


def repeatability(evidence: Measured) -> Table | Missing:
    """How much ratios of the same code, to separate kernels or corrected attention, moved since the run before."""
    before = evidence.previous()
    if before is None:
        return Missing(why="There is no earlier complete run to compare with")
    rows = [
        (label, timer, len(moved), median(moved), max(moved))
        for peers, label in ((False, "the log's kernels"), (True, "PyTorch"))
        for timer in TIMERS
        if (moved := changes(evidence, before, timer, peers))
    ]
    if not rows:
        return Missing(why="No earlier complete run of this study measured the same code")
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
        f"Against run {before.run['run']}{_where(before, evidence)}.",
        measured_in(evidence, before),
    )


def _where(before: Measured, evidence: Measured) -> str:
    """Whether a run before was on the same card, where both say which they were on."""
    cards = {each.run.get("uuid") for each in (before, evidence)}
    if not all(isinstance(card, str) and card for card in cards):
        return ""
    return ", on the same card" if len(cards) == 1 else ", on another card of this kind"


def coverage(evidence: Measured) -> Table | Missing:
    """Of the ratios of each run in turn, how many lie outside the intervals of the others, by timer and study."""
    folder = gpu_folder(evidence.slug)
    found, runs = covered(folder), whole(folder, "runs")
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
        f"On the {evidence.card}. Complete runs: {found['run'].nunique()}; single cards of this model that they name: "
        f"{cards.replace('', None).nunique()}.",
    )


def ceilings(evidence: Measured) -> Table:
    """What the GPU reaches at most, measured on it."""
    measured = evidence.gpu["ceilings"]
    rows = [(label, f"{measured[key]:,.{digits}f}", unit) for key, label, unit, digits in CEILINGS if key in measured]
    return Table(("ceiling", "value", "unit"), rows, numbers=("value",))


def statuses(evidence: Measured) -> Table:
    """How many problems of each version have which status, and whether its code has changed since."""
    rows = []
    for version in dict.fromkeys(evidence.checks["version"]):
        checks = [evidence.check(version, problem) for problem in dict.fromkeys(evidence.checks["problem"])]
        given = [check.status for check in checks if check]
        counts = (str(given.count(one) or "") for one in STATUSES)
        rows.append((name(version, version in evidence.stale_versions()), *counts))
    words = tuple(map(word, STATUSES))
    return Table(("version", *words), rows, numbers=words, caption="Problems by status.")
