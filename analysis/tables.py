"""Tables of the book: plain HTML, published beside measured, nothing hidden."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

import pandas as pd

from kernels import VERSIONS, Problem

from . import claims, published
from .data import RESOURCES, STATUSES, gpu_folder, read_table
from .evidence import Check, Measured, Ratio, Time, baseline_of, verdict
from .studies import TIMERS

NOTHING = "–"
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
    return f"{code(version)}{mark}<small class='title'><br>{escape(title)}</small>"


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
            lines.append(small(verdict(claim.value, found)))
        return "<br>".join(line for line in lines if line) or NOTHING

    compared = [version for version in evidence.versions(family) if baseline_of(version)]
    return _by_hdim(
        evidence,
        family,
        cell,
        f"Speedup over the baseline by head dim (above 1: faster), {timer}, with the 95 % interval over the processes. "
        f"Published on the {published.card(family)}; a second figure is the range over the documents and logs.",
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
            word = verdict(said[problem], found["device_warm"][problem])
            words.setdefault(word or "not measured", []).append(str(problem.hdim))
        verdicts = "<br>".join(f"{word} {small('at ' + ', '.join(dims))}" for word, dims in words.items())
        outcomes = dict.fromkeys(check.status for p in problems if (check := evidence.check(version.id, p)))
        rows.append(
            (
                f"{name(version.id, version.id in evidence.stale_versions())}<br>{small(f'over {code(base)}')}",
                _range(said.values()),
                *(_range(r.value for r in found[timer].values() if r) for timer in ("device_warm", SOURCE_TIMER)),
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


def _range(values: Iterable[float]) -> str:
    values = list(values)
    if not values:
        return NOTHING
    low, high = f"{min(values):.2f}×", f"{max(values):.2f}×"
    return low if low == high else f"{low[:-1]}–{high}"


def points(frame: pd.DataFrame) -> Table:
    """The points of the roofline."""
    rows = [
        (
            name(row.version, bool(row.stale)),
            f"{row.hdim}" + (f" {small(f'R {row.rotary_dim}')}" if row.rotary_dim else ""),
            f"{row.flop / 1e6:.1f}",
            f"{row.requested_bytes / 1e6:.1f}",
            f"{row.touched_bytes / 1e6:.2f}",
            f"{row.median_us:.1f}",
            f"{row.tflops:.3f}",
            f"{row.requested_gb_s:,.0f}",
            f"{row.percent_of_roof:.1f}",
        )
        for row in frame.itertuples()
    ]
    header = ("version", "hdim", "MFLOP", "MB asked for", "MB touched", "µs", "TFLOP/s", "GB/s asked for", "% of roof")
    return Table(header, rows, numbers=header[1:], caption="Bytes from emulator sectors, time from device_warm.")


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
        against = f"<br>{small('against ' + ', '.join(claim.contradicts))}" if claim.contradicts else ""
        listed = "".join(f"<li>{_test(row)}</li>" for row in mine)
        folded = f"<details><summary>{len(mine)} test{'s' * (len(mine) != 1)}</summary><ul>{listed}</ul></details>"
        word = mine[0]["verdict"] if mine else "cannot be decided"
        badge_of = f"<span class='status {VERDICT_STYLE[word]}'>{word}</span>"
        rows.append(
            (
                f"<a id='{claim.id}'></a>{claim.id}",
                f"{escape(claim.claim)}<br>{small(places)}{against}",
                badge_of,
                folded,
            )
        )
    return Table(("claim", "what is claimed", "verdict", "tests"), rows)


VERDICT_STYLE = {
    "holds": "ok",
    "holds in part": "stale",
    "does not hold": "wrong",
    "cannot be decided": "unsupported",
}


def _test(row: Mapping[str, Any]) -> str:
    """What a test compares, the value, what it must be, and the outcome."""
    value = ""
    if row["measured"] is not None:
        span = f" ({row['low']:.4g}–{row['high']:.4g})" if row["low"] is not None else ""
        value = f": {row['measured']:.4g}{span} {row['unit'] or ''}".rstrip()
    why = row["reason"] or row["rule"] or ""
    return f"{escape(row['says'])}{value}. {small(escape(why))} <b>{row['outcome']}</b>"
