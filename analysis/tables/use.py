"""How to use the kernel: how fast it is, what a call of the op costs, and where it does not pay."""

from html import escape

import pandas as pd

from kernels import VERSIONS, Problem

from ..evidence import Evidence, NotMeasured
from ..evidence.current import Row
from ..evidence.interval import TIE
from ..evidence.origin import measured, measured_on
from ..findings.use import op_rows, op_version
from ..models.rivals import (
    BEYOND,
    COMPARED,
    MEASURED_IN,
    Rival,
    beside_one_graph,
    floor,
    label,
    relative_error,
    rivals,
    v8_time,
)
from ..record.files import problem_of
from ..record.text import NOTHING, factor, number
from .table import Missing, Table, lines, mark, ratio, small, time_cell


def beside_pytorch(e: Evidence) -> Table | Missing:
    """V8, its floor and its fastest peer at every problem beside a peer: the smallest speedup first."""
    if not e.study("beyond"):
        return Missing.study("beyond")
    peers = {problem: next(iter(rivals(e, problem)), None) for problem in COMPARED}
    peers = {problem: peer for problem, peer in peers.items() if peer or problem in BEYOND}
    whole = beside_one_graph(e)
    unknown = "; where it says so, RoPE and attention compiled as one graph, which may be faster, were not timed"
    rows = [
        (
            label(problem),
            lines(time_cell(v8_time(e, problem, peer.study if peer else "")), _elsewhere(e, problem)),
            _alternative(peer, problem in whole) if peer else NOTHING,
            lines(ratio(peer.over), mark("slower", "wrong") * (peer.over.value * TIE < 1)) if peer else NOTHING,
            number(floor(problem, e.gpu), digits=1),
            factor(relative_error(e, problem, peer.study if peer else "")),
        )
        for problem, peer in sorted(peers.items(), key=lambda pair: pair[1].over.value if pair[1] else 0.0)
    ]
    header = ("problem", "rope_v8, µs", "fastest alternative, µs", "speedup", "floor, µs", "error")
    caption = (
        f"Device time of one call (device_warm) on the {e.card}, the smallest speedup first. B batch, H heads, "
        "S queries and keys, D head dim, R rotated dims. Speedup over the fastest alternative with a right result, "
        f"with the 95 % interval {e.covers()}{unknown * bool({*peers} - {*whole})}. Floor: an empty launch, and the "
        "longer of reading (from L2 what fits there) and multiplying, three float16 products on tensor cores for one "
        "of float32; the set-up counts DRAM and fp32 instead. Error: the largest divided by that of fp32 math, on the "
        "worse of two inputs. The op: whose kernels rope_attention takes instead, and their time in a study of its own."
    )
    return Table(header, rows, header[1:], caption, source=measured(e, *MEASURED_IN))


def _alternative(peer: Rival, whole: bool) -> str:
    unknown = "" if whole else small("as one graph: not timed")
    return lines(f"{peer.us.value:.1f}", small(escape(VERSIONS[peer.version].title)), unknown)


def _elsewhere(e: Evidence, problem: Problem) -> str:
    """Where the op runs other kernels than V8: whose, and their time if they were timed."""
    if (version := op_version(e, problem)) == "rope_v8":
        return ""
    times = (e.time(version, study=study, problem=problem)[problem] for study in ("prompts", "split_keys"))
    return small(f"the op: {version}, {next((f'{us.value:.1f}' for us in times if us), 'not timed')}")


def op_times(e: Evidence) -> Table | Missing:
    """What a call of the op takes on the device and on the host, beside a bare launch of the same kernel."""
    try:
        rows = op_rows(e, "op_time")
    except NotMeasured:
        return Missing("make op")
    us = pd.DataFrame(
        [(label(problem_of(row)), _called(row), row["what"], row["timer"], row["median_us"]) for row in rows],
        columns=["problem", "called", "what", "timer", "us"],
    ).pivot_table("us", ["problem", "called"], ["what", "timer"], "median", sort=False)
    us = us.reindex(columns=pd.MultiIndex.from_product([("op", "launch"), ("device_warm", "host_loop")]))
    op, bare = us["op"].dropna(how="all"), us["launch"].groupby(level="problem").transform("first")
    shown = pd.DataFrame({"device": op["device_warm"], "launch": bare["device_warm"], "host": op["host_loop"]})
    shown = shown.assign(over=shown["device"] / shown["launch"], added=op["host_loop"] - bare["host_loop"])
    told = []
    for (problem, called), row in shown.loc[op.index].iterrows():
        device, launch, host, added = (number(row[name], digits=1) for name in ("device", "launch", "host", "added"))
        told.append((problem, called, device, launch, factor(row["over"]), host, added))
    device, bare_launch, added = "op in a graph, µs", "bare launch, µs", "more than a launch, µs"
    header = ("problem", "called with", device, bare_launch, "over it", "host, µs", added)
    caption = (
        "Medians. In a graph: CUDA graphs of calls, the device's own time. Host: its time for each of many calls that "
        "queue up. Transposed tensors: in memory [batch, seq, heads, hdim]. Cache tensors: K and V are the first rows "
        "of a longer buffer."
    )
    return Table(header, told, header[2:], caption, source=measured_on(e.card, rows))


def _called(row: Row) -> str:
    """How a call differs from the kernel's own: pairs, where angles come from, how tensors lie."""
    modes = {"rates": "", "rates_positions": "positions", "tables_positions": "tables and positions"}
    differs = [
        "" if row["interleaved"] else "half-split pairs",
        modes.get(row["mode"], row["mode"]),
        "" if row["layout"] == "contiguous" else f"{row['layout']} tensors",
    ]
    return ", ".join(filter(None, differs)) or "interleaved pairs"
