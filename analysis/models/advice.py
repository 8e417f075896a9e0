"""Whether to fuse RoPE into attention: the chapter's rule, and the measured shapes that are nearest.

python -m analysis advise --heads 32 --seq-q 128 --seq-k 1024 --hdim 128 --rotary-dim 64
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernels import Problem, Unsupported
from kernels.constants import MUST_BE, require
from kernels.v8 import require_problem, wgmma_shape

from ..measure.studies import FUSIONS, MAIN
from ..records.current import complete_runs
from ..records.files import REFERENCE, DataError, gpu_folder, known_gpus, parsed
from ..records.interval import Ratio
from ..records.known import best
from ..records.measured import Measured, Time
from .fusion import FULL, HYBRID, SEPARATE, WORDS, problems

MEANS = {
    FULL: "fuse it fully",
    HYBRID: "rotate K in a launch of its own and fuse the rotation of Q",
    SEPARATE: "do not fuse: rotate Q and K in launches of their own",
}
STUDIES = ("map", "beyond")  # those that time the whole family
SHOWN = 3
FAR = 4.0  # a factor in one size, beyond which a measured problem says little
CORE_KEYS = wgmma_shape.KEYS

SIZES: dict[str, Callable[[Problem], float]] = {
    "heads of K": lambda p: p.batch * p.kv_heads,
    "heads a head of K": lambda p: p.heads // p.kv_heads,
    "queries": lambda p: p.seq_q,
    "keys": lambda p: p.seq_k,
    "head dim": lambda p: p.hdim,
    "rotated dims": lambda p: p.rotary_dim,
}


@dataclass(frozen=True)
class Near:
    """A measured problem near the one asked about, which differs from it by at most `factor` in every size.

    `us` is the time of full fusion, `over` how many times as long each of the others takes.
    """

    problem: Problem
    factor: float
    us: Time
    over: dict[str, Ratio]

    @property
    def text(self) -> str:
        others = (
            f"{WORDS[version]} {each.value:.2f} times as long ({each.low:.2f} to {each.high:.2f})"
            for version, each in self.over.items()
        )
        return f"{self.problem}: full fusion takes {self.us.us:,.1f} µs, {', '.join(others)}"


@dataclass(frozen=True)
class Advice:
    """What the rule says of a problem, and what was measured nearest to it, the nearest first."""

    problem: Problem
    card: str
    choice: str
    nearest: tuple[Near, ...]

    @property
    def far(self) -> bool:
        """Whether nothing that was measured is within a factor of `FAR` in every size."""
        return self.nearest[0].factor > FAR

    @property
    def text(self) -> str:
        lines = [f"By the rule for the {self.card}: {MEANS[self.choice]} (`{self.choice}`)."]
        if starved(self.problem):
            lines[0] += " At such shapes PyTorch, compiled as one graph, is often faster than these: time it first."
        if self.far:
            lines[0] += f" Nothing within a factor of {FAR:g} in every size was measured."
        near = (f"  {each.text}; sizes within {each.factor:.2g}×" for each in self.nearest)
        return "\n".join([*lines, "The nearest measured shapes:", *near])


def rule(problem: Problem) -> str:
    """The version that the chapter's rules choose."""
    return HYBRID if few_heads(problem) else FULL


def _ratios(problem: Problem, other: Problem) -> list[float]:
    """By how many doublings the sizes of two problems differ; a mask is one."""
    sizes = [abs(math.log2(size(problem) / size(other))) for size in SIZES.values()]
    return [*sizes, float(problem.causal != other.causal)]


def nearest(studies: Sequence[Measured], problem: Problem, count: int = SHOWN) -> tuple[Near, ...]:
    """Of the problems on which the whole family was timed, the nearest in the logarithms of their sizes."""
    found: dict[Problem, Measured] = {}
    for measured in studies:
        for other in problems(measured):
            found.setdefault(other, measured)
    near = []
    for other in sorted(found, key=lambda other: (math.hypot(*_ratios(problem, other)), other))[:count]:
        measured = found[other]
        us, over = measured.time(FULL, other), {v: measured.ratio(v, FULL, other) for v in (HYBRID, SEPARATE)}
        assert us is not None
        factor = 2 ** max(_ratios(problem, other)[:-1])
        near.append(Near(other, factor, us, {version: ratio for version, ratio in over.items() if ratio}))
    return tuple(near)


def advice_of(studies: Sequence[Measured], problem: Problem) -> Advice:
    """The advice for a problem by studies of one card. Raises: Unsupported, DataError where none has the family."""
    require_problem(problem, "rope")
    require(problem.rotary_dim > 0, "rotary_dim", problem.rotary_dim, "even and above 0", MUST_BE)
    near = nearest(studies, problem)
    if near:
        return Advice(problem, studies[0].card, rule(problem), near)
    for measured in studies:
        for version in FUSIONS:
            known = best(measured, version, measured.problems("rope"))
            if not known.ran:
                why = f": {known.reason}" if known.reason else ""
                raise DataError(f"{version} is {known.word} on the {measured.card}{why}")
    raise DataError("the three versions were not timed together: `make measure STUDY=map` does")


