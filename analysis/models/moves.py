"""Bytes that one call of a version moves, and vectors that it embeds, from its plan and data/counts.csv."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels import Problem, version
from kernels.checking.check import problems, supports
from kernels.version import Launch, Plan, Version

from ..evidence.current import outdated
from ..evidence.load import everywhere
from ..record.files import COUNTS, DataError
from ..studies import STUDIES

SCALAR, FLOAT4 = "sinusoidal_separate_scalar", "sinusoidal_separate_float4"
EMBEDS = {"rope": ("rotation",), "sinusoidal": ("sin", "cos", "sincos")}  # events that embed two dims, or one
WORK = {  # what is compared of calls, by the counters that make it up
    "global": ("global.read.sectors", "global.write.sectors"),
    "shared": ("shared.wavefronts",),
    "instr.": ("warp_inst",),
}
COUNTERS = {  # of a card, of what the emulator counts as PTX has it: the assembler joins loads and instructions
    "shared": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "instr.": "smsp__inst_executed.sum",
}


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


def example(of: Version) -> Plan:
    """The plan of the first problem of a study that the version takes, or of a small one where it fits none of them."""
    studied = (problem for chosen in STUDIES.values() for name, problem in chosen.pairs() if name == of.id)
    return of(next(problem for problem in (*studied, *problems(of)) if supports(of, problem)))


@functools.cache
def _counts(name: str, problem: Problem) -> Mapping[int, Mapping[str, float]]:
    """Counts of each launch of a call; none where today's code is not counted."""
    rows = everywhere(COUNTS, "counts").get(name, {}).get(problem)
    if rows is None or outdated(rows).any():
        return {}
    return {launch: dict(zip(mine["counter"], mine["value"])) for launch, mine in rows.groupby("launch")}


def plan_of(name: str, hdim: int) -> Plan:
    """The plan that a picture of a version shows: of a problem that is counted, with the documents' rotary dim."""
    counted = everywhere(COUNTS, "counts").get(name, {})
    taken = [p for p in counted if p.hdim == hdim and _counts(name, p) and supports(version(name), p)]
    if not taken:
        raise DataError(f"{name!r} is not counted at head dim {hdim}")
    return version(name)(max(taken, key=lambda p: (p.heads, not p.causal, -p.rotary_dim)))


def _embedded(name: str, plan: Plan, place: int) -> float | None:
    """The number of vectors that a launch embeds, each time counted; None where its work is not counted.

    RoPE by its rotations. Sinusoidal embeddings by sines and cosines, one an element; where they come from tables by
    its floating point additions, beyond those of the attention in the separate path that loads alike.
    """
    problem, launch = plan.problem, plan.launches[place]
    counts = _counts(name, problem).get(place)
    if counts is None or problem.family not in EMBEDS:
        return None
    events = sum(counts.get(f"event.{event}", 0) for event in EMBEDS[problem.family])
    if problem.family == "rope":
        return events / (problem.rotary_dim / 2)
    if events or "sin" not in launch.args:
        return None if launch.shape and not events else events / problem.hdim  # V8's cores mark rotations alone
    alike = SCALAR if version(name).scalar_loads else FLOAT4
    plain = _counts(alike, problem).get(2, {}) if "v" in launch.args else {"inst.fp32": 0}
    return (counts["inst.fp32"] - plain["inst.fp32"]) / problem.hdim if plain else None


def work(name: str, problem: Problem, of: Mapping[str, Sequence[str]] = WORK) -> dict[str, float]:
    """Work of a call of a version, as counted: sums of counters, by name; nothing where it is not counted."""
    launches = _counts(name, problem).values()
    if not launches:
        return {}
    return {what: sum(launch.get(each, 0.0) for launch in launches for each in parts) for what, parts in of.items()}


def moves(name: str, plan: Plan) -> list[Stage | None]:
    """The launches of a plan, and None where the host waits, in order."""
    problem, place = plan.problem, 0
    given = {each for each, buffer in plan.buffers.items() if buffer.init and each != "out"} | {"q", "k", "v"}
    found: list[Stage | None] = []
    for step in plan.steps:
        if not isinstance(step, Launch):
            found.append(None)
            continue
        buffers = dict.fromkeys(arg for arg in step.args if isinstance(arg, str))
        counts = _counts(name, problem).get(place)
        touched = {
            way: [each for each in buffers if counts is None or f"global.{way}.sectors.{each}" in counts]
            for way in ("read", "write")
        }
        writes = tuple(each for each in touched["write"] if each not in given)
        reads = tuple(each for each in touched["read"] if each not in writes)
        given |= {*writes}
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
        place += 1
    return found
