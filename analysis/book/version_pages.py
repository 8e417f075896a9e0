"""A page of the book for every version, and one for every family: `write(gpu)` makes book/versions/ from data.

What a version is comes from its registration and its plans, what it does from the tables under data/, what it looks
like from its source. Nothing is typed here but the words around it, so a version that is registered has a page.
"""

from __future__ import annotations

import functools
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from kernels import VERSIONS, Plan, Problem, Unsupported, Version
from kernels.fast_math import SUFFIX
from kernels.version import Launch

from ..measure.counters import STALL, STALLS
from ..measure.studies import STUDIES, TIMERS
from ..models.roofline import SECTOR_BYTES
from ..records import published
from ..records.current import complete_runs
from ..records.files import COUNTS, RESOURCES, ROOT, DataError, gpu_folder, problem_of, read_table
from ..records.measured import Measured
from ..records.text import spread
from ..verdicts import claims
from ..verdicts.rule import stands
from . import figures, sources, tables
from .tables import NOTHING, Table, badge, code, small

FOLDER = ROOT / "book" / "versions"
WORDS = {"rope": "RoPE", "fp16": "Half precision", "alibi": "ALiBi"}  # of a family; the others are capitalised
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
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "cycles of shared memory", 1),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "of these bank conflicts", 1),
    ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio", "threads at work of a warp's 32, last launch", 1),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "% of an SM's warps resident, last launch", 1),
    ("smsp__issue_active.avg.pct_of_peak_sustained_active", "% of issue slots used, last launch", 1),
)


class Records:
    """All that is known about the versions on one GPU, by version, from some studies or all.

    Raises: DataError where nothing is measured, and for a damaged file.
    """

    def __init__(self, slug: str, studies: Iterable[str] = tuple(STUDIES)) -> None:
        folder = gpu_folder(slug)
        self.slug = slug
        self.studies = dict(self._complete(folder, studies))
        if not self.studies:
            raise DataError(f"{folder / 'runs.csv'}: no run of any study is complete")
        self.counts = _by_version(COUNTS, "counts")
        self.counters = _by_version(folder / "counters.csv", "counters")
        self.resources = _by_version(RESOURCES, "resources")
        self.sanitizers = _by_version(folder / "sanitizers.csv", "sanitizers")
        path = folder / "verdicts.csv"
        found = read_table(path, "verdicts") if path.exists() else pd.DataFrame(columns=["claim_id", "verdict"])
        self.verdicts = dict(zip(found["claim_id"], found["verdict"], strict=True))

    @staticmethod
    def _complete(folder: Path, studies: Iterable[str]) -> Iterator[tuple[str, Measured]]:
        """The studies with a complete run."""
        complete = complete_runs(read_table(folder / "runs.csv", "runs"))
        for study in studies:
            if study in complete:
                yield study, Measured.read(folder, study)

    @property
    def gpu(self) -> str:
        return str(next(iter(self.studies.values())).gpu["name"])

    def taken(self, name: str) -> dict[str, list[Problem]]:
        """By study, the measured problems of a version but those that it does not take."""
        found = {}
        for study, measured in self.studies.items():
            checked = [(problem, measured.check(name, problem)) for problem in measured.problems(VERSIONS[name].family)]
            problems = [problem for problem, check in checked if check and check.status != "unsupported"]
            if problems:
                found[study] = problems
        return found


def _by_version(path: Path, table: str) -> dict[str, pd.DataFrame]:
    """Rows of a table by version, with their problem; none where there is no such file."""
    if not path.exists():
        return {}
    frame = read_table(path, table)
    frame["problem"] = [problem_of(row) for row in frame.to_dict("records")]
    return dict(list(frame.groupby("version", sort=False)))


# ---------------------------------------------------------------- words


def family_title(family: str) -> str:
    return WORDS.get(family, family.capitalize())


