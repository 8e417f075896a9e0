#!/usr/bin/env bash
# keras-hub 0.32.0 with keras 3.15.1 and jax 0.10.2 on the CPU.
# Guess: RotaryEmbedding(rope_type="dynamic") is dynamic NTK scaling as elsewhere: a short sequence is rotated as
# without scaling, a long one with a larger base, so that the fastest pair keeps its frequency of 1 at any length.
# Behaviour: It is neither dynamic nor a change of the base. Every frequency is divided by one number, factor ** (dim /
# (dim - 2)), at any length, the fastest too. That is linear scaling by 2.05 where the factor is 2. The layer has no
# original length that it could compare with: that argument is for YaRN, as its documentation says.
# Why it matters: A model with weights from elsewhere and this type in its config gets half the right positions even for
# a prompt of two tokens. Nothing warns, and the larger the factor, the worse.
# Output seen (frequency over that without scaling, for the fastest, a middle and the slowest of 32 pairs):
#   linear, 2 positions: 0.500 0.500 0.500
#   dynamic, 2 positions: 0.489 0.489 0.489
#   dynamic, 20000 positions: 0.489 0.489 0.489
#   a base larger by 2 ** (64 / 62): 1.000 0.699 0.500
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-cache-dir keras==3.15.1 jax==0.10.2 numpy==2.4.6 regex==2026.11.19 \
    sentencepiece==0.2.3 tokenizers==0.23.3 requests==2.34.2 tqdm==4.70.1 pyyaml==6.0.4 kagglehub==1.0.3 kagglesdk==0.1.38
"$folder/venv/bin/pip" install --quiet --no-cache-dir --no-deps keras-hub==0.32.0
cd "$folder"
cat > check.py <<'PYTHON'
import keras_hub
import numpy as np

DIM, HALF = 64, 32
base = 10000.0 * 2.0 ** (DIM / (DIM - 2))
plain, larger = (theta ** (-np.arange(0, DIM, 2) / DIM) for theta in (10000.0, base))


def told(name, frequencies):
    print(f"{name}:", *(f"{frequencies[pair] / plain[pair]:.3f}" for pair in (0, HALF // 2, HALF - 1)))


for kind, length in (("linear", 2), ("dynamic", 2), ("dynamic", 20000)):
    rows = np.zeros((1, length, 1, DIM), np.float32)
    rows[..., :HALF] = 1
    layer = keras_hub.layers.RotaryEmbedding(rope_type=kind, scaling_factor=2.0)
    rotated = np.asarray(layer(rows))[0, 1, 0]
    told(f"{kind}, {length} positions", np.arctan2(rotated[HALF:], rotated[:HALF]))
told("a base larger by 2 ** (64 / 62)", larger)
PYTHON
export KERAS_BACKEND=jax KERAS_HOME="$folder/keras"
venv/bin/python -W ignore check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
linear, 2 positions: 0.500 0.500 0.500
dynamic, 2 positions: 0.489 0.489 0.489
dynamic, 20000 positions: 0.489 0.489 0.489
a base larger by 2 ** (64 / 62): 1.000 0.699 0.500
SEEN
