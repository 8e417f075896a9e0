"""The program whose first calls `python -m analysis op` times: `python -m analysis.measure.first_call PROBLEM`.

It imports what a user's program does, and no more. PROBLEM is a JSON object of a problem's columns. It prints the
microseconds of the first and of the second call of `rope_attention`, behind a CUDA context, up to the result.
"""

import json
import sys
import time

import torch

from kernels import Problem
from kernels.op import rope_attention


def main(problem: Problem) -> None:
    shapes, dtype, times_us = (problem.q_shape, problem.kv_shape, problem.kv_shape), getattr(torch, problem.dtype), []
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes)
    torch.cuda.synchronize()
    for _ in range(2):
        began = time.perf_counter()
        rope_attention(q, k, v, rotary_dim=problem.rotary_dim, causal=problem.causal, fallback=False)
        torch.cuda.synchronize()
        times_us.append((time.perf_counter() - began) * 1e6)
    print(json.dumps(times_us))


if __name__ == "__main__":
    main(Problem(**json.loads(sys.argv[1])))
