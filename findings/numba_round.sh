#!/usr/bin/env bash
# numba-cuda 0.30.4, numba 0.68.1, NVVM, ptxas and nvdisasm 13.5.37, target sm_89.
# Guess: Where x is float32, round(x) needs no float64: math.floor(x), math.ceil(x) and math.trunc(x) are one
# instruction in float32 each (cvt.rmi, cvt.rpi, cvt.rzi), so round(x) is cvt.rni. Literals without a type are what
# makes float64.
# Behaviour: round(x) widens x to float64, rounds that to an integer of 64 bits, and converts it back, with and without
# fastmath: three conversions of 64 bits, which are slow on cards for games. The value is the same (ties to even).
# libdevice.rintf(x) is the one instruction, and libdevice.float2int_rn(x) gives an int32. It matters to kernels that
# quantise: a check that the PTX has no .f64 finds it.
# Output seen:
#   math.floor(x): cvt.rmi.f32.f32 | SASS FRND.FLOOR
#   round(x): cvt.f64.f32 cvt.rni.s64.f64 cvt.rn.f32.s64 | SASS F2F.F64.F32 F2I.S64.F64 I2F.S64
#   round(x) with fastmath: cvt.ftz.f64.f32 cvt.rni.s64.f64 cvt.rn.f32.s64 | SASS F2F.F64.F32 F2I.S64.F64 I2F.S64
#   libdevice.rintf(x): cvt.rni.f32.f32 | SASS FRND
#   libdevice.float2int_rn(x): cvt.rni.s32.f32 cvt.rn.f32.s32 | SASS F2I.NTZ I2FP.F32.S32
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numba-cuda==0.30.4 numba==0.68.1 numpy==2.4.6 cuda-bindings==13.5.0 \
    cuda-core==1.2.2 nvidia-cuda-nvrtc==13.5.37 nvidia-nvvm==13.5.37 nvidia-nvjitlink==13.5.37 \
    nvidia-cuda-runtime==13.5.37 nvidia-cuda-cccl==13.3.5.0.6
"$folder/venv/bin/pip" install --quiet --no-deps nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
cd "$folder"
cat > check.py <<'PYTHON'
import math
import re
import subprocess
import sys
from pathlib import Path

from numba import cuda, float32, void
from numba.cuda import libdevice

TOOLS = Path(sys.argv[1])


def conversions(expression, fastmath):
    names = {"math": math, "libdevice": libdevice}
    exec(f"def kernel(out, given):\n    x = given[0]\n    out[0] = {expression}", names)
    row = float32[::1]
    ptx = cuda.compile_ptx(names["kernel"], void(row, row), device=False, cc=(8, 9), fastmath=fastmath)[0]
    Path("kernel.ptx").write_text(ptx)
    subprocess.run([TOOLS / "ptxas", "-arch=sm_89", "kernel.ptx", "-o", "kernel.cubin"], check=True)
    sass = subprocess.run([TOOLS / "nvdisasm", "-c", "kernel.cubin"], check=True, capture_output=True, text=True).stdout
    return re.findall(r"cvt\.[\w.]*f\d\d[\w.]*", ptx), re.findall(r"\b(?:FRND|F2F|F2I|I2F)[.\w]*", sass)


for expression, fastmath in (("math.floor(x)", False), ("round(x)", False), ("round(x)", True),
                             ("libdevice.rintf(x)", False), ("libdevice.float2int_rn(x)", False)):
    ptx, sass = conversions(expression, fastmath)
    print(expression + " with fastmath" * fastmath + ":", *ptx, "| SASS", *sass)
PYTHON
venv/bin/python -W ignore check.py venv/lib/python3*/site-packages/nvidia/cu13/bin | tee output
diff output - <<'SEEN'
math.floor(x): cvt.rmi.f32.f32 | SASS FRND.FLOOR
round(x): cvt.f64.f32 cvt.rni.s64.f64 cvt.rn.f32.s64 | SASS F2F.F64.F32 F2I.S64.F64 I2F.S64
round(x) with fastmath: cvt.ftz.f64.f32 cvt.rni.s64.f64 cvt.rn.f32.s64 | SASS F2F.F64.F32 F2I.S64.F64 I2F.S64
libdevice.rintf(x): cvt.rni.f32.f32 | SASS FRND
libdevice.float2int_rn(x): cvt.rni.s32.f32 cvt.rn.f32.s32 | SASS F2I.NTZ I2FP.F32.S32
SEEN
