"""Tables of the book: plain HTML, published beside measured, nothing hidden."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from kernels import VERSIONS, Problem

from ..measure.studies import TIMERS
from ..models import cost_model, profiles
from ..records import published
from ..records.files import RESOURCES, gpu_folder, read_table
from ..records.interval import Ratio
from ..records.measured import Check, Measured, Time, baseline_of
from ..records.schema import STATUSES
from ..records.text import NOTHING, spread
from ..verdicts import claims
from ..verdicts.rule import UNDECIDED, stands

SOURCE_TIMER = "launched"
REFERENCE = {"attention": "attention_online_fixed", "sinusoidal": "sinusoidal_separate_float4", "rope": "rope_separate"}


@dataclass(frozen=True)
class Table:
    """Rows of HTML cells. `numbers` names the columns that are set flush right; equal first cells are joined."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()
    caption: str = ""

    def _repr_html_(self) -> str:
        def cell(tag: str, column: int, text: str, attributes: str = "") -> str:
            kind = "number" if self.header[column] in self.numbers else self.header[column].split(",")[0]
            return f"<{tag} class='{kind}'{attributes}>{text}</{tag}>"

        head = "".join(cell("th", i, name, ' scope="col"') for i, name in enumerate(self.header))
        body, row = [], 0
        while row < len(self.rows):
            first = self.rows[row][0]
            same = 1
            while row + same < len(self.rows) and self.rows[row + same][0] == first:
                same += 1
            for k in range(same):
                start = cell("th", 0, first, f' scope="rowgroup" rowspan="{same}"') if k == 0 else ""
                cells = "".join(cell("td", i, text) for i, text in enumerate(self.rows[row + k]) if i)
                body.append(f"<tr class='{'' if k else 'group'}'>{start}{cells}</tr>")
            row += same
        caption = f"<p class='evidence-caption'>{self.caption}</p>" if self.caption else ""
        table = f"<table class='evidence'><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        return f"<div class='evidence-scroll' tabindex='0'>{table}</div>{caption}"


# ---------------------------------------------------------------- cells


def small(text: str) -> str:
    return f"<small>{text}</small>"


def hdim(problem: Problem) -> str:
    if problem.family == "fp16":
        return f"{problem.hdim} {small(f'S {problem.seq_q}' + (' causal' if problem.causal else ''))}"
    rotary = f" {small(f'R {problem.rotary_dim}')}" if problem.rotary_dim else ""
    return f"{problem.hdim}{rotary}"


def name(version: str, stale: bool = False) -> str:
    title = VERSIONS[version].title if version in VERSIONS else "no longer registered"
    mark = " <span class='status stale'>stale</span>" if stale else ""
    return f"{link(version)}{mark}<small class='title'><br>{escape(title)}</small>"


def link(version: str, text: str = "") -> str:
    """An id that leads to the version's page, from a chapter as from another version's page."""
    text = text or code(version)
    return f"<a href='../versions/{version}.html'>{text}</a>" if version in VERSIONS else text


def code(version: str) -> str:
    """An id that may break after an underscore."""
    return f"<code>{escape(version).replace('_', '_<wbr>')}</code>"


def ratio(value: Ratio | None) -> str:
    if value is None:
        return NOTHING
    interval = f"<br>{small(f'{value.low:.2f}–{value.high:.2f}')}" if value.low == value.low else ""
    return f"{value.value:.2f}×{interval}"


def microseconds(value: Time | None) -> str:
    if value is None:
        return NOTHING
    return f"{value.us:.1f} {small(f'± {(value.high - value.low) / 2:.1f}')}"


def stated(value: published.Published | None, unit: str = "", digits: int = 2) -> str:
    if value is None:
        return NOTHING
    spread = f"{value.high - value.low:.{digits}f}" != f"{0:.{digits}f}"
    others = f"<br>{small(f'{value.low:.{digits}f}–{value.high:.{digits}f}')}" if spread else ""
    return f"{value.value:.{digits}f}{unit}{others}"


def badge(check: Check | None) -> str:
    return NOTHING if check is None else f"<span class='status {check.status}'>{check.status}</span>"


def share(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:.1f} %"


def error(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.1e}"


# ---------------------------------------------------------------- tables


