#!/usr/bin/env bash
# cuda-bindings 13.0.3, CUDA driver 580.159. Needs a GPU: exits with 3 where there is none.
# Guess: all questions about a stream that launch nothing may be asked while it is captured.
# Behaviour: cuStreamGetGreenCtx and cuStreamGetCtx answer. cuStreamGetId is refused, though the id is a number that never
# changes, and the refusal ends the capture: cuStreamEndCapture then says that the capture is invalid, and not why.
# Whoever keys a cache of streams by their ids, as handles may be used again, breaks the graphs of their callers.
# Output seen:
#   cuStreamGetGreenCtx: CUDA_SUCCESS, the capture ends with CUDA_SUCCESS
#   cuStreamGetCtx: CUDA_SUCCESS, the capture ends with CUDA_SUCCESS
#   cuStreamGetId: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, the capture ends with CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
set -euo pipefail
if ! nvidia-smi > /dev/null 2>&1; then
    echo "this finding needs an NVIDIA GPU; none is here" >&2
    exit 3
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet cuda-bindings==13.0.3 cuda-pathfinder==1.9.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON' | tee output
from cuda.bindings import driver


def check(result):
    code, *values = result
    assert code == driver.CUresult.CUDA_SUCCESS, code
    return values[0] if values else None


check(driver.cuInit(0))
device = check(driver.cuDeviceGet(0))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
for name in ("cuStreamGetGreenCtx", "cuStreamGetCtx", "cuStreamGetId"):
    stream = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    asked, *_ = getattr(driver, name)(stream)
    ended, *_ = driver.cuStreamEndCapture(stream)
    print(f"{name}: {asked.name}, the capture ends with {ended.name}")
PYTHON
diff - output <<'OUTPUT'
cuStreamGetGreenCtx: CUDA_SUCCESS, the capture ends with CUDA_SUCCESS
cuStreamGetCtx: CUDA_SUCCESS, the capture ends with CUDA_SUCCESS
cuStreamGetId: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, the capture ends with CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
OUTPUT
