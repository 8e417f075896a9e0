#!/usr/bin/env bash
# numba-cuda 0.30.4, numba 0.68.1, NVRTC 13.5.37 (NVVM 13.5.37), target sm_90.
# Guess: The last step of softmax, weight * (1.0 / total) in float32, is faster with fastmath: the reciprocal becomes
# rcp.approx.ftz.f32. Without fastmath the literal 1.0 costs float64.
# Behaviour: The other way round. In Python, and in C++ without the f, 1.0 makes the division one of float64. As a
# rounding to float32 follows it, the compiler narrows it again to the exact rcp.rn.f32. With fastmath float32 has
# approximate division, the compiler no longer narrows, and rcp.rn.f64 stays: ptxas 13.5.37 makes 18 DFMA of it (with
# its slow path) where 1.0f / x is a single MUFU.RCP. A literal of float32 has the instruction that one expects:
# np.float32(1), or 1.0f.
# Output seen:
#   numba  1.0 / x               plain rcp.rn.f32  fastmath rcp.rn.f64
#   numba  1 / math.sqrt(x)      plain rcp.rn.f32  fastmath rcp.rn.f64
#   numba  np.float32(1) / x     plain rcp.rn.f32  fastmath div.approx.ftz.f32
#   NVRTC  1.0 / x               plain rcp.rn.f32  fastmath rcp.rn.f64
#   NVRTC  1.0f / x              plain rcp.rn.f32  fastmath rcp.approx.ftz.f32
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numba-cuda==0.30.4 numba==0.68.1 numpy==2.4.6 cuda-bindings==13.5.0 \
    cuda-core==1.2.2 nvidia-cuda-nvrtc==13.5.37 nvidia-nvvm==13.5.37 nvidia-nvjitlink==13.5.37 \
    nvidia-cuda-runtime==13.5.37 nvidia-cuda-cccl==13.3.5.0.6
cd "$folder"
cat > check.py <<'PYTHON'
import math
import re

import numpy as np
from cuda.bindings import nvrtc
from numba import cuda, float32, void


def division(ptx):
    (found,) = re.findall(r"\b(?:rcp|div)\.[\w.]+", ptx)
    return found


def by_numba(expression, fastmath):
    names = {"math": math, "np": np}
    exec(f"def kernel(out, given):\n    x = given[0]\n    out[0] = {expression}", names)
    row = float32[::1]
    return cuda.compile_ptx(names["kernel"], void(row, row), device=False, cc=(9, 0), fastmath=fastmath)[0]


def by_nvrtc(expression, fastmath):
    text = 'extern "C" __global__ void kernel(float *out, const float *in) { float x = *in; *out = %s; }' % expression
    options = [b"--gpu-architecture=compute_90"] + [b"--use_fast_math"] * fastmath
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    assert nvrtc.nvrtcCompileProgram(program, len(options), options)[0] == 0
    ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.decode()


for name, compiled, expressions in (("numba", by_numba, ("1.0 / x", "1 / math.sqrt(x)", "np.float32(1) / x")),
                                    ("NVRTC", by_nvrtc, ("1.0 / x", "1.0f / x"))):
    for expression in expressions:
        plain, fast = (division(compiled(expression, fastmath)) for fastmath in (False, True))
        print(f"{name}  {expression:20}  plain {plain}  fastmath {fast}")
PYTHON
venv/bin/python -W ignore check.py | tee output
diff output - <<'SEEN'
numba  1.0 / x               plain rcp.rn.f32  fastmath rcp.rn.f64
numba  1 / math.sqrt(x)      plain rcp.rn.f32  fastmath rcp.rn.f64
numba  np.float32(1) / x     plain rcp.rn.f32  fastmath div.approx.ftz.f32
NVRTC  1.0 / x               plain rcp.rn.f32  fastmath rcp.rn.f64
NVRTC  1.0f / x              plain rcp.rn.f32  fastmath rcp.approx.ftz.f32
SEEN
