"""Why results of a version are not right, and why it does not take problems: reasons that differ in numbers as one."""

import re
from collections.abc import Iterable, Sequence
from html import escape

import pandas as pd

from kernels import Version

from ..evidence import Evidence, Study
from ..evidence.known import WRONG, word
from .table import mark
from .versions import complete

Reason = tuple[str, str, str]
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?!\w)")  # a whole one in a reason


def reasons(e: Evidence, version: Version) -> tuple[list[Reason], list[Reason]]:
    """Why results are not right, and why problems are not taken: a badge, a text and the head dims of each."""
    checks = pd.concat([pd.DataFrame(columns=["version", "reason"]), *(study.checks for study in complete(e))])
    mine = checks[(checks["version"] == version.id) & checks["reason"].notna()]
    mine = mine.assign(hdim=mine["hdim"].astype(int)).sort_values("hdim", kind="stable")
    found: dict[str, list[Reason]] = {}
    for (how, why), dims in mine.groupby(["status", "reason"], sort=False)["hdim"]:
        found.setdefault(how, []).append((mark(word(how)), why, ", ".join(map(str, dims.unique()))))
    refused = _alike(found.pop("unsupported", []))
    return [each for how, of in found.items() for each in (_alike(of) if how == WRONG else of)], refused


def _alike(reasons: Iterable[Reason]) -> list[Reason]:
    """Reasons that differ in numbers alone as one."""
    groups: dict[str, list[Reason]] = {}
    for reason in reasons:
        groups.setdefault(NUMBER.sub("#", reason[1]), []).append(reason)
    found = []
    for group in groups.values():
        dims = dict.fromkeys(int(hdim) for _, _, dims in group for hdim in dims.split(", "))
        found.append((group[0][0], merged([why for _, why, _ in group]), _listed(dims)))
    return found


def merged(texts: Sequence[str]) -> str:
    """Texts that differ in numbers alone as one: where they differ, all the numbers."""
    columns = zip(*(NUMBER.findall(text) for text in texts))
    told_of = (_listed(dict.fromkeys(int(each.replace(",", "")) for each in column)) for column in columns)
    return NUMBER.sub(lambda match: next(told_of), texts[0])


def _listed(numbers: Iterable[int]) -> str:
    """Some numbers in order: a few by name, of many the first and the last."""
    found = sorted(numbers)
    return ", ".join(map(str, found)) if len(found) <= 4 else f"{found[0]} to {found[-1]}"


def what_is_wrong(study: Study, version: Version) -> list[str]:
    """Why results of a version are wrong, a sentence a reason; of a reason that another contains, the longer."""
    found = study.checks.loc[(study.checks["version"] == version.id) & (study.checks["status"] == WRONG), "reason"]
    groups: dict[str, list[str]] = {}
    for each in found.unique():
        groups.setdefault(NUMBER.sub("#", each), []).append(each)
    reasons = [merged(group) for group in groups.values()]
    return [f"Wrong: {escape(each)}." for each in reasons if not any(each in other != each for other in reasons)]
