"""Whether to fuse RoPE into attention.

    python -m analysis advise --heads 32 --seq-q 128 --seq-k 1024 --hdim 128 --rotary-dim 64

A model (fit.py), fitted to the study `map` of the card that is asked about, predicts the time of the V8 family on a
problem; the fastest of those that run there is advised, with error bars.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels import Problem, Unsupported
from kernels.constants import MUST_BE, require
from kernels.v8 import require_problem

from ..measure.studies import FUSIONS, MAIN
from ..records.current import complete_runs
from ..records.files import REFERENCE, DataError, gpu_folder, known_gpus, parsed, written
from ..records.interval import Ratio
from ..records.known import FAILED, REFUSED, known
from ..records.measured import Measured, Time
from .cost import CORE_KEYS
from .fit import FULL, HYBRID, SEPARATE, STUDY, WORDS, Judged, judge

MEANS = {
    FULL: "Fuse it fully",
    HYBRID: "Rotate K in a launch of its own and fuse the rotation of Q",
    SEPARATE: "Do not fuse: rotate Q and K in launches of their own",
}
NEAR = 4.0  # a factor, within which a measured problem is near in a quantity


@dataclass(frozen=True)
class Advice:
    """What to do with the embedding of a problem on a card, which `gpu` names.

    `times` are predicted microseconds by version, with error bars that covered nine of ten held-out points; `margin`
    is how many times as long the runner-up takes, with its own; both are None where one version alone
    runs. `outside` says in which ways the problem lies beyond
    what was measured; there the bars promise nothing.
    """

    problem: Problem
    gpu: str
    choice: str
    runner_up: str | None
    times: Mapping[str, Time]
    margin: Ratio | None
    outside: tuple[str, ...]

    @property
    def text(self) -> str:
        taken = self.times[self.choice]
        said = f"On the {self.gpu}: {MEANS[self.choice]} ({self.choice}): {_us(taken)}"
        if self.runner_up is None or self.margin is None:
            said += "; no other version of the family takes this problem."
        else:
            said += f", and {WORDS[self.runner_up]} takes {self.margin.value:.2f} times as long "
            said += f"({self.margin.low:.2f} to {self.margin.high:.2f})."
            if self.margin.low <= 1:
                said += " The two are too close to call."
        if starved(self.problem):
            said += " At such shapes PyTorch, compiled as one graph, is often faster than these: time it first."
        if self.outside:
            said += f" Beyond what was measured: {'; '.join(self.outside)}."
        return said


def _us(taken: Time) -> str:
    return f"{taken.us:,.1f} µs ({taken.low:,.1f} to {taken.high:,.1f})"


QUANTITIES: dict[str, Callable[[Problem], float]] = {
    "batch x heads": lambda p: p.batch * p.heads,
    "heads a kv_head": lambda p: p.heads // p.kv_heads,
    "seq_q": lambda p: p.seq_q,
    "seq_k": lambda p: p.seq_k,
    "hdim": lambda p: p.hdim,
    "rotary_dim": lambda p: p.rotary_dim,
    "GFLOP": lambda p: p.flops / 1e9,
    "MB": lambda p: 8e-6 * (math.prod(p.q_shape) + math.prod(p.kv_shape)),
}


def outside(problem: Problem, measured: Iterable[Problem]) -> tuple[str, ...]:
    """In which ways a problem lies beyond those measured; empty if it lies among them."""
    measured = list(measured)
    found = []
    for name, quantity in QUANTITIES.items():
        mine, known = quantity(problem), [quantity(other) for other in measured]
        if not min(known) <= mine <= max(known):
            found.append(f"{name} is {mine:,.6g}, measured from {min(known):,.6g} to {max(known):,.6g}")
    if problem.causal and not any(other.causal for other in measured):
        found.append("causal is 1, measured without a mask alone")

    def distance(other: Problem) -> float:
        return max(abs(math.log(quantity(problem) / quantity(other))) for quantity in QUANTITIES.values())

    if not found and min(map(distance, measured)) > math.log(NEAR):
        found.append(f"no measured problem is within a factor of {NEAR:g} in everything")
    return tuple(found)


@functools.lru_cache(maxsize=4)
def _judged(folder: Path, *states: tuple[int, ...]) -> Judged:
    return judge(Measured.read(folder, STUDY))


def asked_about(gpu: str | None = None) -> str:
    """The folder of the card that is asked about: by default of the only card there is, or of the reference.

    Raises: DataError for an unknown one, or where several were measured and none is named.
    """
    known = known_gpus()
    if gpu is None and len(known) != 1 and REFERENCE not in known:
        raise DataError(f"name the card by --gpu; there is: {', '.join(known) or 'none'}")
    return gpu_folder(gpu or (known[0] if len(known) == 1 else REFERENCE)).name


def load(gpu: str | None = None) -> Judged:
    """The model of a card, fitted once a process and again when its files have changed.

    Raises: DataError when the card is unknown, its study `map` is not measured, or the V8 family does not run on it.
    """
    folder = gpu_folder(asked_about(gpu))
    files = (folder / name for name in ("runs.csv", "checks.csv", "timings.csv", "gpu.json"))
    runs = complete_runs(parsed(folder / "runs.csv", "runs"))
    if STUDY not in runs:
        return judge(Measured.nothing(folder.name, STUDY))  # raises
    return _judged(folder, *map(written, files))


def advise(problem: Problem, gpu: str | None = None) -> Advice:
    """Whether to fuse RoPE into attention: what the model of a card predicts for the V8 family on a problem.

    `gpu` names a folder of measurements: by default the only one, or the reference.

    Raises:
        Unsupported: the V8 family does not take the problem; what was asked and what is allowed.
        DataError: the card is not known, its study `map` was not measured, or the family does not run on it.
    """
    require_problem(problem, "rope")
    require(problem.rotary_dim > 0, "rotary_dim", problem.rotary_dim, "even and above 0", MUST_BE)
    return advice_of(load(gpu), problem)


def advice_of(judged: Judged, problem: Problem) -> Advice:
    """The advice of one model, of the versions that take the problem on its card. Raises: Unsupported."""
    found = {version: known(judged.evidence, version, problem) for version in FUSIONS}
    taking = [version for version in FUSIONS if found[version].word not in (*REFUSED, FAILED)]
    if not taking:
        template = f"{{needed}} do not take {problem} on the {{allowed}}: {found[FULL].reason}"
        raise Unsupported("capability", ", ".join(FUSIONS), judged.evidence.card, template)
    predicted = {version: judged.model.us(version, problem) for version in taking}
    choice, *others = sorted(taking, key=lambda version: predicted[version])
    low, high = judged.bars
    times = {version: Time(us, us * low, us * high) for version, us in predicted.items()}
    runner_up, margin = None, None
    if others:
        runner_up = others[0]
        ratio, off = predicted[runner_up] / predicted[choice], judged.bar_of_ratios
        margin = Ratio(ratio, ratio / off, ratio * off)
    return Advice(problem, judged.evidence.card, choice, runner_up, times, margin, outside(problem, judged.problems))


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
    for version in sorted(advice.times, key=lambda name: advice.times[name].us):
        print(f"  {version:17s} {_us(advice.times[version])}")
    return 0
