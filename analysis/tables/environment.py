"""The card and its software, the runs that its numbers are from, and how well they repeat."""

from ..evidence import Evidence, pool
from ..evidence.current import complete_runs
from ..evidence.origin import measured
from ..measure.studies import OTHER_RUNS, STUDIES, TIMERS
from ..record.files import ROOT
from ..record.text import NOTHING
from .table import Missing, Table, code, lines, share, small

CEILINGS = (  # of gpu.json, with words, unit and digits
    ("read_gb_s", "DRAM read, at most", "GB/s", 0),
    ("l2_read_gb_s", "L2 read, at most", "GB/s", 0),
    ("fp32_tflops", "fp32 multiply-add, at most", "TFLOP/s", 1),
    ("tensor_tflops", "bfloat16 matrix product, at most", "TFLOP/s", 1),
    ("empty_kernel_us", "empty kernel in a graph", "µs", 2),
    ("empty_launch_us", "empty launch from the host", "µs", 2),
)
PACKAGES = {"numba": "numba", "numba-cuda": "numba_cuda", "torch": "torch"}  # with their columns of runs


def _beside_lock(package: str, measured: str) -> str:
    """A package's version as measured, and the one that requirements.txt installs, where it is another."""
    locks = (line.split("==") for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines())
    installed = next(version for name, *version in locks if name == package)[0]
    same = measured.partition("+")[0] == installed.partition("+")[0]
    return measured if same else lines(measured, small(f"requirements.txt installs {installed}"))


def machine(e: Evidence) -> Table:
    """The GPU, what it reaches at most, and the software of the run of the documents' shapes."""
    gpu, run = e.gpu, e.study("log").run
    clock = e.study("log").timings["sm_mhz"].astype(float).median()
    found = gpu["ceilings"]
    values = {
        "GPU": f"{e.card}, compute capability {gpu['compute_capability']}, {gpu['sms']} SMs",
        "memory": f"{gpu['memory_bytes'] / 2**30:.0f} GiB, L2 {gpu['l2_bytes'] / 2**20:.0f} MiB",
        "clock": f"SM up to {run['sm_mhz_max']} MHz, not locked; {clock:.0f} MHz after samples (median)",
        "power limit": f"{run['power_limit_w']} W",
        **{what: f"{found[key]:,.{n}f} {unit}" for key, what, unit, n in CEILINGS if key in found},
        "driver, CUDA": f"{run['driver']}, {run['cuda']}",
        "Python": str(run["python"]),
        **{package: _beside_lock(package, str(run[column])) for package, column in PACKAGES.items()},
    }
    return Table(("what", "value"), list(values.items()), source=measured(e, "log"))


def runs(e: Evidence) -> Table:
    """The run of each study, and of each other part of `make gpu`, that numbers come from; how long it took."""
    others = complete_runs(e.record.frame("runs"))
    found = {study.name: (study.run, str(study.processes)) for study in map(e.study, STUDIES) if study}
    found |= {name: (others[name], NOTHING) for name in OTHER_RUNS if name in others}
    rows, total = [], 0.0
    for name, (run, processes) in found.items():
        total += run["seconds"]
        told = str(run["started_at"]), f"{run['seconds']:.0f}", processes, str(run["throttle"])
        rows.append((code(name), *told, code(str(run["commit"]))))
    header = ("study", "began (UTC)", "seconds", "processes", "throttling seen", "commit")
    caption = f"{total / 60:.0f} minutes of the {e.card}."
    if "counters" not in found or not found["counters"][0]["seconds"]:
        caption += " The time of the counters is not recorded."
    return Table(header, rows, header[2:4], caption, source=measured(e, *STUDIES))


def coverage(e: Evidence) -> Table | Missing:
    """Of the ratios of each run in turn, how many lie outside the intervals of the others, by timer."""
    found, rows = pool.coverage(e.record.ratios), []
    for timer in TIMERS:
        mine = found[found["timer"] == timer]
        later = mine[~mine["chose"]]
        if len(mine) and len(later):
            outside, apart = (each["outside"].sum() / each["ratios"].sum() for each in (mine, later))
            rows.append((timer, str(mine["ratios"].sum()), *map(share, (outside, apart, mine["half"].median() - 1))))
    if not rows:
        return Missing(why=f"No run can be left out: that takes {pool.RUNS + 1} complete runs of the same code")
    complete = e.record.complete
    cards = complete.loc[complete["run"].isin(found["run"]), "uuid"].replace("", None).nunique()
    header = ("timer", "ratios", "outside, all runs", "outside, unseen runs", "half width, median")
    caption = (
        "Outside: of the interval that the other runs give. Unseen: every second run, by which no rule was chosen. "
        f"On the {e.card}. Complete runs: {found['run'].nunique()}; single cards (by UUID) among them: {cards}."
    )
    return Table(header, rows, header[1:], caption, source=measured(e, "log"))
