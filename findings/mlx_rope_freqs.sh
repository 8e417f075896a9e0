#!/usr/bin/env bash
# mlx 0.32.4 (mlx-cpu) on Linux.
# Guess: mlx.core.fast.rope takes in `freqs` the frequencies of RoPE, radians per position, as inv_freq elsewhere. The
# documentation calls them frequencies, and no more.
# Behaviour: It takes their reciprocals. A pair with freqs of 0.1 turns by 10 radians a position, not by 0.1. What gives
# the same as base=10000 is base ** (2i / dims), not base ** (-2i / dims). The first entry, 1, is right in both
# readings.
# Output seen:
#   freqs of 0.1, position 1: turned by 10.0 radians
#   10000 ** (-2i / dims): unlike base=10000
#   10000 ** (+2i / dims): like base=10000
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mlx==0.32.4 mlx-cpu==0.32.4 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import math

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)


def rotated(rows, **choice):
    return np.array(mx.fast.rope(rows, rows.shape[-1], traditional=False, scale=1.0, offset=0, **choice))


pair = mx.array([[[[1.0, 0.0], [1.0, 0.0]]]])  # one head, two positions
x, y = rotated(pair, base=None, freqs=mx.array([0.1]))[0, 0, 1]
turn = (math.atan2(y, x) - 10.0) % math.tau
print("freqs of 0.1, position 1: turned by", "10.0 radians" if min(turn, math.tau - turn) < 1e-4 else math.atan2(y, x))

rows = mx.array(np.random.default_rng(0).standard_normal((1, 2, 6, 8)).astype(np.float32))
for sign in "-+":
    freqs = mx.array([10000.0 ** (float(sign + "1") * 2 * i / 8) for i in range(4)])
    like = np.allclose(rotated(rows, base=None, freqs=freqs), rotated(rows, base=10000.0), atol=1e-5)
    print(f"10000 ** ({sign}2i / dims): {'like' if like else 'unlike'} base=10000")
PYTHON
venv/bin/python check.py | tee output
diff output - <<'SEEN'
freqs of 0.1, position 1: turned by 10.0 radians
10000 ** (-2i / dims): unlike base=10000
10000 ** (+2i / dims): like base=10000
SEEN
