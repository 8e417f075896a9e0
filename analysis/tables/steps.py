"""The steps of a ladder: what each version tries, whether it is right, and how near to the ceiling it comes."""

from html import escape

from kernels import VERSIONS, Problem, Version

from ..evidence import Estimate, Evidence, Known, Study
from ..evidence.known import NOT_MEASURED, OK, UNSUPPORTED, WRONG
from ..evidence.origin import measured, published_on
from ..measure.studies import MAIN, PHASES, STUDIES
from ..record import published
from ..record.text import NOTHING, factor, gained
from .table import Table, lines, link, mark, short, small, status, why_none

RIGHT = "right"
SHOWN = {"fp16": 64}  # the head dim whose times are shown, of the other families that of `MAIN`


def home(e: Evidence, family: str) -> str:
    """The study that holds the documents' shapes of a family, or the first that measured it."""
    names = ("fp16",) if family == "fp16" else ("log", *STUDIES)
    return next((name for name in names if e.study(name).versions(family)), names[0])


def ladder(family: str) -> list[Version]:
    """The log's steps in order, then Phase 7; where one was refused for its shared memory, that with more of it."""
    of_log = [v for v in VERSIONS.values() if v.family == family and v.of_log and not v.fast_math]
    found = of_log + [VERSIONS[name] for name in PHASES if VERSIONS[name].family == family]
    replaced = {version.variant_of for version in found}
    return [version for version in found if version.id not in replaced]


def problem_of(e: Evidence, name: str, study: str = "") -> Problem | None:
    """The documents' shape of a version whose time is shown, or with `study` "matched" the same at their load."""
    family = VERSIONS[name].family
    own = study_of(e, name).shapes(name, refused=True).get(SHOWN.get(family, MAIN.hdim))
    if not study or own is None:
        return own
    shape = (own.hdim, own.rotary_dim, own.seq_q, own.causal)
    loaded = e.study(study).problems(family)
    return next((p for p in loaded if (p.hdim, p.rotary_dim, p.seq_q, p.causal) == shape), None)


def study_of(e: Evidence, name: str) -> Study:
    return e.study("half_prompts" if name in PHASES else home(e, VERSIONS[name].family))


def ceiling(e: Evidence, problem: Problem) -> float:
    """Least microseconds of the products that a mask leaves, at the card's measured fp32 rate or, for half precision,
    that of its tensor cores."""
    rate = e.gpu["ceilings"]["fp32_tflops" if problem.dtype == "float32" else "tensor_tflops"]
    left = (problem.seq_k + 1) / (2 * problem.seq_k) if problem.causal else 1.0
    return left * problem.flops / rate / 1e6


def steps(e: Evidence, family: str) -> Table:
    """A row a step: what it tries, whether its result is right, its share of the ceiling, and its times."""
    rows = [_row(e, study_of(e, version.id), version) for version in ladder(family)]
    over = list(dict.fromkeys(v.baseline for v in ladder(family) if v.baseline))
    caption = (
        f"Head dim {SHOWN.get(family, MAIN.hdim)}; the result is of all head dims of the documents. Ceiling: both "
        f"products at the {'fp32' if family != 'fp16' else 'tensor cores'} rate of the {e.card}, at their shapes. "
        f"Times are of the GPU alone; × is the speedup over {' or '.join(map(link, over))}, above 1 faster. "
        f"Published: {published.card(family)}. More: the page of each version."
    )
    header = ("version", "idea", "result", "of the ceiling", "published", "their shapes", "their load")
    source = measured(e, home(e, family), "matched") + published_on(family)
    return Table(header, rows, header[3:], caption, source=source)


def _row(e: Evidence, study: Study, version: Version) -> tuple[str, ...]:
    name, base = version.id, version.baseline or ""
    problem, loaded = problem_of(e, name), problem_of(e, name, "matched")
    us = e.time(name, study.name, "device_warm", problem=problem)[problem] if problem else None
    changed = name in study.stale_versions()
    return (
        lines(link(name, short(name)), mark("stale") if changed else ""),
        version.title,
        result(study, name),
        f"{100 * ceiling(e, problem) / us.value:.2f} %" if problem and us else NOTHING,
        _published(name, base, problem),
        _timed(e, name, base, study.name, problem),
        "" if name in PHASES else _timed(e, name, base, "matched", loaded),
    )


def _published(name: str, base: str, problem: Problem | None) -> str:
    if problem is None:
        return NOTHING
    speed, ms = published.speedup(name, base, problem), published.published(name, problem)
    told = [f"{1e3 * ms.value:,.0f} µs" if ms else "", factor(speed.value) if speed else ""]
    return lines(told[0], small(told[1]) if told[1] else "") or NOTHING


def _timed(e: Evidence, name: str, base: str, study: str, problem: Problem | None) -> str:
    """A time with its speedup over the baseline, or why there is none."""
    if problem is None:
        return small(NOT_MEASURED)
    us: Estimate = e.time(name, study, "device_warm", problem=problem)[problem]
    if not us:
        return status(why_none(us))
    gain = e.speedup(name, base, study, "device_warm", problem=problem)[problem] if base else None
    return lines(f"{us.value:,.1f} µs", small(factor(gain.value)) if gain else "")


def told(e: Evidence, name: str) -> str:
    """The speed of a version at their shapes in one line, as Markdown; or why it has none."""
    version, problem = VERSIONS[name], problem_of(e, name)
    study, base = study_of(e, name).name, version.baseline or ""
    us = e.time(name, study, "device_warm", problem=problem)[problem] if problem else Estimate.none(Known(NOT_MEASURED))
    if not us:
        known = e.study(study).known(name, problem) if problem else us.why
        why = known if known and not known.ran else why_none(us)
        return f"{link(name)}: **{why.word}**" + f", {escape(why.reason)}" * bool(why.reason) + "."
    gain = e.speedup(name, base, study, "device_warm", problem=problem)[problem] if base else None
    if not gain:
        return f"{link(name)}: **{us.value:,.1f} µs** a call at their shapes."
    said = published.speedup(name, base, problem)
    printed = f", published {gained(said.value)}" if said else ""
    return f"{link(name)} beside {link(base)}, at their shapes: **{gained(gain.value)}**{printed}."


def result(study: Study, name: str) -> str:
    """Whether the result of a version is right, and at which head dims it is not: `"right; wrong at 4096"`."""
    told: dict[str, list[str]] = {}
    for hdim, problem in study.shapes(name, refused=True).items():
        word = study.known(name, problem).word
        if word != UNSUPPORTED:
            told.setdefault(RIGHT if word == OK else word, []).append(str(hdim))
    first = next((word for word in (RIGHT, WRONG, *told) if word in told), NOT_MEASURED)
    rest = [f"{word} at {', '.join(dims)}" for word, dims in told.items() if word != first]
    return "; ".join([mark(first, OK if first == RIGHT else first), *rest])
