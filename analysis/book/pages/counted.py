"""Tables of a version's page: launches, declared hazards, what the compiler reports, and what was counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from kernels import Problem, Version
from kernels.limits import EMULATED_TARGET
from kernels.version import Launch

from ...measure.counters import STALL, STALLS
from ...models.roofline import SECTOR_BYTES
from ...records.published import main_problems
from ...records.text import NOTHING, span
from ...tables.table import Table, code, lines, small
from .measured import shape
from .records import Records, planned, totals

MEGABYTE = 1e6
# What is shown of data/counts.csv: counter, words, and by what it is divided.
COUNTERS: tuple[tuple[str, str, float], ...] = (
    ("event.rotation", "rotations of a pair", 1),
    ("event.sincos", "sines and cosines, computed together", 1),
    ("event.sin", "sines", 1),
    ("event.cos", "cosines", 1),
    ("event.pow", "powers", 1),
    ("inst.fma", "fused multiply-adds", 1),
    ("inst.fp32", "other fp32 operations", 1),
    ("inst.fp16", "fp16 operations", 1),
    ("inst.mma", "matrix operations of tensor cores", 1),
    ("inst.int", "integer operations", 1),
    ("warp_inst", "instructions, counted a warp", 1),
    ("barriers", "barriers, summed over blocks", 1),
    ("global.read.sectors", "MB that reads ask for", MEGABYTE / SECTOR_BYTES),
    ("global.unique_sectors.read", "MB that they touch", MEGABYTE / SECTOR_BYTES),
    ("global.write.sectors", "MB that writes send", MEGABYTE / SECTOR_BYTES),
    ("shared.requests", "accesses to shared memory, counted a warp", 1),
    ("shared.wavefronts", "cycles that these take", 1),
)
# What is shown of counters.csv: metric, words, and by what it is divided. A sum is over all launches of a call.
METRICS: tuple[tuple[str, str, float], ...] = (
    ("dram__bytes_read.sum, cold", "MB read from DRAM, caches flushed", MEGABYTE),
    ("dram__bytes_write.sum, cold", "MB written to DRAM, caches flushed", MEGABYTE),
    ("dram__bytes_read.sum", "MB read from DRAM, caches warm", MEGABYTE),
    ("lts__t_sectors_srcunit_tex.sum", "MB between L1 and L2", MEGABYTE / SECTOR_BYTES),
    ("l1tex__t_bytes.sum", "MB through L1", MEGABYTE),
    ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "fused multiply-adds", 1),
    ("smsp__thread_inst_executed_pipe_xu_pred_on.sum", "special functions and conversions", 1),
    ("smsp__inst_executed.sum", "instructions, counted a warp", 1),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "wavefronts of shared memory", 1),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "of these bank conflicts", 1),
    ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio", "threads at work of a warp's 32, last launch", 1),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "% of an SM's warps resident, last launch", 1),
    ("smsp__issue_active.avg.pct_of_peak_sustained_active", "% of issue slots used, last launch", 1),
)


def launches(version: Version) -> Table:
    """Grid, block and shared memory of every launch, and the host syncs that the source's harness makes."""
    rows = []
    plans = planned(version.id)
    for problem in main_problems(plans):
        for step in plans[problem].steps:
            if not isinstance(step, Launch):
                rows.append((shape(problem), "host sync", "", "", ""))
                continue
            grid, block = (" × ".join(map(str, sizes)) for sizes in (step.grid, step.block))
            cluster = f" {small(f'clusters of {step.cluster}')}" if step.cluster > 1 else ""
            rows.append((shape(problem), code(step.kernel.name), grid + cluster, block, f"{step.shared_bytes:,}"))
    header = ("shape", "launch", "grid, blocks", "block, threads", "shared, B")
    caption = f"As planned for {EMULATED_TARGET}; other targets may get another core." if version.by_target else ""
    return Table(header, rows, numbers=header[2:], caption=caption)


def resources(records: Records, version: Version) -> Table | str:
    """What the compiler reports for every target; shapes with the same answer share a row."""
    found = records.resources.get(version.id)
    if found is None:
        return ""
    targets = list(dict.fromkeys(found["target"]))
    grouped: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
    launched = found.groupby(["launch", "problem", "kernel"], sort=False)
    for (launch, problem, kernel), assembled in sorted(launched, key=lambda entry: (entry[0][0], entry[0][1].hdim)):
        by_target = {row.target: row for row in assembled.itertuples()}
        first = next(iter(by_target.values()))
        cells = (_assembled(by_target[target]) if target in by_target else NOTHING for target in targets)
        dims, shared = grouped.setdefault((f"{launch + 1}. {code(kernel)}", *cells), ([], []))
        dims.append(problem.hdim)
        shared.append(first.shared_bytes)
    rows = [
        (name, ", ".join(map(str, dict.fromkeys(dims))), span(shared), *cells)
        for (name, *cells), (dims, shared) in grouped.items()
    ]
    header = ("launch", "head dim", "shared, B", *targets)
    return Table(
        header,
        rows,
        numbers=header[2:],
        caption="Registers a thread × blocks that an SM holds, by target; where there are any, bytes that a thread "
        "spills and bytes of its stack. Assembled without a GPU.",
    )


