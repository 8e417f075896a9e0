#!/usr/bin/env bash
# cuda-core 1.2.2, cuda-bindings 13.5.0, nvJitLink, NVRTC, nvcc and nvdisasm 13.5.37, target sm_90.
# Guess: ProgramOptions(fma=False) and LinkerOptions(fma=False) keep products and sums apart, whatever the input is:
# C++, PTX or LTO-IR. nvJitLink takes -fma=0 for it.
# Behaviour: It works for C++ alone. For PTX it is taken and does nothing: mul.f32 and add.f32 without a rounding mode
# become one FFMA. (So it is with -fma=0 handed to nvJitLink itself.) ptxas keeps them apart with --fmad=false, and so
# does cuda-core with ptxas_options='--fmad=false'. In LTO-IR the fma=False of the compiler is lost, and the linker
# refuses the option, since cuda-core writes -fma=false for it where NVVM knows -fma=0. It matters to whoever compares a
# kernel with a reference bit by bit, or assembles PTX of Numba or Triton by cuda-core.
# Output seen:
#   C++, fma=False: FADD FMUL
#   PTX, fma=False: FFMA
#   PTX, ptxas_options='--fmad=false': FADD FMUL
#   PTX by ptxas --fmad=false: FADD FMUL
#   LTO-IR compiled with fma=False: FFMA
#   LTO-IR linked with fma=False: refused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 cuda-core==1.2.2 cuda-bindings==13.5.0 nvidia-cuda-nvrtc==13.5.37 \
    nvidia-nvjitlink==13.5.37 nvidia-nvvm==13.5.37
"$folder/venv/bin/pip" install --quiet --no-deps nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
cd "$folder"
cat > check.py <<'PYTHON'
import re
import subprocess
import sys
from pathlib import Path

from cuda.bindings.nvjitlink import nvJitLinkError
from cuda.core import Linker, LinkerOptions, ObjectCode, Program, ProgramOptions

TOOLS = Path(sys.argv[1])
CODE = 'extern "C" __global__ void kernel(float *out, const float *in) { *out = in[0] * in[1] + in[2]; }'

PTX = """.version 9.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u64 in)
{
    .reg .u64 %address<2>;
    .reg .f32 %value<3>;
    ld.param.u64 %address0, [in];
    ld.param.u64 %address1, [out];
    ld.global.f32 %value0, [%address0];
    ld.global.f32 %value1, [%address0+4];
    ld.global.f32 %value2, [%address0+8];
    mul.f32 %value0, %value0, %value1;
    add.f32 %value0, %value0, %value2;
    st.global.f32 [%address1], %value0;
    ret;
}
"""


def show(name, cubin):
    Path("kernel.cubin").write_bytes(cubin)
    sass = subprocess.run([TOOLS / "nvdisasm", "-c", "kernel.cubin"], check=True, capture_output=True, text=True).stdout
    print(f"{name}:", *sorted(set(re.findall(r"\b(?:FFMA|FMUL|FADD)\b", sass))))


def compiled(kind, code, target="cubin", **options):
    return Program(code, kind, ProgramOptions(arch="sm_90", **options)).compile(target).code


def linked(code, **options):
    parts = ObjectCode.from_ltoir(code)
    return Linker(parts, options=LinkerOptions(arch="sm_90", link_time_optimization=True, **options)).link("cubin").code


lto = compiled("c++", CODE, "ltoir", fma=False, link_time_optimization=True)
Path("kernel.ptx").write_text(PTX)
show("C++, fma=False", compiled("c++", CODE, fma=False))
show("PTX, fma=False", compiled("ptx", PTX, fma=False))
show("PTX, ptxas_options='--fmad=false'", compiled("ptx", PTX, ptxas_options="--fmad=false"))
subprocess.run([TOOLS / "ptxas", "-arch=sm_90", "--fmad=false", "kernel.ptx", "-o", "ptxas.cubin"], check=True)
show("PTX by ptxas --fmad=false", Path("ptxas.cubin").read_bytes())
show("LTO-IR compiled with fma=False", linked(lto))
try:
    show("LTO-IR linked with fma=False", linked(lto, fma=False))
except nvJitLinkError:
    print("LTO-IR linked with fma=False: refused")
PYTHON
venv/bin/python -W ignore check.py venv/lib/python3*/site-packages/nvidia/cu13/bin | tee output
diff output - <<'SEEN'
C++, fma=False: FADD FMUL
PTX, fma=False: FFMA
PTX, ptxas_options='--fmad=false': FADD FMUL
PTX by ptxas --fmad=false: FADD FMUL
LTO-IR compiled with fma=False: FFMA
LTO-IR linked with fma=False: refused
SEEN
