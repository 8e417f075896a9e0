"""The steps of a ladder: what each version tries, whether it is right, and how near to the ceiling it comes."""

import contextlib
import math
from html import escape
from typing import NamedTuple

from kernels import VERSIONS, Plan, Problem, Version

from ..claims.rule import compare
from ..claims.rule import told as verdict
from ..evidence import COUNTED, Estimate, Evidence, Known, Source, Study, counters_of, measured, published_on
from ..evidence.evidence import home
from ..evidence.known import NOT_MEASURED, OK, UNSUPPORTED, WRONG
from ..models.moves import COUNTERS, moves, plan_of, work
from ..models.rivals import V8, flops_left
from ..record import published
from ..record.files import DataError
from ..record.text import NOTHING, factor, number
from ..studies import MAIN, SLICES, THEIR_SMS
from .table import Table, lines, link, mark, ratio, short, small, status, why_none

RIGHT = "right"
APART = "*"  # marks a printed ratio that is not of the printed time beside it
SHOWN = {"fp16": 64}  # the head dim whose times are shown, of the other families that of `MAIN`
BESIDE = {"attention": ("torch_matmul_softmax",), "rope": (V8,)}  # what a ladder is shown with, and not a step of it
COMPARED = {  # what has no baseline of its own in the documents, and what it is compared with
    "attention_atomics": "attention_baseline",
    "torch_matmul_softmax": "attention_baseline",
    "sinusoidal_separate_float4": "sinusoidal_separate_scalar",
}
SAME = ("attention_online", "rope_v1a", "rope_v1b")  # which move what their next step moves
MASKED = {"fp16_phase4": "fp16_phase4_causal"}  # a baseline, and the same with a causal mask
REMARKS = {
    "sinusoidal": "The hybrids are compared with Separate float4, all others with Separate scalar.",
    "attention": "At head dim 16384, which the write-up names, no document prints a time.",
    "rope": "V1 to V6a rotate all dims, and are compared with Separate that does, too. V8 is ours, and was timed in a "
    "study of its own with Separate beside it. It multiplies on tensor cores, which have another peak.",
    "fp16": "Phase 4 is compared with Minimal. Phase 6 has a causal mask: our × is over Phase 4 with that mask, the "
    "published one over Phase 4 without it.",
}


def ladder(family: str) -> list[Version]:
    """The steps of the documents in order; where one was refused for its shared memory, that with more of it."""
    found = [v for v in VERSIONS.values() if v.family == family and v.of_log and not v.fast_math]
    replaced = {version.variant_of for version in found}
    return [version for version in found if version.id not in replaced]


def shown(family: str) -> list[Version]:
    """A ladder, and what it is shown with."""
    return [*ladder(family), *(VERSIONS[name] for name in BESIDE.get(family, ()))]


def problem_of(e: Evidence, name: str) -> Problem | None:
    """The documents' shape of a version whose time is shown."""
    return study_of(e, name).shapes(name, refused=True).get(SHOWN.get(VERSIONS[name].family, MAIN.hdim))


def study_of(e: Evidence, name: str) -> Study:
    return e.study("beyond" if VERSIONS[name].beyond else home(name))


def base_of(name: str, problem: Problem | None) -> str:
    """The version that one is compared with: its baseline, with the mask of the problem; "" of a baseline."""
    base = VERSIONS[name].baseline or COMPARED.get(name, "")
    return MASKED.get(base, base) if problem and problem.causal else base


def ceiling(e: Evidence, problem: Problem) -> float:
    """Least microseconds of the products that a mask leaves, at the card's measured fp32 rate or, for half precision,
    that of its tensor cores."""
    rate = e.gpu["ceilings"]["fp32_tflops" if problem.dtype == "float32" else "tensor_tflops"]
    return flops_left(problem) / rate / 1e6


class Done(NamedTuple):
    """One call of each step of a ladder: plans, the work that is done by `WORK`, how it is counted, and where."""

    plans: dict[str, Plan]
    work: dict[str, dict[str, float]]
    counted: str
    source: Source


def done(e: Evidence, family: str) -> Done:
    """One call of each step that is counted, at the head dim shown: by the card's counters where it has them of all."""
    hdim, plans = SHOWN.get(family, MAIN.hdim), dict[str, Plan]()
    for version in shown(family):
        with contextlib.suppress(DataError):
            plans.update({} if version.id in SAME else {version.id: plan_of(version.id, hdim)})
    found = {
        name: {what: e.counter(name, each, problem=plan.problem)[plan.problem] for what, each in COUNTERS.items()}
        for name, plan in plans.items()
    }
    read = all(each for mine in found.values() for each in mine.values())
    values = {name: {what: each.value for what, each in mine.items() if read} for name, mine in found.items()}
    counted = (
        "Sectors of global memory, of 32 bytes, are as the emulator counts them; wavefronts of shared memory, and "
        f"instructions of warps, as {f'Nsight Compute does on the {e.card}' if read else 'it does, too'}."
    )
    own = counters_of(e, e.record.frame("counters").query("version in @plans")["run"]) if read else Source()
    all_work = {name: {**work(name, plan.problem), **values[name]} for name, plan in plans.items()}
    return Done(plans, all_work, counted, COUNTED + own)


