"""All versions: a line each, and what is wrong in those of the documents."""

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape

from kernels import VERSIONS, Problem, Version
from kernels.checking.check import supports

from ..evidence import Estimate, Evidence, Source, Study, computed, measured, published_on
from ..evidence.known import OK
from ..models.moves import example
from ..record import published
from ..record.files import DataError
from ..record.text import NOTHING, factor, span
from ..studies import PUBLISHED, STUDIES, THEIR_SMS
from .kernel import main_of
from .reasons import what_is_wrong
from .table import Table, code, family_title, lines, link, mark, short, small
from .versions import WARM, complete, elsewhere, fair, fastest, in_order, rest_of, taken

GROUPS: dict[str, Callable[[Version], object]] = {  # parts of the overview: a version stands in the first that fits
    "peers: what a user would pick instead": lambda version: version.is_peer,
    "controls: a version written again in CUDA C++": lambda version: version.control_of,
    "ablations: one thing changed": lambda version: version.ablation,
    "beyond the documents": lambda version: version.beyond,
    "of the documents": lambda version: True,
}


def overview(e: Evidence, family: str) -> Table:
    """A line a version of a family, by groups: what it changes, how its checks went, and how fast it is.

    Of each version the first of the studies in which it takes a problem.
    """
    studies, used = complete(e), list[str]()
    groups: dict[str, list[list[str]]] = {name: [] for name in reversed(GROUPS)}
    for version in in_order(family):
        study = next((each for each in studies if taken(each, version)), None)
        parent = f"{code(version.parent)}: " if version.parent else ""
        wrong = what_is_wrong(study, version) if study else []
        used += [study.name] if study else []
        change = lines(parent + escape(version.change) or NOTHING, *map(small, wrong))
        cells = _in_short(e, study, version) if study else (_not_here(e, version), NOTHING, NOTHING)
        name = f"{link(version.id)}<small class='title'><br>{escape(version.title)}</small>"
        groups[next(group for group, fits in GROUPS.items() if fits(version))].append([name, change, *cells])
    header = ["version", "what it changes", "check", "speed, whole card, GPU alone", "published"]
    filled = [i for i in range(len(header)) if any(row[i] != NOTHING for rows in groups.values() for row in rows)]
    rows = [row for name, of in groups.items() if of for row in ([name], *(_told(each, filled) for each in of))]
    source = measured(e, *dict.fromkeys(used)) + published_on(family) if used else Source()
    shown, title = [header[i] for i in filled], f"{family_title(family)}: every version"
    return Table(shown, rows, shown[3:], id=f"{family}-versions", source=source, title=title)


def _told(row: Sequence[str], filled: Sequence[int]) -> list[str]:
    """The cells of a line in the filled columns, without the dashes that it ends with where it has no speed at all."""
    cells = [row[i] for i in filled]
    return cells if any(each != NOTHING for each in row[3:]) else cells[: len([i for i in filled if i < 3])]


def _not_here(e: Evidence, version: Version) -> str:
    """How the checks of a version that this card did not measure went on another; or that none did."""
    other = elsewhere(e, version)
    if not other:
        return small("not measured")
    study = next(each for each in complete(other) if taken(each, version))
    where = f"<a href='practice.html'>on the {other.card.removeprefix('NVIDIA ')} only</a>"
    return lines(*(f"{mark(how)} {small(where)}" for how in _outcomes(study, version, taken(study, version))))


def _in_short(e: Evidence, study: Study, version: Version) -> tuple[str, str, str]:
    """Checks by outcome, and how fast it is, as measured and as published."""
    problems = taken(study, version)
    shown = lines(*(f"{mark(how)} {small(where)}" for how, where in _outcomes(study, version, problems).items()))
    if any(study.known(version.id, problem).word == OK and _lucky(version, problem) for problem in problems):
        shown = lines(shown, small("by luck: a barrier is missing"))
    speeds = [NOTHING, NOTHING]
    if peers := fastest(e, version):
        over = small(f"over the fastest library, {len(peers)} shapes")
        speeds[0] = lines(span((rival.over.value for rival in peers.values()), "×", 2), over)
    elif version.baseline and problems:
        claims = [published.speedup(version.id, version.baseline, problem) for problem in problems]
        if known := fair(e, study, version, version.baseline):
            over = f"over {short(version.baseline)}"
            all_of = small(_range(known, study)) if len(known) > 1 else ""
            main = main_of([*known])
            theirs = e.under(THEIR_SMS).speedup(version.id, version.baseline, problem=main)[main]
            on_theirs = small(f"{factor(theirs.value)} on their SMs") if theirs else ""
            speeds[0] = lines(factor(known[main].value), small(over), all_of, on_theirs, _over_parent(e, version))
        speeds[1] = span((claim.value for claim in claims if claim), "×", 2)
    return shown, speeds[0], speeds[1]


def _range(known: Mapping[Problem, Estimate], study: Study) -> str:
    """The least and the largest speed in a study, and of how many of which shapes."""
    whose = "of the documents" if study.name in PUBLISHED.split(",") else f"of study {study.name}"
    return f"{span((each.value for each in known.values()), '×', 2)}, {len(known)} shapes {whose}"


def _lucky(version: Version, problem: Problem) -> bool:
    """Whether nothing separates its scores from the softmax that reads them."""
    plan = None if version.is_peer else version(problem)
    return any("no barrier separates the scores" in hazard.why for hazard in (plan.hazards if plan else ()))