def _assembled(row: Any) -> str:
    return lines(
        f"{row.registers} {small(f'× {row.blocks_per_sm}')}",
        small(f"spills {row.spill_bytes:,}") if row.spill_bytes else "",
        small(f"stack {row.stack_bytes:,}") if row.stack_bytes else "",
    )


def counts(records: Records, version: Version) -> Table:
    """Exact counts from the emulator, beside those of the parent."""
    own = totals(records.counts.get(version.id), "counter")
    parent = version.parent or version.baseline or ""
    others = totals(records.counts.get(parent), "counter")
    caption = "One call, all launches and blocks, executed by the emulator."
    if set(own) & set(others):
        caption += f" Small: times those of {code(parent)} on the same problem."
    header = ("counted", *map(_shape, own))
    return Table(header, list(_grid(own, others, COUNTERS)), header[1:], caption)


def counters(records: Records, version: Version) -> Table:
    """Hardware counters, and what the warps wait for."""
    own = totals(records.counters.get(version.id), "metric")
    rows = list(_grid(own, {}, METRICS))
    if any(STALL.format(STALLS[0]) in values for values in own.values()):
        rows.append(("what a warp's time goes to, last launch", *map(_waits, own.values())))
    header = ("counter", *map(_shape, own))
    return Table(header, rows, header[1:], f"One call on the {records.gpu}, read by Nsight Compute.")


def _shape(problem: Problem) -> str:
    """Head dim and what tells problems of the same head dim apart, on two lines."""
    parts = [f"S {problem.seq_q}"] if problem.family == "fp16" else []
    parts += [f"R {problem.rotary_dim}"] if problem.rotary_dim else []
    parts += ["causal"] if problem.causal else []
    return lines(str(problem.hdim), small(" ".join(parts)) if parts else "")


def _grid(
    own: Mapping[Problem, Mapping[str, float]],
    others: Mapping[Problem, Mapping[str, float]],
    shown: Iterable[tuple[str, str, float]],
) -> Iterator[tuple[str, ...]]:
    """A row a counter and a cell a problem, with the ratio to another version where that counts it too."""
    for counter, label, divisor in shown:
        if not any(values.get(counter) for values in own.values()):
            continue
        cells = []
        for problem, values in own.items():
            value, other = values.get(counter, 0.0), others.get(problem, {}).get(counter, 0.0)
            cells.append(lines(_plain(value / divisor), small(f"{value / other:.3g}×") if other else ""))
        yield (label, *cells)


def _plain(value: float) -> str:
    """A count with all its digits, anything else with enough of them."""
    if value != value:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1e4 else f"{value:,.3g}"


def _waits(values: Mapping[str, float], most: int = 3) -> str:
    """The largest shares of a warp's time."""
    shares = {reason: values.get(STALL.format(reason), 0.0) for reason in STALLS}
    total = sum(shares.values()) or 1.0
    top = sorted(shares.items(), key=lambda item: -item[1])[:most]
    return lines(*(f"{reason.replace('_', ' ')} {100 * value / total:.0f} %" for reason, value in top))


def hazards(records: Records, version: Version) -> Table:
    """Declared defects of memory, and which tool saw them on the GPU."""
    where: dict[tuple[str, str, str, str], list[str]] = {}
    for problem, plan in planned(version.id).items():
        for hazard in plan.hazards:
            where.setdefault((hazard.kind, hazard.kernel, hazard.place, hazard.why), []).append(str(problem.hdim))
    found = records.sanitizers.get(version.id)
    rows = []
    for (kind, kernel, place, why), dims in where.items():
        seen: list[str] = []
        if found is not None:
            alike = found[(found["finding"] == kind) & (found["kernel"].isna() | (found["kernel"] == kernel))]
            seen = sorted(set(alike.loc[alike["place"].isna() | alike["place"].isin([place, "shared"]), "tool"]))
        at = ", ".join(dict.fromkeys(dims))
        rows.append((kind.replace("_", " "), code(kernel), code(place), escape(why), at, ", ".join(seen) or NOTHING))
    return Table(
        ("hazard", "kernel", "place", "why", "head dim", "seen on the GPU by"),
        rows,
        caption="The emulator sees exactly these; a check that sees another fails, and so does one that misses one.",
    )
