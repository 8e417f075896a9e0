"""Tables of a version's page beside its times: declared hazards, the compiler's reports, and what was counted."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from html import escape

import pandas as pd

from kernels import Problem, Version
from kernels.checking.check import supports

from ..evidence import Evidence
from ..models.moves import example
from ..models.rivals import label
from ..record.files import DATA, read_records
from ..record.published import main_problems
from ..record.text import NOTHING, number, span
from ..studies import COUNTED, MODELS, STUDIES
from .table import Table, code, lines, small
from .versions import shape


def of_table(table: str) -> list[tuple[str, str, float]]:
    """Counters that the pages show of counts.csv or counters.csv: counter, words, and by what it is divided."""
    rows = (row for row in read_records(DATA / "shown.csv", "shown") if row["table"] == table)
    return [(row["name"], row["words"], row["per"]) for row in rows]


COUNTERS, METRICS = of_table("counts"), of_table("counters")
READ, MORE = "dram__bytes_read.sum, cold", 1.1  # a counter, and from how many times as much on it is told of
METHOD = "<a href='../chapters/method.html#how-a-time-is-measured'>Method</a>"


def hazards(e: Evidence, version: Version) -> Table:
    """Declared defects of memory, and which tool saw them on the GPU."""
    studied = ([p for p in study.problems if supports(version, p)] for study in STUDIES.values())
    plans = map(version, next(filter(None, studied), [example(version).problem]))
    declared = [(h.kind, h.kernel, h.place, h.why, plan.problem.hdim) for plan in plans for h in plan.hazards]
    frame = pd.DataFrame(declared, columns=["kind", "kernel", "place", "why", "hdim"])
    seen = e.record.frame("sanitizers")
    seen = seen[seen["version"] == version.id]
    rows = []
    for (kind, kernel, place, why), dims in frame.groupby(["kind", "kernel", "place", "why"], sort=False)["hdim"]:
        tools = set(seen.loc[seen["finding"] == kind, "tool"])
        cells = kind.replace("_", " "), code(kernel), code(place), escape(why), ", ".join(map(str, dims.unique()))
        rows.append((*cells, ", ".join(sorted(tools)) or NOTHING))
    undeclared = seen[~seen["expected"].astype(bool) & (seen["finding"] != "not_checked")]
    for kind, tool in undeclared[["finding", "tool"]].drop_duplicates().itertuples(index=False):
        rows.append((kind.replace("_", " "), NOTHING, NOTHING, "not declared: the emulator finds none", NOTHING, tool))
    return Table(
        ("hazard", "kernel", "place", "why", "head dim", "reported by"),
        rows,
        caption="The emulator sees exactly what is declared: a check that sees more or less fails. Reported by: a tool "
        "of compute-sanitizer, on the GPU. Racecheck reports that a race is possible, whatever the result.",
    )


def resources(e: Evidence, version: Version) -> Table | str:
    """Reports of the compiler for every target; shapes with equal reports share a row."""
    groups = chosen(e.record.resources.get(version.id, {}), version)
    if not groups:
        return ""
    found = pd.concat(groups.values())
    targets = sorted(set(found["target"]), key=lambda target: int(target.removeprefix("sm_")))
    found["cell"] = [
        lines(
            f"{row.registers} {small(f'× {row.blocks_per_sm}')}",
            *(small(f"{what} {n:,}") for what, n in (("spills", row.spill_bytes), ("stack", row.stack_bytes)) if n),
        )
        for row in found.itertuples()
    ]
    wide = found.set_index(["launch", "kernel", "hdim", "problem", "shared_bytes", "target"])["cell"].unstack()
    wide = wide.reindex(columns=targets).fillna(NOTHING).reset_index()
    rows = [
        (
            f"{launch + 1}. {code(kernel)}",
            ", ".join(map(str, mine["hdim"].unique())),
            span(mine["shared_bytes"]),
            *cells,
        )
        for (launch, kernel, *cells), mine in wide.groupby(["launch", "kernel", *targets], sort=False)
    ]
    header = ("launch", "head dim", "shared, B", *targets)
    caption = (
        "Registers a thread × blocks that an SM holds, by target; where there are any, bytes that a thread "
        "spills and bytes of its stack. Assembled without a GPU."
    )
    return Table(header, rows, numbers=header[2:], caption=caption)


def chosen(groups: Mapping[Problem, pd.DataFrame], version: Version) -> Mapping[Problem, pd.DataFrame]:
    """Of rows by problem those at shapes of the log and of models, if a version beyond the log has any; else all."""
    asked = {(name, problem) for study in (COUNTED, MODELS) for name, problem in study.pairs()}
    found = {problem: rows for problem, rows in groups.items() if (version.id, problem) in asked}
    return found or groups


def totals(groups: Mapping[Problem, pd.DataFrame], name: str) -> dict[Problem, dict[str, float]]:
    """By problem, the sum of each counter over the launches; of what is no sum, that of the last launch."""
    found = {}
    for problem in main_problems(groups):
        values = groups[problem].sort_values("launch", kind="stable").groupby(name)["value"]
        sums = values.sum()
        found[problem] = sums.where([".sum" in key or "__" not in key for key in sums.index], values.last()).to_dict()
    return found


def counts(e: Evidence, version: Version) -> Table:
    """Exact counts from the emulator, beside those of the parent."""
    parent = version.parent or version.baseline or ""
    found = (chosen(e.record.counts.get(each, {}), version) for each in (version.id, parent))
    own, others = (totals(groups, "counter") for groups in found)
    caption = f"One call, executed by the emulator. How it counts: {METHOD}."
    if set(own) & set(others):
        caption += f" Small: times those of {code(parent)} on the same problem."
    header = ("counted", *map(shape, own))
    return Table(header, list(_grid(own, others, COUNTERS)), header[1:], caption)


def counters(e: Evidence, version: Version) -> Table:
    """Hardware counters, and where they seem to contradict each other."""
    groups = e.record.counters.get(version.id, {})
    groups = {problem: rows[rows["study"] != "matched"] for problem, rows in groups.items()}
    own = totals({problem: rows for problem, rows in groups.items() if len(rows)}, "metric")
    rows, header = list(_grid(own, {}, METRICS)), ("counter", *map(shape, own))
    caption = (
        f"One call on the {e.card}, read by Nsight Compute. Issue slots are those of an SM's schedulers. Several warps "
        "share one, so a single warp issues in a smaller share of its time."
    )
    return Table(header, rows, header[1:], caption + _causal_reads(own))


def _causal_reads(own: Mapping[Problem, Mapping[str, float]]) -> str:
    """Why a prompt kernel reads more from DRAM with a mask, where it does at some shape."""
    for problem, values in own.items():
        masked = own.get(replace(problem, causal=True), {}).get(READ, 0.0)
        if not problem.causal and masked > MORE * values.get(READ, math.inf):
            return (
                f" At {label(problem)} a causal call reads more from DRAM than one without a mask, although it needs "
                "fewer keys. The order of its blocks is another: without a mask blocks of one head run together, and "
                "with it blocks of all heads, those with the most keys first. So K and V of more heads share L2. That "
                "they leave L2 before they are read again is likely, but no counter here shows it."
            )
    return ""


def _grid(
    own: Mapping[Problem, Mapping[str, float]],
    others: Mapping[Problem, Mapping[str, float]],
    shown: Iterable[tuple[str, str, float]],
) -> Iterator[tuple[str, ...]]:
    """A row a counter and a cell a problem, with the ratio to another version where that counts it too."""
    for counter, words, divisor in shown:
        if not any(values.get(counter) for values in own.values()):
            continue
        cells = []
        for problem, values in own.items():
            value, other = values.get(counter, 0.0), others.get(problem, {}).get(counter, 0.0)
            cells.append(lines(number(value / divisor), small(f"{value / other:.3g}×") if other else ""))
        yield (words, *cells)
