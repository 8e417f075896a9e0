"""The card and its software, the runs that its numbers are from, and how well they repeat."""

from ..evidence import Evidence, pool
from ..evidence.current import complete_runs
from ..evidence.origin import measured
from ..measure.studies import OP, STUDIES, TIMERS
from ..record.text import NOTHING, number
from .table import Missing, Table, code

CEILINGS = (  # of gpu.json, with words, unit and digits
    ("read_gb_s", "DRAM read, at most", "GB/s", 0),
    ("l2_read_gb_s", "L2 read, at most", "GB/s", 0),
    ("fp32_tflops", "fp32 multiply-add, at most", "TFLOP/s", 1),
    ("tensor_tflops", "bfloat16 matrix product, at most", "TFLOP/s", 1),
    ("empty_kernel_us", "empty kernel in a graph", "µs", 2),
    ("empty_launch_us", "empty launch from the host", "µs", 2),
)
PACKAGES = {"numba": "numba", "numba-cuda": "numba_cuda", "torch": "torch"}  # with their columns of runs


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
        **{package: str(run[column]) for package, column in PACKAGES.items()},
    }
    return Table(("what", "value"), list(values.items()), source=measured(e, "log"))


def runs(e: Evidence) -> Table:
    """The run of each study, and each run of another part of `make gpu` that numbers come from; how long it took."""
    known = e.record.frame("runs")
    latest = complete_runs(known)
    found = [latest[name] for name in (*STUDIES, *OP) if name in latest]
    for table in ("counters", "sanitizers"):  # each version's rows are of the last run that has it, complete or not
        read = (known["study"] == table) & known["run"].isin(e.record.frame(table)["run"])
        found += known[read].to_dict("records")
    rows = []
    for run in found:
        name = run["study"]
        processes = str(e.study(name).processes) if name in STUDIES else NOTHING
        told = f"{run['seconds']:.0f}", processes, str(run["throttle"])
        rows.append((code(name), f"<code>{run['run']}</code>", *told, f"<code>{run['commit']}</code>"))
    header = ("study", "run", "seconds", "processes", "throttling seen", "commit")
    caption = (
        f"A run is a folder of data/measured/{e.slug}, named by its start (UTC). "
        f"{sum(run['seconds'] for run in found) / 60:.0f} minutes of the {e.card}; of a run with 0 seconds the time is "
        "not recorded."
    )
    return Table(header, rows, header[2:4], caption, source=measured(e, *STUDIES))


def coverage(e: Evidence) -> Table | Missing:
    """Of the ratios of each run in turn, how many lie outside the intervals of the others, by timer."""
    found, rows = pool.coverage(e.record.ratios), []
    for timer in TIMERS:
        mine = found[found["timer"] == timer]
        later = mine[~mine["chose"]]
        if len(mine) and len(later):
            outside, apart = (each["outside"].sum() / each["ratios"].sum() for each in (mine, later))
            shares = (number(100 * each, "%", 1) for each in (outside, apart, mine["half"].median() - 1))
            rows.append((timer, str(mine["ratios"].sum()), *shares))
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
