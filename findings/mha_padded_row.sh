#!/usr/bin/env bash
# torch 2.13.0 on the CPU.
# Guess: For a sequence that is padding throughout, nn.TransformerEncoderLayer gives the same in training and in eval
# mode (without dropout): NaN in both, or, since scaled_dot_product_attention gives zeros to such rows, numbers in both.
# Behaviour: It gives numbers in training mode, and in eval mode while gradients are recorded. Under torch.no_grad()
# eval mode takes a fast path of its own, whose softmax makes NaN of the same rows. nn.MultiheadAttention with
# need_weights=False behaves alike; with need_weights=True it gives NaN always. Other sequences of the batch are finite.
# Output seen:
#   encoder layer:              train numbers  train no_grad numbers  eval numbers  eval no_grad NaN
#   attention without weights:  train numbers  train no_grad numbers  eval numbers  eval no_grad NaN
#   attention with weights:     train NaN      train no_grad NaN      eval NaN      eval no_grad NaN
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
rows = torch.randn(2, 3, 8)
padding = torch.tensor([[False] * 3, [True] * 3])


def attended(weights):
    return layer.self_attn(rows, rows, rows, key_padding_mask=padding, need_weights=weights)[0]


calls = {
    "encoder layer": lambda: layer(rows, src_key_padding_mask=padding),
    "attention without weights": lambda: attended(False),
    "attention with weights": lambda: attended(True),
}
for name, call in calls.items():
    told = []
    for mode in ("train", "eval"):
        getattr(layer, mode)()
        for recorded in (True, False):
            with torch.set_grad_enabled(recorded):
                full, padded = call()
            assert full.isfinite().all()
            result = "numbers" if padded.isfinite().all() else "NaN" if padded.isnan().all() else "mixed"
            told.append(f"{mode}{'' if recorded else ' no_grad'} {result:7}")
    print(f"{name + ':':27} {'  '.join(told).rstrip()}")
PYTHON
venv/bin/python -W ignore check.py | tee output
diff output - <<'SEEN'
encoder layer:              train numbers  train no_grad numbers  eval numbers  eval no_grad NaN
attention without weights:  train numbers  train no_grad numbers  eval numbers  eval no_grad NaN
attention with weights:     train NaN      train no_grad NaN      eval NaN      eval no_grad NaN
SEEN
