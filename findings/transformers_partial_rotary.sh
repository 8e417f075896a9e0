#!/usr/bin/env bash
# transformers 5.24.0 with torch 2.13.0 on the CPU.
# Guess: partial_rotary_factor in rope_parameters, described as the share of a head that is rotated, works in a Llama,
# or is refused. Configs of every family take it.
# Behaviour: It depends on the rope type. With the default type a Llama ignores it and rotates all dims, without a word.
# With linear, dynamic, yarn and llama3 the tables get the smaller width, and the first forward fails on their shape.
# Mistral, Qwen2 and Gemma are alike. In StableLM and GLM the same key works with every type.
# Why it matters: A config that asks a Llama for partial rotation trains a model with full rotation. Nobody notices,
# until the same weights are read by a library that follows the config.
# Output seen (logits with a factor of 0.5, against a factor of 1):
#   llama: default equal, linear refused, dynamic refused, yarn refused, llama3 refused
#   mistral: default equal, linear refused, dynamic refused, yarn refused, llama3 refused
#   qwen2: default equal, linear refused, dynamic refused, yarn refused, llama3 refused
#   stablelm: default different, linear different, dynamic different, yarn different, llama3 different
#   glm: default different, linear different, dynamic different, yarn different, llama3 different
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-cache-dir transformers==5.24.0 torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import torch
from transformers import AutoConfig, AutoModelForCausalLM

tokens = torch.arange(48)[None]
LENGTHS = {"factor": 2.0, "original_max_position_embeddings": 128}
kinds = {
    "default": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": LENGTHS,
    "llama3": LENGTHS | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


def logits(family, kind, factor):
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, vocab_size=64, hidden_size=128, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=256, initializer_range=0.15, pad_token_id=0,
        rope_parameters=kinds[kind] | {"rope_type": kind, "rope_theta": 10000.0, "partial_rotary_factor": factor})
    with torch.no_grad():
        return AutoModelForCausalLM.from_config(config).eval()(tokens).logits


def told(family, kind):
    whole = logits(family, kind, 1.0)
    try:
        half = logits(family, kind, 0.5)
    except RuntimeError as refusal:
        assert "must match the size" in str(refusal)
        return f"{kind} refused"
    return f"{kind} {'equal' if torch.equal(half, whole) else 'different'}"


for family in ("llama", "mistral", "qwen2", "stablelm", "glm"):
    print(f"{family}: {', '.join(told(family, kind) for kind in kinds)}")
PYTHON
venv/bin/python -W ignore check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
llama: default equal, linear refused, dynamic refused, yarn refused, llama3 refused
mistral: default equal, linear refused, dynamic refused, yarn refused, llama3 refused
qwen2: default equal, linear refused, dynamic refused, yarn refused, llama3 refused
stablelm: default different, linear different, dynamic different, yarn different, llama3 different
glm: default different, linear different, dynamic different, yarn different, llama3 different
SEEN
