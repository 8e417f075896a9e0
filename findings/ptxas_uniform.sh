#!/bin/bash
# A loop bound that only a warp shares takes ptxas's descriptors of wgmma out of the uniform registers.
#
# Guess: the descriptors of wgmma below come from kernel arguments and a loop's counter, which all lanes have alike, so
# ptxas computes them by uniform instructions. How many times the loop runs depends on threadIdx.x >> 7, which a warp
# shares: that changes nothing.
# It does: ptxas takes the loop for one that lanes may leave at different times. It computes each descriptor in ordinary
# registers and moves it by R2UR, twice a product. If the bound comes from __shfl_sync of lane 0, a value that is the
# same, no such move is left, and the loop is unrolled further.
# Seen with CUDA 13.0.88 (nvcc, NVVM, ptxas), nvdisasm 13.5.37, target sm_90a, on 2026-11-29:
#     threadIdx.x >> 7: 14 R2UR, 5 HGMMA
#     __shfl_sync of it: 0 R2UR, 29 HGMMA
# It needs python3 with venv, and g++, which nvcc calls, and exits with 1 where the output differs from this. No GPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 \
    nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-nvdisasm==13.5.37
cat > kernel.cu <<'CUDA'
extern "C" __global__ void sums(unsigned long long base, float *out, int tiles)
{
#ifdef FIRST_LANE
    const int group = __shfl_sync(~0u, threadIdx.x >> 7, 0);
#else
    const int group = threadIdx.x >> 7;
#endif
    float acc[4] = {};
    unsigned stage = 0;
    for (int i = 0; i < tiles - group; ++i) {
        const unsigned long long a = base + 512 * stage, b = base + 2048 + 64 * stage;
        asm volatile("wgmma.fence.sync.aligned;\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\n"
                     "wgmma.commit_group.sync.aligned;\n"
                     "wgmma.wait_group.sync.aligned 0;"
                     : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]) : "l"(a), "l"(b) : "memory");
        stage ^= 1;
    }
    for (int i = 0; i < 4; ++i)
        out[4 * threadIdx.x + i] = acc[i];
}
CUDA
bin=$(echo venv/lib/python*/site-packages/nvidia/cu13/bin)
count() {  # NAME OPTION...
    "$bin/nvcc" -cubin -gencode=arch=compute_90a,code=sm_90a "${@:2}" kernel.cu -o kernel.cubin
    "$bin/nvdisasm" -c kernel.cubin > kernel.sass
    echo "$1: $(grep -c R2UR kernel.sass) R2UR, $(grep -c HGMMA kernel.sass) HGMMA" || true
}
{ count 'threadIdx.x >> 7'; count '__shfl_sync of it' -DFIRST_LANE; } | tee seen
diff seen - <<'SEEN'
threadIdx.x >> 7: 14 R2UR, 5 HGMMA
__shfl_sync of it: 0 R2UR, 29 HGMMA
SEEN
