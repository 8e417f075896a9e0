"""The steps of a ladder: what each version tries, whether it is right, and how near to the ceiling it comes."""

from html import escape

from kernels import VERSIONS, Problem, Version

from ..claims.rule import compare
from ..claims.rule import told as verdict
from ..evidence import Estimate, Evidence, Known, Study, measured, published_on
from ..evidence.evidence import home
from ..evidence.known import NOT_MEASURED, OK, UNSUPPORTED, WRONG
from ..models.rivals import V8, flops_left
from ..record import published
from ..record.text import NOTHING, factor, gained
from ..studies import MAIN, PHASES, SLICES, THEIR_SMS
from .table import Table, lines, link, mark, short, small, status, why_none

RIGHT = "right"
SHOWN = {"fp16": 64}  # the head dim whose times are shown, of the other families that of `MAIN`


def ladder(family: str) -> list[Version]:
    """The log's steps in order, then Phase 7; where one was refused for its shared memory, that with more of it."""
    of_log = [v for v in VERSIONS.values() if v.family == family and v.of_log and not v.fast_math]
    found = of_log + [VERSIONS[name] for name in PHASES if VERSIONS[name].family == family]
    replaced = {version.variant_of for version in found}
    return [version for version in found if version.id not in replaced]


def problem_of(e: Evidence, name: str) -> Problem | None:
    """The documents' shape of a version whose time is shown."""
    return study_of(e, name).shapes(name, refused=True).get(SHOWN.get(VERSIONS[name].family, MAIN.hdim))


def study_of(e: Evidence, name: str) -> Study:
    return e.study("half_prompts" if name in PHASES else home(name))


def ceiling(e: Evidence, problem: Problem) -> float:
    """Least microseconds of the products that a mask leaves, at the card's measured fp32 rate or, for half precision,
    that of its tensor cores."""
    rate = e.gpu["ceilings"]["fp32_tflops" if problem.dtype == "float32" else "tensor_tflops"]
    return flops_left(problem) / rate / 1e6


def steps(e: Evidence, family: str) -> Table:
    """A row a step: what it tries, whether its result is right, its share of the ceiling, and its times."""
    rows = [_row(e, study_of(e, version.id), version) for version in ladder(family)]
    over = list(dict.fromkeys(v.baseline for v in ladder(family) if v.baseline))
    caption = (
        f"Head dim {SHOWN.get(family, MAIN.hdim)}; the result is of all head dims of the documents. Ceiling: both "
        f"products at the {'fp32' if family != 'fp16' else 'tensor cores'} rate of the {e.card}, at their shapes. "
        f"Times are of the GPU alone; × is the speedup over {' or '.join(map(link, over))}, above 1 faster. "
        f"Published: {published.card(family)}, from several programs. More: the page of each version."
    )
    if family == "fp16":
        caption += " Phase 7 was timed in a study of its own, with Phase 4 beside it; that gives its ×."
    header = ("version", "idea", "result", "of the ceiling", "published", "their SMs", "whole card")
    source = measured(e, home(ladder(family)[0].id), SLICES, f"{SLICES}_fp16") + published_on(family)
    return Table(header, rows, header[3:], caption, source=source, title="The steps")


def fusions(e: Evidence) -> Table:
    """Markdown for the README: each way of the log to fuse RoPE, and V8, over the log's separate kernels."""
    rows = []
    for version in (*(each for each in ladder("rope") if each.baseline), VERSIONS[V8]):
        name, base, here = version.id, version.baseline or "", "beyond" if version.beyond else ""
        problem = MAIN if version.beyond else problem_of(e, name)
        said = published.speedup(name, base, problem) if problem else None
        theirs, whole = (timed(*each, problem)[1] for each in ((e.under(THEIR_SMS), name, ""), (e, name, here)))
        word = verdict(compare(said.low, said.high, theirs)) if said and theirs else NOTHING
        gains = (factor(each.value) if each else NOTHING for each in (said, theirs, whole))
        rows.append((f"[{short(name)}]({version.module.replace('.', '/')}.py)", version.title, *gains, word))
    caption = (
        f"The ladder of the log: the speedup of each way to fuse RoPE over {base}, its separate kernels, at head dim "
        f"{MAIN.hdim}, the GPU alone. The verdict is that of the published number, by their SMs; a dash: not "
        "published, or not measured there. V8 is ours and attends faster, too: finding 4 compares equal attention."
    )
    return Table(("version", "idea", "published", "their SMs", "whole card", "verdict"), rows, caption=caption)


def _row(e: Evidence, study: Study, version: Version) -> tuple[str, ...]:
    name, base, problem = version.id, version.baseline or "", problem_of(e, version.id)
    us, gain = timed(e, name, study.name, problem)
    speed, ms = (
        (published.speedup(name, base, problem), published.published(name, problem)) if problem else (None, None)
    )
    said = lines(f"{1e3 * ms.value:,.0f} µs" if ms else "", small(factor(speed.value)) if speed else "")
    return (
        lines(link(name, short(name)), mark("stale") if name in study.stale_versions() else ""),
        version.title,
        result(study, name),
        f"{100 * ceiling(e, problem) / us.value:.2f} %" if problem and us else NOTHING,
        said or NOTHING,
        "" if name in PHASES else _cell(*timed(e.under(THEIR_SMS), name, "", problem)),
        _cell(us, gain),
    )


def timed(e: Evidence, name: str, study: str, problem: Problem | None) -> tuple[Estimate, Estimate]:
    """A version's time on the GPU alone, and its speedup over its baseline."""
    none, base = Estimate.none(Known(NOT_MEASURED)), VERSIONS[name].baseline
    if problem is None:
        return none, none
    us = e.time(name, study, problem=problem)[problem]
    return us, e.speedup(name, base, study, problem=problem)[problem] if base else none


def _cell(us: Estimate, gain: Estimate) -> str:
    return lines(f"{us.value:,.1f} µs", small(factor(gain.value)) if gain else "") if us else status(why_none(us))


def told(e: Evidence, name: str) -> str:
    """The speed of a version at their shapes in one line, as Markdown; or why it has none."""
    study, base, problem = study_of(e, name), VERSIONS[name].baseline or "", problem_of(e, name)
    us, gain = timed(e, name, study.name, problem)
    if not problem or not us:
        known = study.known(name, problem) if problem else Known(NOT_MEASURED)
        why = why_none(us) if known.ran else known
        return f"{link(name)}: **{why.word}**" + f", {escape(why.reason)}" * bool(why.reason) + "."
    if not gain:
        return f"{link(name)}: **{us.value:,.1f} µs** a call at their shapes."
    said = published.speedup(name, base, problem)
    printed = f", published {gained(said.value)}" if said else ""
    return f"{link(name)} beside {link(base)}, at their shapes: **{gained(gain.value)}**{printed}."


def result(study: Study, name: str) -> str:
    """How the result of a version is at the head dim shown, and where it is otherwise: `"right; wrong at 4096"`."""
    told = study.outcomes(name, study.shapes(name, refused=True).values())
    told.pop(UNSUPPORTED, None)
    shown = str(SHOWN.get(VERSIONS[name].family, MAIN.hdim))
    there = (word for word, dims in told.items() if shown in dims)
    first = next(there, next((word for word in (OK, WRONG, *told) if word in told), NOT_MEASURED))
    said = {word: RIGHT if word == OK else word for word in told}
    rest = [f"{said[word]} at {', '.join(dims)}" for word, dims in told.items() if word != first]
    return "; ".join([mark(RIGHT if first == OK else first, first), *rest])
