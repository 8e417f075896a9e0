#!/usr/bin/env bash
# transformers 5.24.0, torch 2.13.0
# Guess: a prompt without padding has no mask in SDPA, compiled or not, since `is_causal` says it all.
# Behaviour: so it is eagerly. Under torch.compile without a cache a mask [1, 1, n, n] is made and handed to each layer:
# whether position_ids pack several sequences cannot be read while tracing, so they are taken to. With a cache it is None.
# SDPA's flash kernel takes no mask, so a compiled training step loses it.
# Output seen:
#   cache: eager None, compiled None
#   no cache: eager None, compiled (1, 1, 8, 8)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON' | tee output
import torch
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

masks = []


def watched(module, query, key, value, attention_mask, **others):
    masks.append(None if attention_mask is None else tuple(attention_mask.shape))
    return sdpa_attention_forward(module, query, key, value, attention_mask, **others)


AttentionInterface.register("watched", watched)
AttentionMaskInterface.register("watched", sdpa_mask)
sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 50}
model = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="watched")).eval()
for words, use_cache in (("cache", True), ("no cache", False)):
    masks.clear()
    for call in (model, torch.compile(model, backend="eager")):
        call(torch.arange(8)[None], use_cache=use_cache)
    print(f"{words}: eager {masks[0]}, compiled {masks[1]}")
PYTHON
printf '%s\n' 'cache: eager None, compiled None' 'no cache: eager None, compiled (1, 1, 8, 8)' | diff - output