def _by_hdim(
    evidence: Measured,
    family: str,
    cell: Callable[[str, Problem], str],
    caption: str,
    versions: Iterable[str] | None = None,
    last: tuple[str, Callable[[str], str]] | None = None,
) -> Table:
    """A row a version and a column a head dim; with RoPE each version at the rotary dim that was published of it."""
    names = list(evidence.versions(family) if versions is None else versions)
    dims = sorted({size for version in names for size in evidence.shapes(version)})
    rows = []
    for version in names:
        shapes = evidence.shapes(version)
        stale = any(evidence.stale(version, problem) for problem in shapes.values())
        cells = [cell(version, shapes[size]) if size in shapes else NOTHING for size in dims]
        rows.append((name(version, stale), *cells, *([last[1](version)] if last else [])))
    numbers = [str(size) for size in dims]
    return Table(("version", *numbers, *([last[0]] if last else [])), rows, numbers=numbers, caption=caption)


def speedups(evidence: Measured, family: str, timer: str = "device_warm") -> Table:
    """Speedup over each version's own baseline, with what was published of it."""

    def cell(version: str, problem: Problem) -> str:
        baseline = baseline_of(version)
        claim, found = published.speedup(version, baseline, problem), evidence.ratio(baseline, version, problem, timer)
        check = evidence.check(version, problem)
        lines = [ratio(found)] if found else []
        if check and check.status != "ok":
            lines.append(badge(check))
        if claim:
            lines.append(small(f"published {stated(claim, '×')}"))
            lines.append(small(stands(claim.value, found)))
        return "<br>".join(line for line in lines if line) or NOTHING

    compared = [version for version in evidence.versions(family) if baseline_of(version)]
    card = published.card(family)
    said = f" Published on the {card}; a second figure is the range over the documents and logs." if card else ""
    return _by_hdim(
        evidence,
        family,
        cell,
        f"Speedup over the baseline by head dim (above 1: faster), {timer}, with the 95 % interval over the processes."
        + said,
        compared,
        ("over", lambda version: code(baseline_of(version))),
    )


def summary(evidence: Measured) -> Table:
    """A row for every version that a document gives a speedup: over all head dims, published and measured."""
    rows = []
    for version in VERSIONS.values():
        base = baseline_of(version.id)
        stated_at = {p: published.speedup(version.id, base, p) for p in evidence.problems(version.family)}
        said = {problem: claim.value for problem, claim in stated_at.items() if claim}
        problems = list(said)
        if not problems:
            continue
        found = {timer: {p: evidence.ratio(base, version.id, p, timer) for p in problems} for timer in TIMERS}
        words: dict[str, list[str]] = {}
        for problem in problems:
            word = stands(said[problem], found["device_warm"][problem])
            words.setdefault(word or "not measured", []).append(str(problem.hdim))
        verdicts = "<br>".join(f"{word} {small('at ' + ', '.join(dims))}" for word, dims in words.items())
        outcomes = dict.fromkeys(check.status for p in problems if (check := evidence.check(version.id, p)))
        rows.append(
            (
                f"{name(version.id, version.id in evidence.stale_versions())}<br>{small(f'over {code(base)}')}",
                spread(said.values()),
                *(spread(r.value for r in found[timer].values() if r) for timer in ("device_warm", SOURCE_TIMER)),
                verdicts,
                " ".join(f"<span class='status {outcome}'>{outcome}</span>" for outcome in outcomes),
            )
        )
    header = ("version", "published", "on the device", "as launched", "verdict, on the device", "check")
    return Table(
        header,
        rows,
        numbers=header[1:4],
        caption="Speedup over the baseline, least to largest over the published head dims (above 1: faster). "
        f"Published on the {published.card('rope')}, measured on the {evidence.gpu['name']}.",
    )


def points(frame: pd.DataFrame) -> Table:
    """The points of the roofline (`roofline.points`), a row a version and shape: L2 above, DRAM below."""
    columns = {
        "bytes": (1e6, 2),
        "flop_per_byte": (1, 2),
        "median_us": (1, 1),
        "gb_s": (1, 0),
        "percent_of_roof": (1, 1),
    }
    rows = []
    for _, mine in frame.groupby(["version", "hdim", "rotary_dim"], sort=False):
        levels = mine.set_index("level")
        first = mine.iloc[0]
        rotary = f" {small(f'R {first.rotary_dim}')}" if first.rotary_dim else ""
        cells = [name(first.version, bool(mine["stale"].any())), f"{first.hdim}{rotary}"]
        for column, (unit, digits) in columns.items():
            both = [levels[column].get(level) for level in ("l2", "dram")]
            l2, dram = (NOTHING if value is None else f"{value / unit:,.{digits}f}" for value in both)
            cells.append(f"{l2}<br>{small(dram)}")
        cells[2] += f"<br>{small('emulator')}" if "emulator" in set(mine["bytes_from"]) else ""
        rows.append(tuple(cells))
    header = ("version", "hdim", "MB", "FLOP/B", "µs", "GB/s", "% of roof")
    return Table(
        header,
        rows,
        numbers=header[1:],
        caption="Above: bytes between L2 and the L1s, time device_warm. Below, small: bytes of DRAM, caches flushed, "
        "time device_cold. Bytes are those of hardware counters; where it says emulator, sectors that it counts, all "
        "that are asked for and the distinct ones. The roof is the smaller of the fp32 ceiling and what the level's "
        "bandwidth allows.",
    )


