#!/bin/bash
# NVRTC and nvcc of one release write different PTX: addresses of shared memory have 64 bits, and 32.
#
# Guess: both are the same compiler (NVVM) with the same defaults, so a kernel has the same PTX and registers by either.
# That holds for arrays in global memory. Once a loop indexes a __shared__ array, NVRTC computes with 64-bit pointers and
# nvcc with 32-bit ones, and ptxas gives the two different numbers of registers. NVRTC documents no option for it.
# Seen with CUDA 13.0.88 (NVRTC, nvcc, NVVM, ptxas), target sm_90, on 2026-11-28:
#     global: NVRTC and nvcc write the same instructions
#     shared: NVRTC st.shared.f32 [%rd..], 34 registers
#     shared: nvcc st.shared.f32 [%r..], 40 registers
# NVRTC of 11.8.89, 12.4.127 and 12.9.86 has 64 bits too; from 13.1.115 on (also 13.5.37) it has 32, like nvcc.
# It needs python3 with venv, and g++, which nvcc calls, and exits with 1 where the output differs from this.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-cuda-nvrtc==13.0.88 \
    nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
cat > global.cu <<'CUDA'
extern "C" __global__ void weighted(const float *weights, const float *rows, float *out, int dims, int count)
{
    for (int d = threadIdx.x; d < dims; d += 256) {
        float sum = 0.0f;
        for (int i = 0; i < count; ++i)
            sum += weights[i] * rows[i * dims + d];
        out[d] = sum;
    }
}
CUDA
cat > shared.cu <<'CUDA'
extern __shared__ float cached[];

extern "C" __global__ void weighted(const float *weights, const float *rows, float *out, int dims, int count)
{
    for (int i = threadIdx.x; i < count; i += 256)
        cached[i] = weights[i];
    __syncthreads();
    for (int d = threadIdx.x; d < dims; d += 256) {
        float sum = 0.0f;
        for (int i = 0; i < count; ++i)
            sum += cached[i] * rows[i * dims + d];
        out[d] = sum;
    }
}
CUDA
cat > compare.py <<'PYTHON'
import ctypes
import re
import subprocess
import sys
from pathlib import Path

(home,) = Path("venv").glob("lib/python*/site-packages/nvidia/cu13")
ctypes.CDLL(str(home / "lib/libnvrtc-builtins.so.13.0"))
nvrtc = ctypes.CDLL(str(home / "lib/libnvrtc.so.13"))


def by_nvrtc(name):
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = Path(f"{name}.cu").read_bytes()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_90", b"--std=c++17")
    assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0
    assert nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
    ptx = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetPTX(program, ptx) == 0
    return ptx.value.decode()


def by_nvcc(name):
    command = [home / "bin/nvcc", "--ptx", "--gpu-architecture=compute_90", "--std=c++17", f"{name}.cu", "-o", "nvcc.ptx"]
    subprocess.run(command, check=True)
    return Path("nvcc.ptx").read_text()


def registers(ptx):
    Path("kernel.ptx").write_text(ptx)
    command = [home / "bin/ptxas", "-v", "-arch=sm_90", "kernel.ptx", "-o", "kernel.cubin"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(re.search(r"Used (\d+) registers", done.stdout + done.stderr)[1])


def instructions(ptx):
    return re.findall(r"^\t(?!\.reg)(\w.*);", ptx, re.MULTILINE)


same = instructions(by_nvrtc("global")) == instructions(by_nvcc("global"))
print(f"global: NVRTC and nvcc write {'the same' if same else 'different'} instructions")
found = []
for compiler, ptx in (("NVRTC", by_nvrtc("shared")), ("nvcc", by_nvcc("shared"))):
    found.append((*re.findall(r"st\.shared\.f32\s+\[%(rd?)\d", ptx)[:1], registers(ptx)))
    print(f"shared: {compiler} st.shared.f32 [%{found[-1][0]}..], {found[-1][1]} registers")
sys.exit(not same or found != [("rd", 34), ("r", 40)])
PYTHON
venv/bin/python compare.py