def in_order(family: str) -> list[Version]:
    """The versions of a family as the pages follow: the log's, twins behind their originals; ablations; peers."""
    order = list(VERSIONS)
    mine = [version for version in VERSIONS.values() if version.family == family]
    return sorted(mine, key=lambda v: (v.is_peer, v.ablation, order.index(v.id.removesuffix(SUFFIX)), v.id))


def families() -> list[str]:
    return list(dict.fromkeys(version.family for version in VERSIONS.values()))


def link(name: str, text: str = "") -> str:
    """A link to a version's page. Raises: DataError when there is no such version."""
    if name not in VERSIONS:
        raise DataError(f"a page would link to {name!r}, which is no version; known: {', '.join(VERSIONS)}")
    return f"[{text or f'`{name}`'}]({name}.md)"


def prose(text: str) -> str:
    """A paragraph of a docstring as HTML."""
    return "<p>" + re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(" ".join(text.split()))) + "</p>"


def shape(problem: Problem) -> str:
    """Head dim, and the rest of the shape small."""
    parts = [f"B {problem.batch} H {problem.heads} S {problem.seq_q}"]
    parts += [f"/{problem.seq_k}"] if problem.seq_k != problem.seq_q else []
    parts += [f" R {problem.rotary_dim}"] if problem.rotary_dim else []
    parts += [" causal"] if problem.causal else []
    return f"{problem.hdim} {small(''.join(parts))}"


def short_shape(problem: Problem) -> str:
    """Head dim and what tells problems of the same head dim apart, on two lines."""
    parts = [f"S {problem.seq_q}"] if problem.family == "fp16" else []
    parts += [f"R {problem.rotary_dim}"] if problem.rotary_dim else []
    parts += ["causal"] if problem.causal else []
    return f"{problem.hdim}<br>{small(' '.join(parts))}" if parts else str(problem.hdim)


def main_problems(problems: Iterable[Problem]) -> list[Problem]:
    """A problem a shape: with RoPE the one that rotates the published part of the dims, where there is one."""
    chosen = {}
    for problem in sorted(problems, key=lambda p: (p.hdim, p.seq_q, p.causal, -p.rotary_dim)):
        chosen[problem.batch, problem.heads, problem.seq_q, problem.seq_k, problem.hdim, problem.causal] = problem
    return list(chosen.values())


def plain(value: float) -> str:
    """A count with all its digits, anything else with enough of them."""
    if value != value:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1e4 else f"{value:,.3g}"


def html(table: Table) -> str:
    return table._repr_html_() if table.rows else ""


def folded(title: str, *blocks: str) -> str:
    """Blocks behind a summary; nothing where there are none."""
    inner = "\n\n".join(block for block in blocks if block)
    return f"<details><summary>{title}</summary>\n\n{inner}\n\n</details>" if inner else ""


def section(title: str, *blocks: str) -> str:
    """Blocks under a heading; nothing where there are none."""
    inner = [block for block in blocks if block]
    return "\n\n".join([f"## {title}", *inner]) if inner else ""


# ---------------------------------------------------------------- what a version is


def plans(version: Version, problems: Iterable[Problem]) -> dict[Problem, Plan]:
    """Plans for the problems that a version takes."""
    found = {}
    for problem in problems:
        try:
            found[problem] = version(problem)
        except Unsupported:
            continue
    return found


@functools.cache
def planned(name: str) -> dict[Problem, Plan]:
    """Plans for the first study that a version takes a problem of; for a small problem where it takes none.

    None of a peer, which has no launches of its own.
    """
    version = VERSIONS[name]
    if version.is_peer:
        return {}
    for study in STUDIES.values():
        if found := plans(version, (problem for problem in study.problems if problem.family == version.family)):
            return found
    plan = sources.example(version)
    return {plan.problem: plan}


