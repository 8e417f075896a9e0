#!/usr/bin/env bash
# mlx-lm 0.32.2 with mlx 0.32.4 (mlx-cpu) on Linux; transformers 5.24.0 and torch 2.13.0 beside it.
# Guess: For rope type longrope, mlx-lm takes the short factors while a sequence is no longer than the original length,
# and the long ones past it. Its docstring describes the two lists so, and transformers does it.
# Behaviour: The short factors are taken as an argument and never used. Every position is rotated by the long factors,
# from the first on. transformers uses the short ones for the same prompt.
# Why it matters: Prompts of Phi-3.5 and Phi-4-mini are nearly all shorter than their original length, 4096. Such
# prompts get frequencies up to tens of times too low in mlx-lm, and outputs differ from those by transformers without a
# word.
# Output seen (turn of position 1, original length 64, all short factors 1, all long ones 4):
#   transformers, 16 positions: short factors
#   transformers, 128 positions: long factors
#   mlx-lm, 16 positions: long factors
#   mlx-lm, 128 positions: long factors
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-cache-dir mlx==0.32.4 mlx-cpu==0.32.4 transformers==5.24.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/venv/bin/pip" install --quiet --no-cache-dir --no-deps mlx-lm==0.32.2
cd "$folder"
cat > check.py <<'PYTHON'
import mlx.core as mx
import numpy as np
import torch
from mlx_lm.models.rope_utils import initialize_rope
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

mx.set_default_device(mx.cpu)
DIM, HALF, LONGEST = 64, 32, 256
scaling = {"rope_type": "longrope", "short_factor": [1.0] * HALF, "long_factor": [4.0] * HALF}
scaling["original_max_position_embeddings"] = 64
frequencies = 10000.0 ** (-np.arange(0, DIM, 2) / DIM)


def by_transformers(length):
    config = LlamaConfig(hidden_size=DIM, num_attention_heads=1, max_position_embeddings=LONGEST,
                         rope_parameters=scaling | {"rope_theta": 10000.0})
    cosines, sines = LlamaRotaryEmbedding(config)(torch.zeros(1, 1, DIM), torch.arange(length)[None])
    return torch.atan2(sines, cosines)[0, 1, :HALF].numpy()


def by_mlx(length):
    rows = np.zeros((1, 1, length, DIM), np.float32)
    rows[..., :HALF] = 1
    rotated = np.array(initialize_rope(DIM, 10000.0, False, scaling, LONGEST)(mx.array(rows)))[0, 0, 1]
    return np.arctan2(rotated[HALF:], rotated[:HALF])


for name, turned in (("transformers", by_transformers), ("mlx-lm", by_mlx)):
    for length in (16, 128):
        fits = [which for which, factor in (("short", 1), ("long", 4))
                if np.allclose(turned(length), frequencies / factor, rtol=1e-3)]
        print(f"{name}, {length} positions: {' and '.join(fits) or 'other'} factors")
PYTHON
venv/bin/python -W ignore check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
transformers, 16 positions: short factors
transformers, 128 positions: long factors
mlx-lm, 16 positions: long factors
mlx-lm, 128 positions: long factors
SEEN
