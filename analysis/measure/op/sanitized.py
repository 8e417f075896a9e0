"""The op under the tools of compute-sanitizer: tensors by strides, half-split pairs, positions, tables, shared keys.

Every tensor is an allocation of its own, as torch's allocator is told not to keep any: what a kernel touches behind
one is seen. `python -m analysis sanitize` watches plans, in which every array of shared memory has a name; here it is
the call that is watched, with all that it launches. As there, a tool that misses the planted kernel says nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from kernels import Problem, Unsupported
from kernels.runtime.gpu import require_gpu

from ...records.files import ROOT
from ..runs import Run
from ..sanitize.cases import MODES, Mode
from ..sanitize.logs import PLANTED, Log, marker, read_log
from ..sanitize.program import run_planted
from ..sanitize.tools import TIMEOUT, find_sanitizer, options
from .calls import Call, tensors
from .check import Row, call_columns, functions
from .planned import compile_all, launched

_GROUPED = Problem("rope", 2, 4, 2, seq_q=33, seq_k=65, hdim=96, rotary_dim=48, causal=True)
_DECODE = Problem("rope", 2, 4, 2, seq_q=1, seq_k=33, hdim=128, rotary_dim=128)
_SHARED_KEYS = Problem("rope", 1, 8, 1, seq_q=512, seq_k=512, hdim=128, rotary_dim=128)
CALLS = (
    Call(_GROUPED, layout="transposed"),
    Call(_GROUPED, layout="cache", interleaved=False),
    Call(_GROUPED, layout="cache", mode="rates_positions"),
    Call(_GROUPED, layout="transposed", mode="tables", interleaved=False),
    Call(_GROUPED, mode="tables_positions"),
    Call(_GROUPED, layout="unaligned"),
    Call(_DECODE, layout="cache"),
    Call(_DECODE, mode="rates_positions", interleaved=False),
    Call(_SHARED_KEYS),
    Call(_SHARED_KEYS, layout="transposed", interleaved=False),
    Call(Problem("attention", 1, 2, seq_q=33, hdim=96), layout="transposed"),
    Call(Problem("alibi", 1, 4, 2, seq_q=33, seq_k=65, hdim=96, causal=True), layout="cache"),
)
TOOL_MODES = tuple(mode for mode in MODES.values() if not mode.one_block)


def _say(**content: object) -> None:
    os.write(1, marker(**content).encode())


def watched(mode_name: str) -> int:
    """Body of the process under a tool: the planted kernel, then every call twice."""
    torch.zeros(1, device=require_gpu())
    run_planted(MODES[mode_name])
    _say(done=PLANTED)
    op = functions()
    for index, call in enumerate(CALLS):
        given = tensors(call, "cuda")
        torch.cuda.synchronize()
        _say(case=index)
        try:
            for _ in range(2):
                op[call.function](given.q, given.k, given.v, **given.options, fallback=False)
                torch.cuda.synchronize()
        except Unsupported as refusal:
            _say(case=index, refused=str(refusal))
        _say(done=index)
    _say(finished=True)
    return 0


def _log_of(mode: Mode, binary: str, help_text: str, folder: Path) -> Log:
    """What one tool says of all calls. Raises: OSError where it does not start."""
    path = folder / f"{mode.name}.log"
    command = [binary, *options(mode, help_text), sys.executable, "-m", __name__, mode.name]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with open(path, "wb") as out:
        try:
            subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            out.write(b"\n")
    with open(path, encoding="utf-8", errors="replace") as file:
        return read_log(file)


def outcome(mode: Mode, log: Log, index: int) -> Row:
    """Status and reason of one call under one tool."""
    findings = sorted(f"{report.finding} {report.kernel}".strip() for report in log.reports.get(index, ()))
    if findings:
        return {"status": "wrong", "reason": ", ".join(findings)}
    if index in log.refused:
        return {"status": "refused", "reason": log.refused[index]}
    if mode.planted and not log.planted(mode.planted):
        return {"status": "unavailable", "reason": f"the tool missed the planted {mode.planted}"}
    if index not in log.heard:
        return {"status": "error", "reason": "the process or the tool did not come to its end"}
    return {"status": "ok", "reason": None}


def sanitize_op(run: Run, target: str) -> None:
    """Run every tool around the calls. Raises: SanitizeError without compute-sanitizer."""
    compile_all(CALLS, target)
    binary = find_sanitizer()
    help_text = subprocess.run(
        [binary, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        logs = pool.map(lambda mode: _log_of(mode, binary, help_text, Path(folder)), TOOL_MODES)
        for mode, log in zip(TOOL_MODES, logs, strict=True):
            for index, call in enumerate(CALLS):
                row = {"what": mode.name, "n": 2, **launched(call, target), **outcome(mode, log, index)}
                run.append("op", {"study": run.study.name, **call_columns(call), **row})


if __name__ == "__main__":
    sys.exit(watched(*sys.argv[1:]))