def bounds(evidence: Measured, profiled: pd.DataFrame, hdim: int) -> Table:
    """How busy the units of the GPU are in the attention of every version at a head dim, and what holds it back."""
    rows = []
    for row in profiles.attention(profiles.at(profiled, hdim)).to_dict("records"):
        percents = [row[column] for column in (*profiles.UNITS.values(), "warps_percent")]
        rows.append(
            (
                name(row["version"], row["stale"]),
                f"{row['duration_ns'] / 1e3:.1f}",
                *(f"{value:.1f}" for value in percents),
                str(profiles.blocks(row)),
                escape(profiles.bound(row, evidence.gpu["sms"])),
            )
        )
    header = ("version", "µs", "DRAM %", "L2 %", "L1 %", "issue %", "warps %", "blocks", "held back by")
    return Table(
        header,
        rows,
        numbers=header[1:-1],
        caption=f"The attention kernel at head dim {hdim}, and what holds it back. Per cent of peak: DRAM, L2, and the "
        "path to L1 and shared memory, of the whole GPU; issue, of the schedulers that have warps. Warps: those "
        "resident, of all that an SM holds.",
    )


def caches(profiled: pd.DataFrame, version: str) -> Table:
    """What a version's attention moves at each level of memory, by head dim."""
    rows = []
    mine = profiles.attention(profiled[(profiled["version"] == version) & (profiled["study"] == "log")])
    for row in mine.sort_values("problem", key=lambda problems: problems.map(lambda p: p.hdim)).to_dict("records"):
        problem = row["problem"]
        touched = 4 * problem.batch * problem.hdim * (problem.heads * problem.seq_q + problem.kv_heads * problem.seq_k)
        moved = (2 * touched, row["dram_read_bytes_cold"], row["dram_read_bytes"], row["l2_to_l1_bytes"])
        rows.append(
            (
                hdim(problem),
                f"{problem.heads} × {problem.seq_q}",
                *(f"{value / 1e6:.3f}" for value in moved),
                f"{row['l2_to_l1_bytes'] / row['duration_ns']:,.0f}",
                str(profiles.blocks(row)),
            )
        )
    header = ("hdim", "heads × seq", "tensors", "flushed", "warm", "L2 to L1", "GB/s", "blocks")
    return Table(
        header,
        rows,
        numbers=header,
        caption=f"{code(version)}, its attention kernel: MB of Q, K, V and out; MB read from DRAM with caches flushed "
        "and warm; MB from L2 to the L1s, and GB/s.",
    )


def emulator_agreement(summary: pd.DataFrame) -> Table:
    """How near the emulator's counts come to the hardware's (`counter_agreement.agreement`)."""
    rows = [
        (
            f"{row.quantity}<br>{small(escape(row.why))}" if row.why else row.quantity,
            str(row.launches),
            f"{row.median:.2f}",
            f"{row.low:.2f}–{row.high:.2f}",
            f"{100 * row.near:.0f} %",
            f"{100 * row.close:.0f} %",
        )
        for row in summary.itertuples()
    ]
    header = ("counted", "launches", "median", "5–95 %", "within 1 %", "within 10 %")
    return Table(
        header,
        rows,
        numbers=header[1:],
        caption="The hardware's count over the emulator's: median over the launches, 5th to 95th percentile, and the "
        "share of launches in which it is near 1.",
    )


