#!/usr/bin/env bash
# transformers 5.24.0, torch 2.13.0 on the CPU; a Llama of random weights.
# Guess: position_ids say how far RoPE turns each token, and nothing else. Positions 0, 2, 4, ... (stretched), or with a
# gap (training for longer contexts), change angles; each token sees all earlier ones. A cache changes no logits.
# Behaviour: Without a cache and without an attention_mask, each step of the positions other than 1 begins a new
# sequence: a mask hides all tokens before it. With positions 0, 2, 4, ... each token sees itself alone. With
# use_cache=True, the default, or with an attention_mask of ones, the same call has no such mask. Then sequences that
# are packed into a row by restarting positions see each other. Nothing is said in either case. It is so for eager, SDPA
# and flex attention.
# Output seen (the tokens that notice a change of the first one, of 8):
#   positions 0 1 2 3 4 5 6 7: no cache 8, cache 8, no cache and a mask of ones 8
#   positions 0 2 4 6 8 10 12 14: no cache 1, cache 8, no cache and a mask of ones 8
#   positions 0 1 2 3 100 101 102 103: no cache 4, cache 8, no cache and a mask of ones 8
#   positions 0 1 2 3 0 1 2 3: no cache 4, cache 8, no cache and a mask of ones 8
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_grad_enabled(False)
sizes = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=2, intermediate_size=32, vocab_size=50)
model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
tokens = torch.arange(10, 18)[None]
changed = tokens.clone()
changed[0, 0] = 40


def noticed(positions, **options):
    def logits(row):
        return model(row, position_ids=torch.tensor([positions]), **options).logits[0]

    return int(((logits(tokens) - logits(changed)).abs().amax(-1) > 1e-6).sum())


ones = torch.ones_like(tokens)
four = list(range(4))
for positions in (list(range(8)), list(range(0, 16, 2)), four + [100 + i for i in four], four + four):
    counts = set()
    for kind in ("eager", "sdpa", "flex_attention"):
        model.set_attn_implementation(kind)
        counts.add((noticed(positions, use_cache=False), noticed(positions, use_cache=True),
                    noticed(positions, use_cache=False, attention_mask=ones)))
    ((plain, cache, masked),) = counts
    print(f"positions {' '.join(map(str, positions))}: no cache {plain}, cache {cache},", end=" ")
    print(f"no cache and a mask of ones {masked}")
PYTHON
venv/bin/python -W ignore check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
positions 0 1 2 3 4 5 6 7: no cache 8, cache 8, no cache and a mask of ones 8
positions 0 2 4 6 8 10 12 14: no cache 1, cache 8, no cache and a mask of ones 8
positions 0 1 2 3 100 101 102 103: no cache 4, cache 8, no cache and a mask of ones 8
positions 0 1 2 3 0 1 2 3: no cache 4, cache 8, no cache and a mask of ones 8
SEEN
