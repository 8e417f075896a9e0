#!/usr/bin/env bash
# rotary-embedding-torch 0.9.1 with torch 2.13.0 on the CPU.
# Guess: rotate_queries_or_keys computes angles in float32, whatever the dtype of the rows. Its frequencies are float32,
# and it switches autocast off. So bfloat16 rows are right to a percent or two at any position.
# Behaviour: Positions are counted in the dtype of the rows. In bfloat16 the numbers past 256 are not all there, so
# neighbours share a position, and angles are wrong by radians; in float16 it begins at 2048. The angles are then kept:
# float32 rows that come later are as wrong, through the same module. If float32 rows came first, bfloat16 rows are
# right.
# Why it matters: Whether a model in bfloat16 knows its positions depends on which dtype its module saw first. A check
# that runs the module in float32 before, or a short one, finds nothing.
# Output seen (the largest error of a component, rows of length up to 8):
#   bfloat16, fresh module: below 0.05 up to position 255, above 1 up to 4095
#   float16, fresh module: below 0.05 up to position 2047, above 1 up to 4095
#   float32 after bfloat16: above 1 up to 4095
#   bfloat16 after float32: below 0.05 up to 4095
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-cache-dir rotary-embedding-torch==0.9.1 torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import torch
from rotary_embedding_torch import RotaryEmbedding

DIM, LENGTH = 32, 4096
torch.manual_seed(0)
rows = torch.randn(1, 1, LENGTH, DIM)


def errors(module, dtype):
    given = rows.to(dtype)
    angles = torch.arange(LENGTH).double()[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2).double() / DIM)
    pairs = torch.view_as_complex(given.double().unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    wrong = module.rotate_queries_or_keys(given).double() - torch.view_as_real(pairs).flatten(-2)
    return wrong.abs().amax(dim=(0, 1, 3))


def size(error):
    return "below 0.05" if error.max() < 0.05 else "above 1" if error.max() > 1 else "between"


for dtype, exact in ((torch.bfloat16, 256), (torch.float16, 2048)):
    error = errors(RotaryEmbedding(DIM), dtype)
    name = str(dtype).removeprefix("torch.")
    print(f"{name}, fresh module: {size(error[:exact])} up to position {exact - 1}, {size(error)} up to {LENGTH - 1}")
for first, then in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)):
    module = RotaryEmbedding(DIM)
    module.rotate_queries_or_keys(rows.to(first))
    names = [str(dtype).removeprefix("torch.") for dtype in (then, first)]
    print(f"{' after '.join(names)}: {size(errors(module, then))} up to {LENGTH - 1}")
PYTHON
venv/bin/python -W ignore check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
bfloat16, fresh module: below 0.05 up to position 255, above 1 up to 4095
float16, fresh module: below 0.05 up to position 2047, above 1 up to 4095
float32 after bfloat16: above 1 up to 4095
bfloat16 after float32: below 0.05 up to 4095
SEEN