def times(evidence: Measured, family: str, timer: str = SOURCE_TIMER) -> Table:
    """Microseconds of one call, with the milliseconds that were published."""

    def cell(version: str, problem: Problem) -> str:
        said, taken = published.published(version, problem), evidence.time(version, problem, timer)
        check = evidence.check(version, problem)
        lines = [microseconds(taken)] if taken else [badge(check)]
        if said:
            lines.append(small(f"published {stated(said, digits=3)} ms"))
        return "<br>".join(lines)

    return _by_hdim(
        evidence,
        family,
        cell,
        f"{timer} by head dim, µs a call on the {evidence.gpu['name']}: median of {evidence.processes} processes "
        f"± half their range. Published on the {published.card(family)}: times of different cards are not compared.",
    )


def checks(evidence: Measured, family: str) -> Table:
    """Correctness against float64."""

    def cell(version: str, problem: Problem) -> str:
        check = evidence.check(version, problem)
        lines = [badge(check)]
        if check and check.nan_share > 0:
            lines.append(f"{share(check.nan_share)} NaN")
        if check and not math.isnan(check.max_abs_err):
            lines.append(small(f"{error(check.max_abs_err)} of {error(check.allowed_abs_err)}"))
        return "<br>".join(lines)

    def reasons(version: str) -> str:
        found = [evidence.check(version, problem) for problem in evidence.problems(family)]
        said = [check.reason for check in found if check and check.reason and check.status != "unsupported"]
        return "<br>".join(dict.fromkeys(map(escape, said)))

    return _by_hdim(
        evidence,
        family,
        cell,
        "Against float64 on two inputs, by head dim; the worse decides. Below the status the largest error over the "
        "outputs that are finite, and what is allowed.",
        last=("reason", reasons),
    )


def peers(evidence: Measured, family: str, partial: bool | None = None) -> Table:
    """Own versions and what PyTorch offers, in device time; the fastest right one of each column is set in bold."""
    problems = evidence.problems(family, partial)
    versions = [*evidence.versions(family), *evidence.versions(family, peers=True)]
    best = {problem: fastest(evidence, versions, problem) for problem in problems}
    rows = []
    for version in versions:
        cells = []
        for problem in problems:
            taken, check = evidence.time(version, problem), evidence.check(version, problem)
            text = microseconds(taken)
            if check and check.status == "wrong":
                text += f" {badge(check)}"
            elif check and taken is None:
                text = badge(check)
            cells.append(f"<b>{text}</b>" if best[problem] == version else text)
        if any(evidence.time(version, problem) for problem in problems):
            stale = any(evidence.stale(version, problem) for problem in problems)
            rows.append((name(version, stale), *cells))
    header = ("version", *(hdim(problem) for problem in problems))
    return Table(
        header,
        rows,
        numbers=header[1:],
        caption=f"device_warm by head dim, µs, on the {evidence.gpu['name']}. Bold: the fastest with a right result.",
    )


def fastest(evidence: Measured, versions: Iterable[str], problem: Problem) -> str | None:
    """The fastest of `versions` whose result on `problem` is right."""
    timed = []
    for version in versions:
        check, taken = evidence.check(version, problem), evidence.time(version, problem)
        if check and check.status == "ok" and taken:
            timed.append((taken.us, version))
    return min(timed)[1] if timed else None


def throughput(evidence: Measured, version: str) -> Table:
    """The TFLOP/s that are printed, what the printed time and shape give, and what was measured."""
    rows = []
    for problem in evidence.problems(VERSIONS[version].family):
        said, printed = published.published(version, problem, "tflops"), published.published(version, problem)
        if said is None or printed is None:
            continue
        taken = evidence.time(version, problem)
        rows.append(
            (
                hdim(problem),
                f"{problem.heads} × {problem.seq_q}",
                f"{problem.flops / 1e6:.1f}",
                f"{said.value:.2f}",
                f"{problem.flops / printed.value / 1e9:.3f}",
                f"{problem.flops / taken.us / 1e6:.3f}" if taken else NOTHING,
            )
        )
    header = ("hdim", "heads × seq", "MFLOP", "printed TFLOP/s", "from printed time", "measured TFLOP/s")
    return Table(header, rows, numbers=header, caption=f"<code>{version}</code>: work is 4·B·H·Sq·Sk·D FLOP a call.")


def _list(pairs: Iterable[tuple[str, str]], header: tuple[str, str]) -> Table:
    return Table(header, [(escape(key), value) for key, value in pairs])


