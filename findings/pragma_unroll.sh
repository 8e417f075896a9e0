#!/usr/bin/env bash
# NVRTC, ptxas and nvdisasm 13.5.37 (13.0.88 differs in a register or two), loop with a bound known only when it runs.
# Guess: `#pragma unroll` without a number is for loops with a constant bound. Where the bound is not known, the loop is
# not unrolled at all, and not less than without the pragma.
# Behaviour: For sm_80 to sm_90 it is less. NVRTC unrolls the loop by 4, with the pragma and without it. Without the
# pragma ptxas unrolls the result once more, to 29 products. With it NVRTC forbids that (.pragma "nounroll"), and 5
# products remain. A number does the same: `#pragma unroll 8` has 9, so it unrolls less than no pragma. For sm_100 and
# sm_120 NVRTC itself reaches 29, with the pragma without a number as well. It matters to loops over keys or dims, which
# need many loads under way, and to registers: the two differ by 8 to 17 of them.
# Output seen (products in the SASS, registers):
#   sm_80: no pragma: 29 FFMA, 28 registers; unroll: 5 FFMA, 20 registers; unroll 8: 9 FFMA, 28 registers
#   sm_89: no pragma: 29 FFMA, 37 registers; unroll: 5 FFMA, 20 registers; unroll 8: 9 FFMA, 28 registers
#   sm_90: no pragma: 29 FFMA, 30 registers; unroll: 5 FFMA, 20 registers; unroll 8: 9 FFMA, 28 registers
#   sm_100: no pragma: 29 FFMA, 30 registers; unroll: 29 FFMA, 30 registers; unroll 8: 9 FFMA, 27 registers
#   sm_120: no pragma: 29 FFMA, 40 registers; unroll: 29 FFMA, 40 registers; unroll 8: 9 FFMA, 28 registers
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 cuda-bindings==13.5.0 nvidia-cuda-nvrtc==13.5.37
"$folder/venv/bin/pip" install --quiet --no-deps nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
cd "$folder"
cat > check.py <<'PYTHON'
import re
import subprocess
import sys
from pathlib import Path

from cuda.bindings import nvrtc

TOOLS = Path(sys.argv[1])
LOOP = """extern "C" __global__ void kernel(float *out, const float *in, int count)
{
    float sum = 0.0f;
%s
    for (int i = 0; i < count; ++i)
        sum += in[i] * in[i + count];
    out[threadIdx.x] = sum;
}
"""


def measure(pragma, architecture):
    _, program = nvrtc.nvrtcCreateProgram((LOOP % pragma).encode(), b"kernel.cu", 0, [], [])
    options = [f"--gpu-architecture=compute_{architecture}".encode()]
    assert nvrtc.nvrtcCompileProgram(program, len(options), options)[0] == 0
    ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, ptx)
    Path("kernel.ptx").write_bytes(ptx.rstrip(b"\0"))
    command = [TOOLS / "ptxas", "-v", f"-arch=sm_{architecture}", "kernel.ptx", "-o", "kernel.cubin"]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    sass = subprocess.run([TOOLS / "nvdisasm", "-c", "kernel.cubin"], check=True, capture_output=True, text=True).stdout
    (registers,) = re.findall(r"Used (\d+) registers", log)
    return f"{len(re.findall(r'FFMA', sass))} FFMA, {registers} registers"


for architecture in (80, 89, 90, 100, 120):
    found = (f"{name}: {measure(pragma, architecture)}" for name, pragma in
             (("no pragma", ""), ("unroll", "#pragma unroll"), ("unroll 8", "#pragma unroll 8")))
    print(f"sm_{architecture}:", "; ".join(found))
PYTHON
venv/bin/python -W ignore check.py venv/lib/python3*/site-packages/nvidia/cu13/bin | tee output
diff output - <<'SEEN'
sm_80: no pragma: 29 FFMA, 28 registers; unroll: 5 FFMA, 20 registers; unroll 8: 9 FFMA, 28 registers
sm_89: no pragma: 29 FFMA, 37 registers; unroll: 5 FFMA, 20 registers; unroll 8: 9 FFMA, 28 registers
sm_90: no pragma: 29 FFMA, 30 registers; unroll: 5 FFMA, 20 registers; unroll 8: 9 FFMA, 28 registers
sm_100: no pragma: 29 FFMA, 30 registers; unroll: 29 FFMA, 30 registers; unroll 8: 9 FFMA, 27 registers
sm_120: no pragma: 29 FFMA, 40 registers; unroll: 29 FFMA, 40 registers; unroll 8: 9 FFMA, 28 registers
SEEN