def load(gpu: str | None = None) -> list[Measured]:
    """The studies of the family on a card: by default of the only one there is, or of the reference.

    Raises: DataError for an unknown card, or where several were measured and none is named.
    """
    known = known_gpus()
    if gpu is None and len(known) != 1 and REFERENCE not in known:
        raise DataError(f"name the card by --gpu; there is: {', '.join(known) or 'none'}")
    folder = gpu_folder(gpu or (known[0] if len(known) == 1 else REFERENCE))
    runs = complete_runs(parsed(folder / "runs.csv", "runs"))
    return [Measured.read(folder, study) for study in STUDIES if study in runs]


def advise(problem: Problem, gpu: str | None = None) -> Advice:
    """Whether to fuse RoPE into attention. Raises: Unsupported, DataError."""
    return advice_of(load(gpu), problem)


def answer(problem: Problem, gpu: str | None = None) -> str:
    """The text of the advice, or what has to be measured for it, or why there is none."""
    try:
        return advise(problem, gpu).text
    except (DataError, Unsupported) as why:
        return str(why)


# ---------------------------------------------------------------- the rules of the chapter

MANY_HEADS = 32
FEW_QUERIES = 1024  # over the batch and all heads


def kv_heads(problem: Problem) -> int:
    """Heads of K and V, counted through the batch: each is rotated by blocks of its own."""
    return problem.batch * problem.kv_heads


def few_heads(problem: Problem) -> bool:
    """Whether many keys meet heads of K too few to fill a card, so that K is better rotated in a launch before."""
    return not short(problem) and kv_heads(problem) < MANY_HEADS


def many_heads(problem: Problem) -> bool:
    """Whether many keys meet heads of K enough to fill a card."""
    return not short(problem) and not few_heads(problem)


def log_load(problem: Problem) -> bool:
    """Whether the problem has the heads and tokens of the documents' main shapes."""
    main = (MAIN.batch, MAIN.heads, MAIN.seq_q, MAIN.seq_k)
    return (problem.batch, problem.heads, problem.seq_q, problem.seq_k) == main


def decoding(problem: Problem) -> bool:
    """Whether one query a head meets many keys."""
    return problem.seq_q == 1 and not short(problem)


def one_query(problem: Problem) -> bool:
    """Whether few heads decode one token each against many keys."""
    return decoding(problem) and few_heads(problem)


def starved(problem: Problem) -> bool:
    """Whether many keys meet few queries over all heads, so that few clusters of blocks go through all keys."""
    return not short(problem) and problem.batch * problem.heads * problem.seq_q <= FEW_QUERIES


def short(problem: Problem) -> bool:
    """Whether one tile holds all keys."""
    return problem.seq_k <= CORE_KEYS


TYPICAL = {
    "decoding a token, keys not rotated yet": Problem("rope", 1, 32, 32, 1, 2048, 128, 128),
    "the same, 4 heads a kv_head": Problem("rope", 1, 32, 8, 1, 2048, 128, 128),
    "checking 8 drafted tokens": Problem("rope", 1, 32, 32, 8, 2048, 128, 128),
    "a chunk of a prompt": Problem("rope", 1, 32, 32, 128, 1024, 128, 64),
    "a prompt": Problem("rope", 1, 8, 8, 1536, 1536, 128, 128),
    "the log's largest of 4 heads": Problem("rope", 1, 4, 4, 64, 64, 2048, 128),
}


# ---------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis advise", description="Should RoPE be fused here?")
    parser.add_argument("--gpu", help="a folder of data/measured/; by default the only one, or the reference")
    for name, usual in (("batch", 1), ("heads", 1), ("seq-q", 64), ("hdim", 128)):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"{usual} by default")
    for name, hint in (("kv-heads", "heads"), ("seq-k", "seq-q"), ("rotary-dim", "hdim"), ("q-offset", "the last")):
        parser.add_argument(f"--{name}", type=int, help=f"{hint} by default")
    parser.add_argument("--causal", action="store_true")
    options = vars(parser.parse_args(arguments))
    gpu = options.pop("gpu")
    if options["rotary_dim"] is None:
        options["rotary_dim"] = options["hdim"]
    try:
        advice = advise(Problem("rope", **options), gpu)
    except (DataError, ValueError) as error:  # Unsupported among them
        print(f"advise: {error}", file=sys.stderr)
        return 1
    print(f"{advice.problem}\n{advice.text}")
    return 0
