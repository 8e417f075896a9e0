"""What one call of a version moves, from its plan and data/counts.csv: nothing here is declared by hand."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernels import Problem
from kernels.checking.check import supports
from kernels.version import Launch, Plan

from ..book.sources import example, known
from ..measure.studies import MAIN
from ..records.current import current
from ..records.files import COUNTS, DataError, problem_of, read_records
from ..verdicts.measures import SEPARATE

INPUTS = ("q", "k", "v")
EMBEDS = {"rope": ("rotation",), "sinusoidal": ("sin", "cos", "sincos")}  # events that embed two dims, or one
VERBS = {"rope": "rotates", "sinusoidal": "embeds"}
COUNTED = {  # what a step may do more or less of, by the counters that make it up
    "global memory": ("global.read.sectors", "global.write.sectors"),
    "shared memory": ("shared.wavefronts",),
    "barriers": ("barriers",),
    "sines, powers": ("event.sin", "event.cos", "event.sincos", "event.pow"),
    "instructions": ("warp_inst",),
}
Counts = Mapping[tuple[str, Problem], Mapping[int, Mapping[str, float]]]


@dataclass(frozen=True)
class Stage:
    """One launch: the buffers that it reads and writes, and how often it embeds.

    `passes` is how many tiles of queries a head has, each of which goes through all its keys. `queries` and `keys` are
    how often each vector of Q and of K is embedded; None where that is not counted.
    """

    launch: Launch
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    passes: int
    queries: float | None
    keys: float | None

    @property
    def name(self) -> str:
        """The kernel's name without the shape that V8's kernels have in it."""
        name = self.launch.kernel.name
        return (name.partition("_")[0] if self.launch.shape else name).replace("_", " ")

    @property
    def attends(self) -> bool:
        return "v" in self.reads

    @property
    def keeps(self) -> tuple[str, ...]:
        return tuple(name for name, size in self.launch.shared.sizes.items() if size)


@dataclass(frozen=True)
class Wait:
    """The host waits for the card."""


@functools.cache
def _counts() -> Counts:
    """What each launch does, by version and problem. Raises: DataError."""
    found: dict[tuple[str, Problem], dict[int, dict[str, float]]] = {}
    for row in current(read_records(COUNTS, "counts")) if COUNTS.exists() else ():
        launches = found.setdefault((row["version"], problem_of(row)), {})
        launches.setdefault(row["launch"], {})[row["counter"]] = row["value"]
    return found


def plan_of(name: str, hdim: int | None = None) -> Plan:
    """The plan that pictures of a version show: of a problem that is counted, at head dim 2048 or the next below it.

    Raises: DataError for an unknown version, a peer, and a head dim at which the version is not counted.
    """
    version = known(name)
    if version.is_peer:
        raise DataError(f"{name!r} is another's library: it has no launches to draw")
    problems = [problem for each, problem in _counts() if each == name and supports(version, problem)]
    problems = [problem for problem in problems if hdim in (None, problem.hdim)]
    if not problems and hdim is None:
        return example(version)
    if not problems:
        raise DataError(f"{name!r} is not counted at head dim {hdim}")
    # The largest up to the documents' main head dim; of rotary dims the published one.
    best = max(problems, key=lambda p: (p.hdim <= MAIN.hdim, p.hdim, p.heads, not p.causal, -p.rotary_dim))
    return version(best)


def _embedded(name: str, plan: Plan, place: int) -> float | None:
    """How many vectors a launch embeds, each time counted; None where its work is not counted.

    RoPE by its rotations. Sinusoidal embeddings by sines and cosines, one an element; where they come from tables by
    its floating point additions, beyond those of the attention in the separate path that loads alike.
    """
    problem, launch = plan.problem, plan.launches[place]
    counts = _counts().get((name, problem), {}).get(place)
    if counts is None or problem.family not in EMBEDS:
        return None
    events = sum(counts.get(f"event.{event}", 0) for event in EMBEDS[problem.family])
    if problem.family == "rope":
        return events / (problem.rotary_dim / 2)
    if events or "sin" not in launch.args:
        return None if launch.shape and not events else events / problem.hdim  # V8's cores mark rotations alone
    alike = "sinusoidal_separate_scalar" if known(name).scalar_loads else SEPARATE["sinusoidal"]
    alike = f"control_{alike}" if known(name).control_of else alike
    plain = _counts().get((alike, problem), {}).get(2, {}) if "v" in launch.args else {"inst.fp32": 0}
    return (counts["inst.fp32"] - plain["inst.fp32"]) / problem.hdim if plain else None


@dataclass(frozen=True)
class Change:
    """How much of something a call does, and how much one of its parent."""

    what: str
    now: float
    before: float


def changes(name: str, problem: Problem) -> list[Change]:
    """What a call of a version does against one of its parent, as counted; nothing where either is not counted."""
    mine, theirs = (_counts().get((each, problem)) for each in (name, known(name).parent or ""))
    if not mine or not theirs:
        return []
    found = [
        Change(
            what, *(sum(launch.get(each, 0.0) for launch in one.values() for each in parts) for one in (mine, theirs))
        )
        for what, parts in COUNTED.items()
    ]
    return [each for each in found if each.now or each.before]


def moves(name: str, plan: Plan) -> list[Stage | Wait]:
    """The launches of a plan and the host's waits, in order."""
    given = {each for each, buffer in plan.buffers.items() if buffer.init and each != "out"} | {*INPUTS}
    found: list[Stage | Wait] = []
    written: set[str] = set()
    problem, place = plan.problem, 0
    for step in plan.steps:
        if not isinstance(step, Launch):
            found.append(Wait())
            continue
        buffers = tuple(dict.fromkeys(arg for arg in step.args if isinstance(arg, str)))
        writes = tuple(each for each in buffers if each not in given | written)
        counts = _counts().get((name, problem), {}).get(place)
        taken = tuple(each for each in buffers if each not in writes)
        reads = tuple(each for each in taken if counts is None or f"global.read.sectors.{each}" in counts)
        passes = max(1, math.prod(step.grid) // (step.cluster * problem.batch * problem.heads))
        queries = problem.batch * problem.heads * problem.seq_q * ("q" in reads)
        keys = problem.batch * problem.kv_heads * problem.seq_k * ("k" in reads)
        total = _embedded(name, plan, place)
        of_keys = of_queries = None
        if total is not None:
            # Whoever embeds keys in attention does so in each pass; the rest of the count is of queries.
            times = passes if "v" in reads else 1
            of_keys = float(times) if keys and total >= times * keys else 0.0
            of_queries = (total - of_keys * keys) / queries if queries else 0.0
        found.append(Stage(step, reads, writes, passes, of_queries, of_keys))
        written |= {*writes}
        place += 1
    return found
