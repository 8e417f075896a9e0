#!/usr/bin/env bash
# keras 3.15.1 with jax 0.10.2 on the CPU.
# Guess: keras.layers.MultiHeadAttention has the same output whether or not return_attention_scores asks for the
# weights, and, outside of training, whether or not the layer was built with dropout.
# Behaviour: For a query whose keys are all masked the outputs differ. Without dropout and without the weights the layer
# calls a fused attention, which gives the mean of all values. If it is asked for the weights, or has a dropout rate, be
# it only for training, its own softmax gives zeros. Other queries have the same output. GroupQueryAttention is alike.
# Output seen:
#   MultiHeadAttention: plain numbers, weights asked for zeros, built with dropout zeros; other queries equal
#   GroupQueryAttention: plain numbers, weights asked for zeros, built with dropout zeros; other queries equal
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(0)
rows = np.random.default_rng(0).random((1, 4, 8), dtype=np.float32)
mask = np.ones((1, 4, 4), bool)
mask[:, 0] = False
builds = {
    "MultiHeadAttention": lambda dropout: layers.MultiHeadAttention(2, 4, dropout=dropout, use_bias=False),
    "GroupQueryAttention": lambda dropout: layers.GroupQueryAttention(4, 2, 1, dropout=dropout, use_bias=False),
}
for name, build in builds.items():
    layer, dropping = build(0.0), build(0.1)
    layer(rows, rows)
    dropping(rows, rows)
    for variable, given in zip(dropping.trainable_variables, layer.trainable_variables, strict=True):
        variable.assign(given)
    outputs = {
        "plain": layer(rows, rows, attention_mask=mask, training=False),
        "weights asked for": layer(rows, rows, attention_mask=mask, training=False, return_attention_scores=True)[0],
        "built with dropout": dropping(rows, rows, attention_mask=mask, training=False),
    }
    outputs = {how: np.asarray(output)[0] for how, output in outputs.items()}
    told = ", ".join(f"{how} {'numbers' if output[0].any() else 'zeros'}" for how, output in outputs.items())
    others = all(np.allclose(output[1:], outputs["plain"][1:], atol=1e-5) for output in outputs.values())
    print(f"{name}: {told}; other queries {'equal' if others else 'different'}")
PYTHON
export KERAS_BACKEND=jax KERAS_HOME="$folder/keras"
venv/bin/python -W ignore check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
MultiHeadAttention: plain numbers, weights asked for zeros, built with dropout zeros; other queries equal
GroupQueryAttention: plain numbers, weights asked for zeros, built with dropout zeros; other queries equal
SEEN
