"""Waves of blocks of a call on a card, by the compiler's report, and the gain of RoPE's V7 by one wave."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from kernels import Problem

from ..evidence import Estimates, Evidence, NotMeasured
from ..evidence.current import outdated
from ..record.files import RELEASES, read_table
from ..record.text import NOTHING
from ..studies import AUTHORS_SMS, AUTHORS_TARGET, MAIN

V7, SEPARATE = "rope_v7", "rope_separate"
LOG_BLOCKS = 256  # of attention, 4 heads of 64 queries


class Card(NamedTuple):
    """A card that a reader may have: SMs by NVIDIA's data sheets."""

    name: str
    target: str
    sms: int


CARDS = (
    Card("T4", "sm_75", 40),
    Card("A100", "sm_80", 108),
    Card("RTX 3090", "sm_86", 82),
    Card("RTX 4000 Ada, the authors'", AUTHORS_TARGET, AUTHORS_SMS),
    Card("L4", "sm_89", 58),
    Card("RTX 4090", "sm_89", 128),
    Card("H100 (SXM), H200", "sm_90", 132),
    Card("B200", "sm_100", 148),
    Card("RTX 5090", "sm_120", 170),
)


def held(e: Evidence, version: str, hdim: int | Sequence[int]) -> Estimates:
    """The number of blocks of a version's last launch that the card holds at a time, by head dim."""
    return e.resource(version, "blocks_per_sm", hdim=hdim) * e.gpu["sms"]


def compiled(e: Evidence, version: str, column: str, target: str, hdim: int = MAIN.hdim) -> int:
    """A resource of a version's last launch, as built for some target."""
    found = e.resource(version, column, target=target, hdim=hdim)[hdim]
    if not found:
        raise NotMeasured(f"{version}: no resources for {target}")
    return int(found.value)


def released(control: str, **chosen: str) -> pd.DataFrame:
    """The attention kernel of a control by release of CUDA: rows of data/releases.csv, oldest first.

    `chosen` are values of its columns, such as target="sm_89", build="default", compiler="NVRTC".
    """
    rows = read_table(RELEASES, "releases")
    asked = {"version": control, "kernel": "attention", **chosen}
    rows = rows[(rows[[*asked]] == pd.Series(asked)).all(axis=1) & ~outdated(rows)]
    if rows.empty:
        raise NotMeasured(f"{control}: no release of CUDA is recorded for {', '.join(chosen.values())}")
    return rows


def ahead(fits: int, others: int) -> list[tuple[int, int]]:
    """The first two windows of heads in which a kernel that fits `fits` blocks at once needs a wave less than another.

    A window may hold no whole number of heads; then it is left out.
    """
    ranges = ((others * waves // MAIN.seq_q + 1, fits * waves // MAIN.seq_q) for waves in (1, 2))
    return [(first, last) for first, last in ranges if first <= last]


def occupied(e: Evidence, version: str, study: str = "log", hdim: Sequence[int] | None = None) -> Estimates:
    """By head dim, the blocks of a version's last launch as a share of those that the card holds at a time."""
    blocks = e.blocks(version, study=study, hdim=hdim)
    return (blocks / held(e, version, tuple(blocks))).measured_in("%")


def waves(e: Evidence, version: str, problem: Problem) -> int:
    """The number of waves of a version's attention blocks."""
    at_once = held(e, version, problem.hdim)[problem.hdim]
    if not at_once:
        raise NotMeasured(f"{version}: no resources for {e.target}")
    return math.ceil(problem.heads * problem.seq_q / at_once.value)


def waves_in_slice(e: Evidence, version: str, sms: int = AUTHORS_SMS, blocks: int = LOG_BLOCKS) -> int:
    """The number of waves of attention blocks on so many SMs, each of which holds as many blocks as one of theirs."""
    return math.ceil(blocks / (sms * places(e, version) // AUTHORS_SMS))


def windows(e: Evidence) -> tuple[str, Estimates, Estimates]:
    """The heads at which separate kernels need a wave more than V7, V7's speedups there, and those with as many."""
    problems = e.study("waves").problems("rope")
    more = [problem for problem in problems if waves(e, SEPARATE, problem) > waves(e, V7, problem)]
    alike = [problem for problem in problems if problem not in more]
    if not more:
        raise NotMeasured("no number of heads of the study needs a wave more")
    won, level = (e.speedup(V7, over=SEPARATE, study="waves", problem=chosen) for chosen in (more, alike))
    return runs_of({p.heads for p in more}, {p.heads for p in problems}), won, level


def runs_of(chosen: set[int], among: Iterable[int]) -> str:
    """Numbers of heads as ranges of those that were measured: `"11 to 12 and 21 to 24"`."""
    runs = [[*each] for inside, each in itertools.groupby(sorted(among), key=chosen.__contains__) if inside]
    return " and ".join(f"{each[0]} to {each[-1]}" if len(each) > 1 else f"{each[0]}" for each in runs) or NOTHING


def places(e: Evidence, version: str, hdim: int = MAIN.hdim) -> int:
    """The number of blocks of a version's attention that fit the authors' card at once."""
    return AUTHORS_SMS * compiled(e, version, "blocks_per_sm", AUTHORS_TARGET, hdim)