def machine(evidence: Measured) -> Table:
    """The GPU, the software and the run."""
    gpu, run = evidence.gpu, evidence.run
    return _list(
        (
            ("GPU", f"{gpu['name']}, compute capability {gpu['compute_capability']}, {gpu['sms']} SMs"),
            ("memory", f"{gpu['memory_bytes'] / 2**30:.0f} GiB, L2 {gpu['l2_bytes'] / 2**20:.0f} MiB"),
            ("clock and power", f"SM up to {run['sm_mhz_max']} MHz, {run['power_limit_w']} W"),
            ("throttling seen", str(run["throttle"])),
            ("driver, CUDA", f"{run['driver']}, {run['cuda']}"),
            ("Python", str(run["python"])),
            ("numba, numba-cuda", f"{run['numba']}, {run['numba_cuda']}"),
            ("torch", str(run["torch"])),
            ("run", f"{run['run']}, {run['started_at']} to {run['finished_at']}"),
            ("processes", str(evidence.processes)),
            ("wall time", f"{run['seconds']:.0f} s"),
            ("commit", f"<code>{escape(str(run['commit']))}</code>"),
        ),
        ("what", "value"),
    )


def resources(family: str) -> Table:
    """What the compiler reports of every kernel of a family, at the largest head dim that each version takes."""
    frame = read_table(RESOURCES, "resources")
    frame = frame[frame["family"] == family]
    frame = frame[frame["hdim"] == frame.groupby("version")["hdim"].transform("max")]
    targets = list(dict.fromkeys(frame["target"]))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for row in frame.drop_duplicates(["version", "kernel", "target"]).itertuples():
        key = (name(row.version), str(row.hdim), code(row.kernel), f"{row.shared_bytes:,}", str(row.spill_bytes))
        rows.setdefault(key, {})[row.target] = f"{row.registers} {small(f'× {row.blocks_per_sm}')}"
    header = ("version", "hdim", "kernel", "shared, B", "spilled, B", *targets)
    return Table(
        header,
        [(*key, *(cells.get(target, NOTHING) for target in targets)) for key, cells in rows.items()],
        numbers=(header[1], *header[3:]),
        caption="Registers a thread × blocks that an SM holds, by target: assembled without a GPU.",
    )


def repeatability(evidence: Measured) -> Table:
    """How much the ratios to the separate kernels, or to corrected attention, moved since the run before."""
    before = evidence.previous()
    rows = []
    for peers, label in ((False, "the log's kernels"), (True, "PyTorch")):
        for timer in TIMERS:
            changes = []
            for family, base in REFERENCE.items():
                for other in evidence.versions(family, peers):
                    for problem in evidence.problems(family) if other != base else ():
                        then = before.ratio(base, other, problem, timer) if before else None
                        now = evidence.ratio(base, other, problem, timer)
                        if then and now:
                            changes.append(abs(now.value / then.value - 1.0))
            if changes:
                rows.append((label, timer, str(len(changes)), share(median(changes)), share(max(changes))))
    caption = f"Against run {before.run['run']}." if before else "There is no earlier complete run to compare with."
    header = ("whose", "timer", "ratios", "median change", "largest change")
    return Table(header, rows, numbers=header[2:], caption=caption)


def ceilings(evidence: Measured) -> Table:
    """What the GPU reaches at most, measured on it."""
    names = (
        ("read_gb_s", "DRAM read", "GB/s", 0),
        ("write_gb_s", "DRAM write", "GB/s", 0),
        ("copy_gb_s", "DRAM copy, read and write", "GB/s", 0),
        ("l2_read_gb_s", "L2 read", "GB/s", 0),
        ("fp32_tflops", "fp32 multiply-add", "TFLOP/s", 1),
        ("tensor_tflops", "bfloat16 matrix product", "TFLOP/s", 1),
        ("empty_kernel_us", "empty kernel in a graph", "µs", 2),
        ("empty_launch_us", "empty launch from the host", "µs", 2),
    )
    found = evidence.gpu["ceilings"]
    rows = [(label, f"{found[key]:,.{digits}f}", unit) for key, label, unit, digits in names if key in found]
    return Table(("ceiling", "value", "unit"), rows, numbers=("value",))


def statuses(evidence: Measured) -> Table:
    """How many problems of each version have which status, and whether its code has changed since."""
    rows = []
    for version in dict.fromkeys(evidence.checks["version"]):
        counted = dict.fromkeys(STATUSES, 0)
        for problem in dict.fromkeys(evidence.checks["problem"]):
            check = evidence.check(version, problem)
            if check:
                counted[check.status] += 1
        stale = version in evidence.stale_versions()
        rows.append((name(version, stale), *(str(count) if count else "" for count in counted.values())))
    return Table(("version", *STATUSES), rows, numbers=STATUSES, caption="Problems by status.")