def traffic(e: Evidence, family: str) -> Table:
    """A row for each step that is counted: blocks, how often K is read, sectors, wavefronts and instructions."""
    found = done(e, family)
    of_k = {"sectors of K": ("global.read.sectors.k",)}
    amounts = {name: {**work(name, found.plans[name].problem, of_k), **mine} for name, mine in found.work.items()}
    first, *_ = amounts.values()
    rows = []
    for name, mine in amounts.items():
        last = [each for each in moves(name, found.plans[name]) if each][-1]
        told = (lines(f"{n / 1e6:.3g} M", small(_gain(n / first[what]))) for what, n in mine.items())
        shape = (f"{math.prod(last.launch.grid):,}", f"{last.passes}×")
        rows.append((link(name, short(name).removesuffix(" 227k")), *shape, *told))
    header = ("version", "blocks", "K is read", "sectors of K", "all sectors", "wavefronts, shared", "instructions")
    hdim, title = SHOWN.get(family, MAIN.hdim), "What one call reads and does"
    caption = f"One call at head dim {hdim}, in millions (M); × is over the first row. {found.counted}"
    return Table(header, rows, header[1:], caption, id=f"{family}-traffic", source=found.source, title=title)


def steps(e: Evidence, family: str) -> Table:
    """A row a step: what it tries, whether its result is right, how much of the peak it reaches, and its times."""
    rows = [_row(e, study_of(e, version.id), version) for version in shown(family)]
    header: tuple[str, ...] = ("version", "idea", "result", "peak reached", "published", "their SMs", "whole card")
    results = "The result is of all head dims of the documents."
    if len({row[2] for row in rows}) == 1:
        results = f"The result is {rows[0][2]} in all rows, at all head dims of the documents."
        rows, header = [(*row[:2], *row[3:]) for row in rows], (*header[:2], *header[3:])
    if family == "rope":
        rotated = [problem_of(e, version.id) for version in shown(family)]
        rows = [(*row[:2], str(each.rotary_dim) if each else NOTHING, *row[2:]) for row, each in zip(rows, rotated)]
        header = (*header[:2], "dims rotated", *header[2:])
    over = {version.baseline for version in ladder(family) if version.baseline}
    caption = (
        f"Head dim {SHOWN.get(family, MAIN.hdim)}. A step changes one above it. {results} Peak reached: the least time "
        f"of both products, at the {'tensor-core' if family == 'fp16' else 'fp32'} rate of the {e.card}, over the "
        f"time. Times are of the GPU alone; × is the speedup{f' over {link(*over)}' if len(over) == 1 else ''}, above "
        f"1 faster. {REMARKS.get(family, '')} Published: {published.card(family)}, from several programs, each × over "
        "a baseline of theirs. Other head dims: the page of each version."
    )
    if any(APART in cell for row in rows for cell in row):
        caption += f" {APART} The ratio is of another document than the time."
    studies = dict.fromkeys(study_of(e, version.id).name for version in shown(family))
    source = measured(e, *studies, SLICES, f"{SLICES}_fp16") + published_on(family)
    return Table(header, rows, header[-4:], caption, id=f"{family}-steps", source=source, title="The steps")


PARTS = {  # what is changed in Phase 4, by the end of the ablation's name
    "no_scores": "without Q times K",
    "no_softmax": "without the softmax",
    "no_values": "without the product with V",
    "mma": "both products on tensor cores",
    "padded": "rows padded by a few elements",
    "all_threads": "all threads at the scores",
    "scalar_loads": "scalar loads in place of vector loads",
}


def parts(e: Evidence) -> Table:
    """The cost of each part of Phase 4: how fast it is with one change, on their SMs and on the whole card."""
    rows = []
    for change, words in PARTS.items():
        name = f"fp16_phase4_{change}"
        gains = (at.speedup(name, "fp16_phase4", hdim=SHOWN["fp16"])[SHOWN["fp16"]] for at in (e.under(THEIR_SMS), e))
        rows.append((link(name, words), *(ratio(each) if each else status(why_none(each)) for each in gains)))
    header = ("change", "their SMs", "whole card")
    caption = (
        f"How many times as fast as {link('fp16_phase4')}, on the GPU alone, with the 95 % interval {e.covers()}. "
        "Without a part the result is wrong on purpose."
    )
    source = measured(e, "ablation", f"{SLICES}_fp16")
    return Table(header, rows, header[1:], caption, "phase4-parts", source, "Phase 4 with one change")


