"""`python -m kernels which --seq-q 1 --seq-k 4096`: the kernel that the op runs for a call, its launches, and why."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import torch

from .flash.call import NAMES, WHOLE
from .flash.choose import considered
from .limits import TARGETS, Share, limits_of
from .op import FAMILIES
from .op.arguments import require_no_rotation
from .op.warm import Call
from .version import DTYPES, Problem, Unsupported


def add_sizes(parser: argparse.ArgumentParser, heads: int, hdim: int, seq_q: int = 64, dtype: str = DTYPES[0]) -> None:
    """Add an option for each field of a problem but its family, by default of a batch of one."""
    for name, usual in (("batch", 1), ("heads", heads), ("seq-q", seq_q), ("hdim", hdim)):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"{usual} by default")
    for name, hint in (("kv-heads", "heads"), ("seq-k", "seq-q"), ("rotary-dim", "hdim"), ("q-offset", "the last")):
        parser.add_argument(f"--{name}", type=int, help=f"{hint} by default")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--dtype", default=dtype, choices=DTYPES)


def problem_of(family: str, options: dict[str, Any]) -> Problem:
    """The problem that options of `add_sizes` tell of; RoPE rotates all dims by default. Raises: ValueError."""
    if options["rotary_dim"] is None:
        options = {**options, "rotary_dim": options["hdim"] if family == "rope" else 0}
    return Problem(family, **options)


def told(call: Call, target: str, share: Share) -> Iterator[str]:
    """Lines about the rows of the table that cover a call."""
    found: Any = None
    for rule, found in considered(call.request(target, share)):
        if isinstance(found, Unsupported):
            yield f"not {rule.kernel}: {found}"
            continue
        yield f"{rule.kernel} ({found.version})"
        for launch in found.launches(NAMES, call.problem.seq_k):
            cluster = f", clusters of {launch.cluster}" if launch.cluster > 1 else ""
            threads, size = " x ".join(map(str, launch.block)), " x ".join(map(str, launch.grid))
            yield f"  {launch.kernel.name}: grid {size}{cluster}, {threads} threads, {launch.shared_bytes:,} B shared"
        yield f"why: {rule.reason}"
    if isinstance(found, Unsupported):
        yield "PyTorch"


def asked(options: dict[str, Any]) -> tuple[Call, str, Share]:
    """The call, target and share of a card that options of `which` tell of. Raises: ValueError, as the op does."""
    family, target, sms = options.pop("family"), options.pop("target"), options.pop("sms")
    given = {name: options.pop(name) for name in ("half_split", "tables", "positions", "lengths")}
    half_split, tables, positions, lengths = given.values()
    if family != "rope":
        turned = {"half_split": half_split, "tables": tables, "positions": positions}
        require_no_rotation(family, rotary_dim=options["rotary_dim"], **turned)
    if sms < 1:
        raise ValueError(f"sms is {sms}; it must be 1 or more")
    problem = problem_of(family, options)
    op, meta = next(op for op in FAMILIES if FAMILIES[op] == family), torch.device("meta")
    q, k = (torch.empty(shape, device=meta) for shape in (problem.q_shape, problem.kv_shape))
    counts = torch.empty(problem.batch, dtype=torch.int32, device=meta) if lengths else None
    op(q, k, k, causal=problem.causal, q_offset=options["q_offset"], lengths=counts)  # which refuses a wrong call
    share = Share(sms, min(WHOLE.cluster, limits_of(target).cluster))
    return Call(problem, not half_split, tables, positions, lengths), target, share


def which(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m kernels which", description=__doc__)
    add_sizes(parser, heads=32, hdim=128, seq_q=1, dtype="float16")
    parser.add_argument("--family", choices=("rope", "attention", "alibi"), default="rope")
    for name in ("half-split", "tables", "positions", "lengths"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--target", default="sm_90", help=f"compute capability: {', '.join(TARGETS)}")
    parser.add_argument("--sms", type=int, default=WHOLE.sms, help="multiprocessors of the card, or of a slice of it")
    try:
        print(*told(*asked(vars(parser.parse_args(arguments)))), sep="\n")
    except ValueError as error:
        print(f"which: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] != ["which"]:
        sys.exit("usage: python -m kernels which [--help]")
    sys.exit(which(sys.argv[2:]))
