"""`python -m kernels which --seq-q 1 --seq-k 4096`: the kernel that the op runs for a call, its launches, and why."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from .flash.call import NAMES, WHOLE
from .flash.choose import considered
from .limits import TARGETS, Share, limits_of
from .op.warm import Call
from .version import Problem, Unsupported


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


def which(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m kernels which", description=__doc__)
    for name, default in (("batch", 1), ("heads", 32), ("seq-q", 1), ("hdim", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, other in (("kv-heads", "heads"), ("seq-k", "seq-q"), ("rotary-dim", "hdim")):
        parser.add_argument(f"--{name}", type=int, help=f"by default {other}")
    parser.add_argument("--family", choices=("rope", "attention", "alibi"), default="rope")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float16")
    for name in ("causal", "half-split", "tables", "positions", "lengths"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--target", default="sm_90", help=f"compute capability: {', '.join(TARGETS)}")
    parser.add_argument("--sms", type=int, default=WHOLE.sms, help="multiprocessors of the card, or of a slice of it")
    of = parser.parse_args(arguments)
    seq_k, rotary_dim = of.seq_k or of.seq_q, of.hdim if of.rotary_dim is None else of.rotary_dim
    try:
        problem = Problem(
            of.family, of.batch, of.heads, of.kv_heads or of.heads, of.seq_q, seq_k, of.hdim,
            rotary_dim if of.family == "rope" else 0, of.dtype, of.causal, max(seq_k - of.seq_q, 0),
        )  # fmt: skip
        share = Share(of.sms, min(WHOLE.cluster, limits_of(of.target).cluster))
    except ValueError as error:
        parser.error(str(error))
    print(*told(Call(problem, not of.half_split, of.tables, of.positions, of.lengths), of.target, share), sep="\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] != ["which"]:
        sys.exit("usage: python -m kernels which [--help]")
    sys.exit(which(sys.argv[2:]))
