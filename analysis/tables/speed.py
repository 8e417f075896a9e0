"""Speedups, times and checks, published beside measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from kernels import VERSIONS, Problem

from ..book.origin import measured_in, published_on
from ..measure.studies import SOURCE_TIMER, TIMERS
from ..records import published
from ..records.known import WRONG, known
from ..records.measured import Measured, baseline_of
from ..records.text import NOTHING, ratios
from ..verdicts.rule import stands
from .table import (
    Table,
    code,
    compared,
    error,
    hdim,
    lines,
    name,
    share,
    small,
    stale,
    stated,
    status,
    timed,
    why_untimed,
)  # fmt: skip


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
    by_version = {version: evidence.shapes(version, refused=True) for version in names}
    dims = sorted({size for shapes in by_version.values() for size in shapes})
    rows = []
    for version, shapes in by_version.items():
        cells = [cell(version, shapes[size]) if size in shapes else NOTHING for size in dims]
        first = name(version, stale(evidence, version, shapes.values()))
        rows.append((first, *cells, *([last[1](version)] if last else [])))
    numbers = [str(size) for size in dims]
    return Table(("version", *numbers, *([last[0]] if last else [])), rows, numbers=numbers, caption=caption)


def speedups(evidence: Measured, family: str, timer: str = "device_warm") -> Table:
    """Speedup over each version's own baseline, with what was published of it."""

    def cell(version: str, problem: Problem) -> str:
        baseline = baseline_of(version)
        claim, found = published.speedup(version, baseline, problem), evidence.ratio(baseline, version, problem, timer)
        here = known(evidence, version, problem)
        parts = [compared(evidence, baseline, version, problem, timer), status(here) if here.word == WRONG else ""]
        if claim:
            parts += [small(f"published {stated(claim, '×')}"), small(stands(claim.value, found))]
        return lines(*parts)

    card = published.card(family)
    said = f" Published on the {card}; a second figure is the range over the documents and logs." if card else ""
    return _by_hdim(
        evidence,
        family,
        cell,
        f"Speedup over the baseline by head dim (above 1: faster), {timer}, with the 95 % interval "
        f"{evidence.covers(timer)}.{said}",
        [version for version in evidence.versions(family) if baseline_of(version)],
        ("over", lambda version: code(baseline_of(version))),
    )


def summary(evidence: Measured) -> Table:
    """A row for every version that a document gives a speedup: over all head dims, published and measured."""
    rows = []
    for version in VERSIONS.values():
        base = baseline_of(version.id)
        claims = {p: published.speedup(version.id, base, p) for p in evidence.problems(version.family)}
        speeds = {problem: claim.value for problem, claim in claims.items() if claim}
        if not speeds:
            continue
        measured = {timer: {p: evidence.ratio(base, version.id, p, timer) for p in speeds} for timer in TIMERS}
        verdicts: dict[str, list[str]] = {}
        for problem, speed in speeds.items():
            how = stands(speed, measured["device_warm"][problem])
            verdicts.setdefault(how or why_untimed(evidence, base, version.id, problem), []).append(str(problem.hdim))
        checks = dict.fromkeys(known(evidence, version.id, problem) for problem in speeds)
        rows.append(
            {
                "version": lines(
                    name(version.id, version.id in evidence.stale_versions()), small(f"over {code(base)}")
                ),
                "published": speeds.values(),
                **{timer: [ratio.value for ratio in ratios.values() if ratio] for timer, ratios in measured.items()},
                "verdict": lines(*(f"{word} {small('at ' + ', '.join(dims))}" for word, dims in verdicts.items())),
                "check": " ".join({each.word: status(each) for each in checks}.values()),
            }
        )
    return Table.from_frame(
        rows,
        {
            "version": ("version", str),
            "published": ("published", ratios),
            "device_warm": ("on the device", ratios),
            SOURCE_TIMER: ("as launched", ratios),
            "verdict": ("verdict, on the device", str),
            "check": ("check", str),
        },
        slice(1, 4),
        "Speedup over the baseline, least to largest over the published head dims (above 1: faster). "
        f"Published on the {published.card('rope')}, measured on the {evidence.card}.",
        measured_in(evidence) + published_on("rope"),
    )