def _over_parent(e: Evidence, version: Version) -> str:
    """How fast an ablation is over the version that it changes, where that is not its baseline."""
    if not version.ablation or version.parent in ("", None, version.baseline):
        return ""
    known = e.speedup(version.id, version.parent, "ablation", WARM, problem=taken(e.study("ablation"), version)).known
    return small(f"{factor(known[main_of([*known])].value)} over {short(version.parent)}") if known else ""


def _outcomes(study: Study, version: Version, problems: Sequence[Problem]) -> dict[str, str]:
    """Where a version has an outcome: the head dims, and of one that has several outcomes, the shapes or most of them.
    """
    found: dict[str, dict[int, list[Problem]]] = {}
    for problem in problems:
        found.setdefault(study.known(version.id, problem).word, {}).setdefault(problem.hdim, []).append(problem)
    if len(found) == 1:
        return dict.fromkeys(found, "everywhere")

    def where(hdim: int, at: Sequence[Problem]) -> str:
        if sum(hdim in dims for dims in found.values()) == 1:
            return str(hdim)
        few = len(at) <= 2
        return f"{hdim} ({', '.join(rest_of(each) for each in at)})" if few else f"{hdim} (mostly)"

    return {how: ", ".join(where(*each) for each in dims.items()) for how, dims in found.items()}


DEFECTS = (  # of the documents' versions: texts that declare it, what it is and what one sees, and where it is fixed
    (
        ("warps beyond the first keep their own",),
        "Only the first warp gets the result of a block reduction: NaN, or outputs that are about twice too large.",
        "{attention_online_fixed}, ours; {rope_v1b}, the authors'",
        ("A-06", "C-01"),
    ),
    (
        ("each warp normalises its 32 keys",),
        "The same bug: a warp scales its keys by its own maximum and sum. The weights are wrong.",
        "{attention_two_pass_float4}, the authors'",
        (),
    ),
    (("dims from 2048 on are never written",), "Dims from 2048 on are never written.", "", ("A-21",)),
    (
        ("the first tile, too, starts from the output in memory",),
        "The output is read before anyone has written it: NaN, if the memory holds NaN.",
        "",
        (),
    ),
    (
        ("the softmaxes of tiles of",),
        "The softmaxes of several tiles of keys are added up. The weights are wrong.",
        "",
        (),
    ),
    (
        ("each score is overwritten with 0", "lanes 0, 8, 16 and 24 store"),
        "Four lanes store different scores to one address. No output is right.",
        "",
        (),
    ),
    (("Q and K rounded to float16",), "Q and K are rounded to float16: errors above what float32 allows.", "", ()),
    (
        ("three threads copy again",),
        "Threads store the same values as a copy under way, and nothing orders them: a race without harm.",
        "",
        (),
    ),
    (
        ("later heads take table rows", "the position is the token's index modulo 64", "positions are token modulo 64"),
        "Positions are counted modulo 64. With fewer tokens, later heads read past the end of the tables. With more, "
        "positions begin again at 0.",
        "{rope_v8}, ours",
        (),
    ),
    (
        ("no barrier separates the last read of one block reduction",),
        "No barrier between two reductions in one buffer: <a href='checks.html'>a race</a>. The result may be wrong. "
        "No check of RoPE showed it; the emulator and racecheck report it.",
        "{rope_v8} and what is beyond the documents, ours",
        (),
    ),
    (
        ("rows 1 to 3 of every 32", "no barrier separates the scores", "in the first tile, that maximum is of"),
        "No barrier behind the scores: rows begin with what another block left, some with NaN.",
        "{fp16_phase6_iter1}, the authors'",
        ("E-09",),
    ),
)


def defects() -> Table:
    """Every defect that versions of the documents declare, with these versions, by family. Raises: DataError for one
    that is not told here."""
    have: dict[str, dict[str, list[str]]] = {}
    studied = [STUDIES[name] for name in (*PUBLISHED.split(","), "controlled", "beyond")]
    problems = dict.fromkeys(problem for study in studied for problem in study.problems)
    for version in (each for each in VERSIONS.values() if each.of_log and each.built_from == each.id):
        plans = [version(problem) for problem in problems if supports(version, problem)] or [example(version)]
        for text in {text for plan in plans for text in (plan.defect, *(each.why for each in plan.hazards)) if text}:
            bugs = [bug for parts, bug, *_ in DEFECTS if any(part in text for part in parts)]
            if not bugs:
                raise DataError(f"{version.id} declares {text!r}, which the table of defects does not tell")
            for bug in bugs:
                have.setdefault(bug, {}).setdefault(version.family, []).append(version.id)
    rows = []
    for _, bug, fixed, claims in DEFECTS:
        kernels = (
            f"{family_title(family)}: {', '.join(link(each, short(each)) for each in dict.fromkeys(names))}"
            for family, names in have[bug].items()
        )
        where = re.sub(r"{(\w+)}", lambda match: link(match[1]), fixed)
        ledger = ", ".join(f"<a href='claims.html#{claim}'>{claim}</a>" for claim in claims)
        rows.append((lines(*kernels), bug, where or "no", ledger or NOTHING))
    header = ("kernels", "the bug, and what one sees", "fixed", "claim")
    caption = (
        "What the versions of the documents declare: a check that sees more or less fails. The documents say that all "
        "implementations pass (<a href='claims.html#D-01'>D-01</a>)."
    )
    source = computed("declared by the plans of the versions")
    return Table(header, rows, caption=caption, id="defects", source=source, title="What is wrong where")