def head(version: Version) -> str:
    """Title, what changed, source, and the way to the neighbours."""
    lines = [f"# {version.id}", f"**{version.title}**", _neighbours(version)]
    if version.parent:
        lines.append(f"Changes {link(version.parent)}: {version.change}.")
    elif version.change:
        lines.append(f"{version.change[0].upper()}{version.change[1:]}.")
    what = "An ablation, not a version of the log: one thing changed, to see what it costs."
    facts = [what if version.ablation else f"*Source*: {version.source}."]
    if version.baseline:
        facts.append(f"*Compared with* {link(version.baseline)}.")
    path = Path(*version.module.split(".")).with_suffix(".py")
    if (ROOT / path).is_file():
        facts.append(f"*Code*: `{path}`.")
    return "\n\n".join([*lines, " ".join(facts)])


def _neighbours(version: Version) -> str:
    order = in_order(version.family)
    before = {after.id: one for one, after in pairwise(order)}.get(version.id)
    behind = {one.id: after for one, after in pairwise(order)}.get(version.id)
    parts = [
        f"← {link(before.id)}" if before else "",
        f"[{family_title(version.family)}, every version]({version.family}.md)",
        f"{link(behind.id)} →" if behind else "",
    ]
    return " · ".join(part for part in parts if part)


def words(version: Version) -> str:
    """What the file says of itself, without its title and its source."""
    document = sys.modules[version.module].__doc__ if version.module in sys.modules else None
    paragraphs = (document or "").strip().split("\n\n")[1:]
    return "\n".join(prose(text) for text in paragraphs if not text.startswith(("Source:", "    ")))


# ---------------------------------------------------------------- what was measured


def times(records: Records, version: Version) -> str:
    """Times and ratios by shape, the study of the documents' shapes open and the others folded."""
    blocks: list[str] = []
    for study, problems in records.taken(version.id).items():
        main = main_problems(problems)
        rest = [problem for problem in problems if problem not in main]
        about = f"Study {study}: {STUDIES[study].about[0].lower()}{STUDIES[study].about[1:]}"
        for chosen, words in ((main, about), (rest, f"{about}; all dims rotated")):
            table = html(_times(records.studies[study], version, chosen)) if chosen else ""
            blocks.append(folded(words, table) if blocks and table else table)
    if not blocks:
        return section("Measured", f"Not measured on the {records.gpu} yet.", html(_expected(version)))
    return section("Measured", *blocks)


def _times(measured: Measured, version: Version, problems: Sequence[Problem]) -> Table:
    others = list(dict.fromkeys(name for name in (version.baseline, version.parent) if name))
    timers = [timer for timer in TIMERS if any(measured.time(version.id, p, timer) for p in problems)]
    said = {problem: _published(measured, version, problem) for problem in problems}
    printed = any(said.values())
    header = ["shape", "check", *(f"over {name}" for name in others), *(["published"] if printed else [])]
    header = [name.replace("_", "_<wbr>") for name in [*header, *(f"{timer}, µs" for timer in timers)]]
    rows = []
    for problem in problems:
        ratios = [tables.ratio(measured.ratio(other, version.id, problem)) for other in others]
        taken = [tables.microseconds(measured.time(version.id, problem, timer)) for timer in timers]
        stated = [said[problem] or NOTHING] if printed else []
        rows.append((shape(problem), badge(measured.check(version.id, problem)), *ratios, *stated, *taken))
    caption = (
        f"Run {measured.run['run']} on the {measured.gpu['name']}. Over: how many times as fast, on the device "
        "(device_warm), with the 95 % interval over the processes. µs: median of "
        f"{measured.processes} processes ± half their range."
    )
    if printed:
        caption += f" Published on the {published.card(version.family)}; times of different cards are not compared."
    if any(measured.stale(version.id, problem) for problem in problems):
        caption += " <b>Stale</b>: the code has changed since."
    return Table(header, rows, numbers=header[2:], caption=caption)