SUSPECTS = {  # what is removed from an iteration of Phase 6, by the ablation
    "fp16_phase6_iter1_own_row": "registers: a thread keeps the values of its own row alone",
    "fp16_phase6_iter2_padded": "bank conflicts: rows are padded",
    "fp16_phase6_iter2_32_threads": "idle threads: they are left out",
}


def suspects(e: Evidence) -> Table:
    """The share of Phase 6's gap to Phase 4 that closes without each suspect, on their SMs and on the whole card."""
    rows, over = [], MASKED["fp16_phase4"]
    for name, words in SUSPECTS.items():
        slow = "_".join(name.split("_")[:3])
        cards = (e.under(THEIR_SMS), e)
        shares = (at.share_closed(slow, name, over, hdim=SHOWN["fp16"])[SHOWN["fp16"]] for at in cards)
        cells = (number(100 * each.value, "%", 0) if each else status(why_none(each)) for each in shares)
        rows.append((short(slow), link(name, words), *cells))
    header = ("version", "suspect", "their SMs", "whole card")
    caption = (
        f"The share of a version's gap to {link(over)} that closes without a suspect, on the GPU alone. 100 % is the "
        "whole gap, and with more the version is the faster one. Our rule asks for half of the gap on their SMs. "
        "Barriers are not in the table, as none was removed."
    )
    source = measured(e, "ablation", f"{SLICES}_fp16")
    return Table(header, rows, header[2:], caption, "suspects", source, "Phase 6 without each suspect")


def fusions(e: Evidence) -> Table:
    """Markdown for the README: each way of the log to fuse RoPE, and V8, over the log's separate kernels."""
    rows = []
    for version in (*(each for each in ladder("rope") if each.baseline), VERSIONS[V8]):
        name, base, problem = version.id, version.baseline or "", problem_of(e, version.id)
        said = published.speedup(name, base, problem) if problem else None
        asked = ((e.under(THEIR_SMS), ""), (e, study_of(e, name).name))
        theirs, whole = (timed(at, name, study, problem)[1] for at, study in asked)
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
    name, problem = version.id, problem_of(e, version.id)
    us, gain = timed(e, name, study.name, problem)
    stale = mark("stale") if us and name in study.stale_versions() else ""
    return (
        link(name, short(name).removesuffix(" 227k")),
        version.title,
        result(study, name),
        f"{100 * ceiling(e, problem) / us.value:.2f} %" if problem and us and name != V8 else NOTHING,
        _published(name, problem) if problem else NOTHING,
        _cell(*timed(e.under(THEIR_SMS), name, "", problem)),
        lines(_cell(us, gain), stale),
    )


def _published(name: str, problem: Problem) -> str:
    """The time and the speedup that the documents print; where the ratio is not of that time, with a mark."""
    base = base_of(name, None)  # whatever the mask: the documents compare so
    us, over = (published.published(each, problem) for each in (name, base))
    speed = published.speedup(name, base, problem)
    apart = us and over and speed and abs(math.log(speed.value * us.value / over.value)) > 0.1
    told = small(_gain(speed.value) + APART * bool(apart)) if speed else ""
    return lines(f"{1e3 * us.value:,.0f} µs" if us else "", told) or NOTHING


def timed(e: Evidence, name: str, study: str, problem: Problem | None) -> tuple[Estimate, Estimate]:
    """A version's time on the GPU alone, and its speedup over what it is compared with."""
    base = base_of(name, problem)
    if problem is None:
        return (Estimate.none(Known(NOT_MEASURED)),) * 2
    us = e.time(name, study, problem=problem)[problem]
    if not base:
        return us, Estimate.exact(1.0)
    beside = "" if base in MASKED.values() else study  # one with a mask was added for a study of its own
    return us, e.speedup(name, base, beside, problem=problem)[problem]


def _cell(us: Estimate, gain: Estimate) -> str:
    return lines(f"{us.value:,.1f} µs", small(_gain(gain.value)) if gain else "") if us else status(why_none(us))


def _gain(ratio: float) -> str:
    """A speedup, to two decimals below ten: `"0.83×"`, `"77×"`, and `"1×"` of the baseline itself."""
    return number(ratio, "×", 0 if ratio >= 10 or ratio == 1 else 2)


def told(e: Evidence, name: str) -> str:
    """The speed of a version at their shapes in one line, as Markdown; or why it has none."""
    study, problem = study_of(e, name), problem_of(e, name)
    base, (us, gain) = base_of(name, problem), timed(e, name, study.name, problem)
    if not problem or not us:
        known = study.known(name, problem) if problem else Known(NOT_MEASURED)
        why = why_none(us) if known.ran else known
        return f"{link(name)}: **{why.word}**" + f", {escape(why.reason)}" * bool(why.reason) + "."
    if not base or not gain:
        return f"{link(name)}: **{us.value:,.1f} µs** a call at their shapes."
    said = published.speedup(name, base, problem)
    printed = f" (published {_gain(said.value)})" if said else ""
    return f"{link(name)} over {link(base)}, at their shapes: **{_gain(gain.value)}**{printed}."


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
