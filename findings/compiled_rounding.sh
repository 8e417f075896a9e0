#!/usr/bin/env bash
# torch 2.13.0 (Inductor for the CPU).
# Guess: In a compiled function x.to(torch.bfloat16).float() rounds x, as it does in eager mode. Inductor may keep more
# digits between fused operations in bfloat16, but a cast that is written down is part of the program.
# Behaviour: The two casts are removed, for bfloat16 and float16, and kept for float8. x - x.to(bfloat16).float() is 0.
# A function that splits x into a high and a low part returns a rounded high part and a low part of zeros, which do not
# add up to x. Angles of RoPE from positions in bfloat16 are those of exact positions, so a compiled model does not show
# the error of the eager one. The switch emulate_precision_casts, which is off, keeps the casts. It matters to
# references and trials that imitate a kernel in half precision: compiled, they are too good. Reported:
# pytorch/pytorch#183761.
# Output seen:
#   what bfloat16 loses: eager 0.008, compiled 0.000, compiled with emulation 0.008
#   what float16 loses: eager 0.001, compiled 0.000, compiled with emulation 0.001
#   what float8_e4m3fn loses: eager 0.125, compiled 0.125, compiled with emulation 0.125
#   high + low is x, at most off by: eager 0.000, compiled 0.008, compiled with emulation 0.000
#   cosine of position 257 in bfloat16: eager -0.040, compiled 0.819, compiled with emulation -0.040
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import torch
from torch._inductor import config

given = torch.randn(65536, generator=torch.Generator().manual_seed(0))
given = given[given.abs() < 4]
position = torch.tensor([257.0])


def lost(dtype):
    return lambda x: x - x.to(dtype).float()


def split(x):
    high = x.to(torch.bfloat16)
    return high, x - high.float()


def cosine(at):
    return torch.cos(at.to(torch.bfloat16).float())


def show(name, function, judge):
    found = [judge(function)]
    for emulate in (False, True):
        torch._dynamo.reset()
        with config.patch(emulate_precision_casts=emulate):
            found.append(judge(torch.compile(function, fullgraph=True)))
    print(f"{name}: eager %.3f, compiled %.3f, compiled with emulation %.3f" % tuple(found))


for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn):
    show(f"what {str(dtype)[6:]} loses", lost(dtype), lambda f: f(given).abs().max())


def mismatch(function):
    high, low = function(given)
    return (given - (high.float() + low)).abs().max()


show("high + low is x, at most off by", split, mismatch)
show("cosine of position 257 in bfloat16", cosine, lambda f: f(position))
PYTHON
export TORCHINDUCTOR_CACHE_DIR="$folder/cache"
venv/bin/python -W ignore check.py | tee output
diff output - <<'SEEN'
what bfloat16 loses: eager 0.008, compiled 0.000, compiled with emulation 0.008
what float16 loses: eager 0.001, compiled 0.000, compiled with emulation 0.001
what float8_e4m3fn loses: eager 0.125, compiled 0.125, compiled with emulation 0.125
high + low is x, at most off by: eager 0.000, compiled 0.008, compiled with emulation 0.000
cosine of position 257 in bfloat16: eager -0.040, compiled 0.819, compiled with emulation -0.040
SEEN