def _published(measured: Measured, version: Version, problem: Problem) -> str:
    """The published speedup over the baseline, how the measured one stands to it, and the published time."""
    lines = []
    if version.baseline and (claim := published.speedup(version.id, version.baseline, problem)):
        lines.append(tables.stated(claim, "×"))
        lines.append(small(stands(claim.value, measured.ratio(version.baseline, version.id, problem))))
    if taken := published.published(version.id, problem):
        ends = dict.fromkeys(f"{end:.3f}" for end in (taken.low, taken.high))
        lines.append(small(f"{'–'.join(ends)} ms"))
    return "<br>".join(line for line in lines if line)


def _expected(version: Version) -> Table:
    """What its plans say that it does, where nothing was measured."""
    rows = [(shape(problem), plan.expected, escape(plan.defect)) for problem, plan in planned(version.id).items()]
    return Table(("shape", "declared", "reason"), rows)


def rightness(records: Records, version: Version) -> str:
    """Every reason why a result is not right or not there, and the check of every problem of every study."""
    rows = []
    reasons: dict[tuple[str, str], list[str]] = {}  # by what the check says
    not_taken: dict[tuple[str, str], list[str]] = {}
    for study, measured in records.studies.items():
        for problem in measured.problems(version.family):
            check = measured.check(version.id, problem)
            if check is None:
                continue
            if check.reason:
                where = not_taken if check.status == "unsupported" else reasons
                where.setdefault((badge(check), check.reason), []).append(str(problem.hdim))
            if check.status != "unsupported":
                errors = (tables.error(check.max_abs_err), tables.error(check.allowed_abs_err))
                rows.append((code(study), shape(problem), badge(check), *errors, tables.share(check.nan_share)))
    header = ("study", "shape", "check", "largest error", "allowed", "NaN")
    table = Table(
        header,
        rows,
        numbers=header[3:],
        caption="Against float64 on two inputs; the worse decides. The largest error is over outputs that are finite.",
    )
    return section(
        "Checked",
        _reasons(reasons),
        folded(f"{len(rows)} checks against float64", html(table)),
        folded(f"{len(not_taken)} reasons why it does not take a problem", _reasons(not_taken)),
    )


def _reasons(found: Mapping[tuple[str, str], Sequence[str]]) -> str:
    listed = [
        f"<li>{how} {escape(reason)}{_where(reason, dims)}</li>"
        for (how, reason), dims in sorted(found.items(), key=lambda entry: int(entry[1][0]))
    ]
    return f"<ul class='evidence-list'>{''.join(listed)}</ul>" if listed else ""


def _where(reason: str, dims: Sequence[str]) -> str:
    """Head dims that a reason holds at, unless it says so itself."""
    dims = list(dict.fromkeys(dims))
    return "" if reason.startswith("hdim") and len(dims) == 1 else " " + small("at head dim " + ", ".join(dims))


def hazards(records: Records, version: Version) -> str:
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
            mine = found[(found["finding"] == kind) & (found["kernel"] == kernel)]
            seen = sorted(set(mine.loc[mine["place"].isin([place, "shared"]), "tool"]))
        at = ", ".join(dict.fromkeys(dims))
        rows.append((kind.replace("_", " "), code(kernel), code(place), escape(why), at, ", ".join(seen) or NOTHING))
    table = Table(
        ("hazard", "kernel", "place", "why", "head dim", "seen on the GPU by"),
        rows,
        caption="The emulator sees exactly these; a check that sees another fails, and so does one that misses one.",
    )
    return section("Declared hazards", html(table))


def launches(version: Version) -> str:
    """Grid, block and shared memory of every launch, and the host syncs that the source's harness makes."""
    rows = []
    mine = planned(version.id)
    for problem in main_problems(mine):
        for step in mine[problem].steps:
            if not isinstance(step, Launch):
                rows.append((shape(problem), "host sync", "", "", ""))
                continue
            grid, block = (" × ".join(map(str, sizes)) for sizes in (step.grid, step.block))
            cluster = f" {small(f'clusters of {step.cluster}')}" if step.cluster > 1 else ""
            rows.append((shape(problem), code(step.kernel.name), grid + cluster, block, f"{step.shared_bytes:,}"))
    header = ("shape", "launch", "grid, blocks", "block, threads", "shared, B")
    return section("Launches of one call", html(Table(header, rows, numbers=header[2:])))


