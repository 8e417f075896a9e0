"""The kernels that calls of the ops need, and how they are compiled before the calls: in processes side by side."""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from ..flash.call import WHOLE, Request, request_of
from ..flash.choose import chosen
from ..limits import Share, capability
from ..runtime import cache, gpu, streams
from ..runtime import compile as compiler
from ..version import Kernel, Problem, Unsupported
from . import dispatch
from .arguments import Options, Settled, Tensors
from .dispatch import PACKAGE, planned_keys

MOST_PROCESSES = 16  # each takes 500 MB, and 2 s to begin
FEW = 4  # classes that one process compiles sooner


@dataclass(frozen=True)
class Call:
    """A call, as far as its kernels depend on it: the tensors that are given count, not what they hold."""

    problem: Problem
    interleaved: bool = True
    tables: bool = False
    positions: bool = False
    lengths: bool = False

    def kernels(self, target: str, share: Share = WHOLE) -> tuple[Kernel, ...]:
        """The kernels on a share of a card, planned as the op plans the call. Raises: Unsupported."""
        return self.served(target, share)[1]

    def served(self, target: str, share: Share = WHOLE) -> tuple[str, tuple[Kernel, ...]]:
        """The version whose kernels the op takes, and these kernels, as `kernels`. Raises: Unsupported."""
        call = chosen(self.request(target, share))
        return call.version, tuple(launch.kernel for launch in call.all_launches(self.problem.seq_k))

    def request(self, target: str, share: Share = WHOLE) -> Request:
        """The request that the op plans."""
        problem = self.problem
        seq_k = planned_keys(problem.seq_k) if problem.dtype == "float32" else problem.seq_k
        problem = replace(problem, seq_k=seq_k, q_offset=max(seq_k - problem.seq_q, 0))
        given = self.tables, self.positions, self.lengths
        return request_of(problem, target, not self.interleaved, given, share=share)


def compile_classes(calls: Iterable[Call], target: str, share: Share = WHOLE) -> tuple[list[Call], int]:
    """Compile the kernels of calls into the cache; return a call of each class, and how many kernels they have.

    What the processes leave undone is compiled in this one, so that errors are raised here: Unsupported, CompileError;
    ValueError for a target that is none.
    """
    capability(target)
    classes: list[Call] = []
    kernels: dict[Kernel, None] = {}
    for call in calls:
        if not kernels.keys() >= set(needed := call.kernels(target, share)):
            classes.append(call)
            kernels |= dict.fromkeys(needed)
    missing = [call for call in classes if not all(compiler.is_cached(x, target) for x in call.kernels(target, share))]
    if len(missing) > FEW and cache.keeps() and sys.executable:  # which an embedded Python lacks
        count = min(len(missing), len(os.sched_getaffinity(0)), MOST_PROCESSES)
        print(f"{PACKAGE}: compiling for {target}, {count} kernels at a time", file=sys.stderr, flush=True)
        _in_processes([(missing[first::count], target, share) for first in range(count)])
    compiler.build([kernel for kernel in kernels if not compiler.is_cached(kernel, target)], target)
    return classes, len(kernels)


def load_classes(calls: Iterable[Call], base: float, device: torch.device | str | int) -> int:
    """Compile the kernels of calls and load them on a device; return how many. Raises: Unsupported, CompileError."""
    one = torch.zeros(1, device=device)
    index = gpu.DRIVER.card_of(one)
    if index < 0:
        raise ValueError(f"device is {device}; it must be a CUDA device, or give a target")
    with gpu.DRIVER.on(index):
        classes, count = compile_classes(calls, gpu.device_target(), streams.share_of(index))
        for call in classes:
            of = call.problem
            q, k = (one.to(getattr(torch, of.dtype)).expand(shape) for shape in (of.q_shape, of.kv_shape))
            given = {"cos": call.tables, "positions": call.positions, "lengths": call.lengths}
            beside = Tensors(**{name: one for name in given if given[name]})
            options = Options(of.family, of.rotary_dim, base, call.interleaved, of.causal, None, of.softmax_scale)
            settled = Settled(options, by_index=True, seq_q=of.seq_q, launches={})
            ready = dispatch.prepare(q, k, beside, settled, index)
            if isinstance(ready, Unsupported):
                raise ready
    return count


def _in_processes(shares: list[tuple[list[Call], str, Share]]) -> None:
    """Each share in a process of its own, which runs nothing of the caller's program, as a pool would."""
    run = [sys.executable, "-c", f"from {__name__} import compile_share; compile_share()"]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "FUSED_PE_CACHE": str(cache.FOLDER)}
    with contextlib.ExitStack() as running:
        started = []
        for share in shares:
            process = subprocess.Popen(run, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **own})
            running.callback(process.wait)
            running.callback(process.kill)
            assert process.stdin
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(pickle.dumps(share))
            started.append(process)
        for process in started:
            process.wait()


def compile_share() -> None:
    """Body of a process of `compile_classes`: compile the calls that it is handed on stdin."""
    calls, target, share = pickle.load(sys.stdin.buffer)
    for call in calls:
        with contextlib.suppress(Unsupported, compiler.CompileError):
            compiler.build(call.kernels(target, share), target)