def ledger(evidence: Measured, letter: str) -> Table:
    """The claims of a group, each with its verdict and, folded, the tests that decide it."""
    found = read_table(gpu_folder(evidence.slug) / "verdicts.csv", "verdicts").astype(object)
    found = found.where(found.notna(), None)
    rows = []
    for claim in claims.load():
        if not claim.id.startswith(letter):
            continue
        mine = found[found["claim_id"] == claim.id].to_dict("records")
        places = "; ".join(", ".join(map(escape, place.values())) for place in claim.sources)
        against = ", ".join(f"<a href='#{other}'>{other}</a>" for other in claim.contradicts)
        named = sorted({row for test in claim.tests for row in claims.rows_of(test)})
        numbers = ", ".join(f"<a href='published.html#{row}'>{row}</a>" for row in named)
        about = [places, f"against {against}" if against else "", f"numbers {numbers}" if numbers else ""]
        documents = escape("|".join(dict.fromkeys(place["document"] for place in claim.sources)), quote=True)
        listed = "".join(f"<li>{_test(row)}</li>" for row in mine)
        folded = f"<details><summary>{len(mine)} test{'s' * (len(mine) != 1)}</summary><ul>{listed}</ul></details>"
        word = mine[0]["verdict"] if mine else "cannot be decided"
        badge_of = f"<span class='status {VERDICT_STYLE[word]}'>{word}</span>"
        rows.append(
            (
                f"<a id='{claim.id}' href='#{claim.id}' data-documents='{documents}'>{claim.id}</a>",
                "<br>".join([escape(claim.claim), *(small(part) for part in about if part)]),
                badge_of,
                folded,
            )
        )
    return Table(("claim", "what is claimed", "verdict", "tests"), rows)


def map_problems(judged: cost_model.Judged) -> Table:
    """Every problem of the map: the times of the family and of the log's fusion, and what the model chooses."""
    versions = (*cost_model.FUSIONS, cost_model.NAIVE)
    held, rows = set(judged.held()), []
    for regime in cost_model.REGIMES:
        mine = [problem for problem in judged.problems if cost_model.regime(problem) == regime]
        for problem in sorted(mine, key=lambda problem: (problem.seq_q, problem.seq_k, problem)):
            best, chosen = judged.winners(problem), judged.chosen(problem)
            right = f"<span class='status {'ok' if chosen in best else 'wrong'}'>{cost_model.WORDS[chosen]}</span>"
            cells = []
            for version in versions:
                taken = microseconds(judged.evidence.time(version, problem))
                check = judged.evidence.check(version, problem)
                taken = badge(check) if taken == NOTHING and check else taken
                cells.append(f"<b>{taken}</b>" if version in best else taken)
            rows.append((regime, _shape(problem) + (" *" if problem in held else ""), *cells, right))
    header = ("kind", "problem", *(f"{version}, µs" for version in versions), "the model")
    return Table(
        header,
        rows,
        numbers=header[2:-1],
        caption="device_warm. Bold: the fastest of the family, and what ties with it. * held out: not fitted to. The "
        "log's fusion takes as many queries as keys alone, and is not measured where it would take longest.",
    )


def map_answers(judged: cost_model.Judged) -> Table:
    """How good the model's answers are on what was held out, and how good one answer to everything is."""
    rows = [
        (row.answer, f"{row.right:.0f} %", f"{row.strictly:.0f} %", f"{row.lost:.1f} %", f"{row.worst:.0f} %")
        for row in cost_model.answers(judged).itertuples()
    ]
    header = ("answer", "right", "the fastest", "lost on average", "lost at worst")
    caption = (
        f"On {len(judged.held())} held-out problems. Right: the fastest, or a tie with it. Lost: time over the fastest."
    )
    return Table(header, rows, numbers=header[1:], caption=caption)