def resources(records: Records, version: Version) -> str:
    """What the compiler reports for every target; shapes with the same answer share a row."""
    found = records.resources.get(version.id)
    if found is None:
        return ""
    targets = list(dict.fromkeys(found["target"]))
    grouped: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
    launched = found.groupby(["launch", "problem"], sort=False)
    for (launch, problem), mine in sorted(launched, key=lambda entry: (entry[0][0], entry[0][1].hdim)):
        by_target = {row.target: row for row in mine.itertuples()}
        first = next(iter(by_target.values()))
        cells = (_assembled(by_target[target]) if target in by_target else NOTHING for target in targets)
        dims, shared = grouped.setdefault((f"{launch + 1}. {code(first.kernel)}", *cells), ([], []))
        dims.append(problem.hdim)
        shared.append(first.shared_bytes)
    rows = [
        (key[0], ", ".join(map(str, dict.fromkeys(dims))), _span(shared), *key[1:])
        for key, (dims, shared) in grouped.items()
    ]
    header = ("launch", "head dim", "shared, B", *targets)
    table = Table(
        header,
        rows,
        numbers=header[2:],
        caption="Registers a thread × blocks that an SM holds, by target; where there are any, bytes that a thread "
        "spills and bytes of its stack. Assembled without a GPU.",
    )
    return section("What the compiler reports", html(table))


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _assembled(row: Any) -> str:
    lines = [f"{row.registers} {small(f'× {row.blocks_per_sm}')}"]
    lines += [small(f"spills {row.spill_bytes:,}")] if row.spill_bytes else []
    lines += [small(f"stack {row.stack_bytes:,}")] if row.stack_bytes else []
    return "<br>".join(lines)


def _totals(frame: pd.DataFrame | None, name: str) -> dict[Problem, Mapping[str, float]]:
    """By problem, the sum of each counter over the launches; of what is no sum, that of the last launch."""
    if frame is None:
        return {}
    found = {}
    for problem, mine in frame.groupby("problem", sort=False):
        last = mine[mine["launch"] == mine["launch"].max()]
        sums = mine.groupby(name)["value"].sum()
        averages = [key for key in sums.index if "__" in key and ".sum" not in key]
        found[problem] = {**sums, **last[last[name].isin(averages)].set_index(name)["value"]}
    return {problem: found[problem] for problem in main_problems(found)}


def _grid(
    mine: Mapping[Problem, Mapping[str, float]],
    theirs: Mapping[Problem, Mapping[str, float]],
    shown: Iterable[tuple[str, str, float]],
) -> Iterator[tuple[str, ...]]:
    """A row a counter and a cell a problem, with the ratio to another version where that counts it too."""
    for counter, label, divisor in shown:
        if not any(values.get(counter) for values in mine.values()):
            continue
        cells = []
        for problem, values in mine.items():
            value, other = values.get(counter, 0.0), theirs.get(problem, {}).get(counter, 0.0)
            ratio = f"<br>{small(f'{value / other:.3g}×')}" if other else ""
            cells.append(f"{plain(value / divisor)}{ratio}")
        yield (label, *cells)


def counts(records: Records, version: Version) -> str:
    """Exact counts from the emulator, beside those of the parent."""
    mine = _totals(records.counts.get(version.id), "counter")
    parent = version.parent or version.baseline or ""
    theirs = _totals(records.counts.get(parent), "counter")
    caption = "One call, all launches and blocks, executed by the emulator."
    if set(mine) & set(theirs):
        caption += f" Small: times those of {code(parent)} on the same problem."
    header = ("counted", *map(short_shape, mine))
    return section("Counted", html(Table(header, list(_grid(mine, theirs, COUNTERS)), header[1:], caption)))