def times(evidence: Measured, family: str, timer: str = SOURCE_TIMER) -> Table:
    """Microseconds of one call, with the milliseconds that were published."""

    def cell(version: str, problem: Problem) -> str:
        claim = published.published(version, problem)
        said = small(f"published {stated(claim, digits=3)} ms") if claim else ""
        return lines(timed(evidence, version, problem, timer), said)

    return _by_hdim(
        evidence,
        family,
        cell,
        f"{timer} by head dim, µs a call on the {evidence.card}: median of {evidence.processes} processes "
        f"± half their range. Published on the {published.card(family)}: times of different cards are not compared.",
    )


def checks(evidence: Measured, family: str) -> Table:
    """Correctness against float64."""

    def cell(version: str, problem: Problem) -> str:
        check = evidence.check(version, problem)
        parts = [status(known(evidence, version, problem))]
        if check and check.nan_share > 0:
            parts.append(f"{share(check.nan_share)} NaN")
        if check and not math.isnan(check.max_abs_err):
            parts.append(small(f"{error(check.max_abs_err)} of {error(check.allowed_abs_err)}"))
        return lines(*parts)

    def reasons(version: str) -> str:
        found, shapes = [evidence.check(version, p) for p in evidence.problems(family)], evidence.shapes(version)
        given = [check.reason for check in found if check and (check.status != "unsupported" or not shapes)]
        return lines(*dict.fromkeys(map(escape, given)))

    return _by_hdim(
        evidence,
        family,
        cell,
        "Against float64 on two inputs, by head dim; the worse decides. Below the status the largest error over the "
        "outputs that are finite, and what is allowed.",
        last=("reason", reasons),
    )


def peers(
    evidence: Measured, family: str, partial: bool | None = None, own: Sequence[str] = (), at: int | None = None
) -> Table:
    """Own versions, all or some, and what PyTorch offers, in device time at every or one head dim.

    The fastest right one of each column is set in bold.
    """
    problems = [problem for problem in evidence.problems(family, partial) if at in (None, problem.hdim)]
    versions = [*(own or evidence.versions(family)), *evidence.versions(family, peers=True)]
    best = {problem: fastest(evidence, versions, problem) for problem in problems}

    def cell(version: str, problem: Problem) -> str:
        here, text = known(evidence, version, problem), timed(evidence, version, problem)
        if here.word == WRONG:
            text = f"{text} {status(here)}"
        return f"<b>{text}</b>" if best[problem] == version else text

    rows = [
        (name(version, stale(evidence, version, problems)), *(cell(version, problem) for problem in problems))
        for version in versions
        if any(evidence.time(version, problem) for problem in problems)
    ]
    header = ("version", *map(hdim, problems))
    caption = f"device_warm by head dim, µs, on the {evidence.card}. Bold: the fastest with a right result."
    return Table(header, rows, header[1:], caption)


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
        rate, printed = published.published(version, problem, "tflops"), published.published(version, problem)
        if rate is None or printed is None:
            continue
        taken = evidence.time(version, problem)
        rows.append(
            {
                "problem": problem,
                "shape": f"{problem.heads} × {problem.seq_q}",
                "mflop": problem.flops / 1e6,
                "printed": rate.value,
                "derived": problem.flops / printed.value / 1e9,
                "measured": problem.flops / taken.us / 1e6 if taken else None,
            }
        )
    return Table.from_frame(
        rows,
        {
            "problem": ("hdim", hdim),
            "shape": ("heads × seq", str),
            "mflop": ("MFLOP", "{:.1f}"),
            "printed": ("printed TFLOP/s", "{:.2f}"),
            "derived": ("from printed time", "{:.3f}"),
            "measured": ("measured TFLOP/s", "{:.3f}"),
        },
        slice(None),
        f"<code>{version}</code>: work is 4·B·H·Sq·Sk·D FLOP a call.",
        measured_in(evidence) + published_on(VERSIONS[version].family),
    )