def map_regimes(judged: cost_model.Judged) -> Table:
    """The model's errors by kind of problem: held out, and as predicted by a model that saw none of the kind."""
    rows = []
    family = judged.points[judged.points["version"].isin(cost_model.FUSIONS)]
    beyond = cost_model.extrapolated(judged).set_index("regime")
    for regime in cost_model.REGIMES:
        mine = family[(family["regime"] == regime) & family["held_out"]]
        held = [problem for problem in judged.held() if cost_model.regime(problem) == regime]
        if not held:
            continue
        right = cost_model.answers(judged, held).set_index("answer")["right"]["the model"]
        cells = [str(len(held)), f"{cost_model.errors(mine).median():.0f} %", f"{right:.0f} %"]
        unseen = beyond.loc[regime] if regime in beyond.index else None
        cells += [NOTHING] * 2 if unseen is None else [f"{unseen['error']:.0f} %", f"{unseen['right']:.0f} %"]
        rows.append((regime, *cells))
    header = ("kind", "held out", "median error", "right", "median error, kind unseen", "right, kind unseen")
    return Table(header, rows, numbers=header[1:])


def map_constants(judged: cost_model.Judged) -> Table:
    """What the model was fitted to say of the card: what a thing costs, or at which rate it goes."""
    rates = {"M": "T/s", "MFLOP": "TFLOP/s", "MB": "TB/s"}
    model = judged.model
    amounts = np.concatenate([cost_model.work(VERSIONS[v](p), model.card) for v, p in _planned(judged)])
    rows = []
    for amount, (term, does) in zip(amounts.sum(axis=0), cost_model.TERMS.items()):
        if amount:
            cost = model.cost(term)
            value = f"{1 / cost:,.2f} {rates[does.unit]}" if does.unit in rates else f"{cost:,.3f} µs a {does.unit}"
            rows.append((term, does.about, value))
    rows.append(("overlap", "1: parts of a launch follow each other; large: they run at once", f"{model.overlap:.1f}"))
    return Table(("constant", "what it is", "fitted"), rows, numbers=("fitted",))


def _shape(problem: Problem) -> str:
    grouped = f" kv_heads {problem.kv_heads}" if problem.kv_heads < problem.heads else ""
    return str(problem).removeprefix("rope ") + grouped


def _planned(judged: cost_model.Judged) -> Iterable[tuple[str, Problem]]:
    return judged.points[["version", "problem"]].itertuples(index=False, name=None)


def advice(judged: cost_model.Judged, problems: Mapping[str, Problem] = cost_model.TYPICAL) -> Table:
    """What the model advises for some problems, with its error bars."""
    rows = []
    for label, problem in problems.items():
        said = cost_model.advice_of(judged, problem)
        taken = said.times[said.choice]
        close = "" if said.margin.low > 1 else f"<br>{small('too close to call')}"
        beyond = f"<br>{small(escape('; '.join(said.outside)))}" if said.outside else ""
        rows.append(
            (
                f"{label}<br>{small(_shape(problem))}{beyond}",
                cost_model.WORDS[said.choice] + close,
                f"{taken.us:,.1f}<br>{small(f'{taken.low:,.1f}–{taken.high:,.1f}')}",
                f"{cost_model.WORDS[said.runner_up]}<br>{ratio(said.margin)}",
            )
        )
    header = ("problem", "advice", "predicted µs", "the next takes")
    caption = f"By the model; {100 * cost_model.COVERED:.0f} % of held-out points lie within such bars."
    return Table(header, rows, numbers=header[2:], caption=caption)


VERDICT_STYLE = {
    "holds": "ok",
    "holds in part": "stale",
    "does not hold": "wrong",
    "cannot be decided": "unsupported",
}


def verdicts(found: Mapping[str, str], chosen: Iterable[claims.Claim]) -> Table:
    """Some claims with their verdicts, each with a link to its place in the ledger."""
    rows = []
    for claim in chosen:
        word = found.get(claim.id, UNDECIDED)
        place = f"<a href='../chapters/claims.html#{claim.id}'>{claim.id}</a>"
        rows.append((place, escape(claim.claim), f"<span class='status {VERDICT_STYLE[word]}'>{word}</span>"))
    return Table(("claim", "what is claimed", "verdict"), rows)


def _test(row: Mapping[str, Any]) -> str:
    """What a test compares, the value, what it must be, and the outcome."""
    value = ""
    if row["measured"] is not None:
        span = f" ({row['low']:.4g}–{row['high']:.4g})" if row["low"] is not None else ""
        value = f": {row['measured']:.4g}{span} {row['unit'] or ''}".rstrip()
    why = row["reason"] or row["rule"] or ""
    return f"{escape(row['says'])}{value}. {small(escape(why))} <b>{row['outcome']}</b>"