def counters(records: Records, version: Version) -> str:
    """Hardware counters, and what the warps wait for."""
    mine = _totals(records.counters.get(version.id), "metric")
    rows = list(_grid(mine, {}, METRICS))
    if any(STALL.format(STALLS[0]) in values for values in mine.values()):
        rows.append(("what a warp's time goes to, last launch", *map(_waits, mine.values())))
    header = ("counter", *map(short_shape, mine))
    caption = f"One call on the {records.gpu}, read by Nsight Compute."
    return section("Hardware counters", html(Table(header, rows, header[1:], caption)))


def _waits(values: Mapping[str, float], most: int = 3) -> str:
    """The largest shares of a warp's time."""
    shares = {reason: values.get(STALL.format(reason), 0.0) for reason in STALLS}
    total = sum(shares.values()) or 1.0
    top = sorted(shares.items(), key=lambda item: -item[1])[:most]
    return "<br>".join(f"{reason.replace('_', ' ')} {100 * value / total:.0f} %" for reason, value in top)


# ---------------------------------------------------------------- what the documents say of it


@functools.cache
def _claims() -> dict[str, list[claims.Claim]]:
    """Claims by the versions that their tests name."""
    found: dict[str, list[claims.Claim]] = {}
    for claim in claims.load():
        for name in sorted({name for test in claim.tests for name in claims.versions_of(test)}):
            found.setdefault(name, []).append(claim)
    return found


def judged(records: Records, version: Version) -> str:
    """The claims whose tests name it, each with its verdict."""
    return section("Claims that name it", html(tables.verdicts(records.verdicts, _claims().get(version.id, ()))))


def documents(version: Version) -> str:
    """Every number that is printed or logged of it."""
    frame = published.load()
    frame = frame[frame["version"] == version.id].astype(object)
    frame = frame.where(frame.notna(), None)
    rows = [
        (
            escape(row["source_document"]),
            f"{escape(row['locator'])} {small(row['id'])}",
            f"{row['hdim']:.0f}" if row["hdim"] else NOTHING,
            escape(row["quantity"].replace("_", " ")) + (f", over {code(row['baseline'])}" if row["baseline"] else ""),
            f"{row['value']:,.6g} {escape(_unit(row['unit']))}",
        )
        for row in frame.to_dict("records")
    ]
    header = ("document", "place", "head dim", "what", "value")
    table = html(Table(header, rows, (header[2], header[4])))
    return section("Published", folded(f"{len(rows)} numbers of the documents and their logs", table))


def _unit(unit: str | None) -> str:
    return {"x_faster": "× as fast", "x_slower": "× as long"}.get(unit or "", (unit or "").replace("_", " "))


# ---------------------------------------------------------------- what it looks like


def _listing(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```" if text.strip() else ""


def changes(version: Version) -> str:
    """What the file says, and the diff to the parent."""
    if not version.parent:
        return section("What it is", words(version))
    return section(
        "What it changes",
        words(version),
        _listing("diff", sources.diff_text(version.id)) or "The source is the parent's.",
    )


def source(version: Version) -> str:
    """The kernels and the launches of one call; of a peer, its file."""
    return section("Source", _listing("python", sources.kernel_text(version.id)))


def page(records: Records, version: Version) -> str:
    """The page of a version, as MyST Markdown. Raises: DataError when it would link to a version that is not there."""
    parts = [
        head(version),
        times(records, version),
        rightness(records, version),
        judged(records, version),
        hazards(records, version),
        launches(version),
        resources(records, version),
        counts(records, version),
        counters(records, version),
        changes(version),
        source(version),
        documents(version),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


# ---------------------------------------------------------------- families, contents, files


def home(records: Records, family: str) -> Measured | None:
    """The first study in which versions of a family were measured."""
    return next((measured for measured in records.studies.values() if measured.versions(family)), None)


def family_page(records: Records, family: str) -> str:
    """Everything that was measured of a family, a row a version and a column a head dim."""
    measured = home(records, family)
    parts = [f"# {family_title(family)}: every version", html(overview(records.studies.values(), family))]
    if measured is None:
        return "\n\n".join(parts) + "\n"
    timers = [
        timer for timer in TIMERS
        if any(measured.medians(name, problem, timer).size for name, problem in _pairs(measured, family))
    ]  # fmt: skip
    parts.append(section("Speed over the baseline", html(tables.speedups(measured, family))))
    parts += [section(f"Time, {timer}", html(tables.times(measured, family, timer))) for timer in timers]
    parts.append(section("Checked against float64", html(tables.checks(measured, family))))
    parts.append(section("What the compiler reports", html(tables.resources(family))))
    return "\n\n".join(part for part in parts if part) + "\n"


def _pairs(measured: Measured, family: str) -> Iterator[tuple[str, Problem]]:
    return ((name, problem) for name in measured.versions(family) for problem in measured.problems(family))


def overview(studies: Iterable[Measured], family: str = "") -> Table:
    """A line a version: how its checks went and its speed over its baseline, measured and published.

    Of each version the first of the studies that it was measured in. For one family also what each version changes.
    """
    studies = list(studies)
    rows = []
    for version in (version for each in ([family] if family else families()) for version in in_order(each)):
        measured = next((each for each in studies if version.id in set(each.checks["version"])), None)
        found = _in_short(measured, version) if measured else (small("not measured"), NOTHING, NOTHING)
        if family:
            change = f"{code(version.parent)}: " if version.parent else ""
            change = change + escape(version.change) or NOTHING
            rows.append((tables.name(version.id), change, *found))
        else:
            page = tables.link(version.id, f"<code>{version.id}</code>")
            rows.append((family_title(version.family), page, *found))
    first = ("version", "what it changes") if family else ("family", "version")
    header = (*first, "check", "on the device", "published")
    caption = (
        "Small: head dims. Speed over the baseline that the source names, least to largest over the head dims; above 1 "
        "the version is faster."
    )
    return Table(header, rows, header[3:], caption)


def _in_short(measured: Measured, version: Version) -> tuple[str, str, str]:
    """Checks by outcome, and the range of the speedups over the baseline."""
    outcomes: dict[str, list[str]] = {}
    found, said = [], []
    for problem in measured.problems(version.family):
        check = measured.check(version.id, problem)
        if check and check.status != "unsupported":
            outcomes.setdefault(badge(check), []).append(str(problem.hdim))
            if version.baseline:
                found.append(measured.ratio(version.baseline, version.id, problem))
                said.append(published.speedup(version.id, version.baseline, problem))
    where = {how: list(dict.fromkeys(dims)) for how, dims in outcomes.items()}
    checks = "<br>".join(
        f"{how} {small(', '.join(dims) if len(where) > 1 else 'at all')}" for how, dims in where.items()
    )
    measured_range, stated_range = (spread(each.value for each in values if each) for values in (found, said))
    return checks or NOTHING, measured_range, stated_range


def contents() -> list[dict[str, Any]]:
    """The pages as entries of the table of contents: a family each, its versions below."""
    return [
        {
            "file": f"book/versions/{family}",
            "title": family_title(family),
            "sections": [{"file": f"book/versions/{v.id}", "title": figures.short(v.id)} for v in in_order(family)],
        }
        for family in families()
    ]


def write(slug: str, folder: Path = FOLDER) -> list[Path]:
    """Make the pages anew for the measurements of a GPU. Raises: DataError."""
    records = Records(slug)
    pages = {version.id: page(records, version) for version in VERSIONS.values()}
    pages |= {family: family_page(records, family) for family in families()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = []
    for name, text in pages.items():
        paths.append(folder / f"{name}.md")
        paths[-1].write_text(text, encoding="utf-8")
    return paths
