#!/usr/bin/env bash
# transformers 5.24.0, read by transformers 4.57.6, torch 2.13.0 on the CPU.
# Guess: A Llama that transformers 5 saved either has the same logits in the last version of transformers 4, or is
# refused. In the other direction it has the same.
# Behaviour: It loads and has others. Version 5 writes base and scaling into rope_parameters alone. Version 4 looks for
# rope_theta and rope_scaling, finds neither, and takes a theta of 10,000 and no scaling. It keeps rope_parameters as an
# attribute that nothing reads. No warning names it. The other direction is right.
# Why it matters: A model that was tuned with version 5 and is served with version 4 has the wrong angles, from the
# second token on. Every weight loads, so it looks like a bad fine-tuning.
# Output seen (logits by version 4 of the folder that version 5 saved; theta 500000):
#   default: like theta 10000
#   llama3: like theta 10000
#   linear: like theta 10000
#   theta 10000: like itself
# and of folders that version 4 saved, by version 5:
#   default: like itself
#   llama3: like itself
#   linear: like itself
#   theta 10000: like itself
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-cache-dir transformers==5.24.0 torch==2.13.0 numpy==2.4.6 requests==2.34.2
"$folder/venv/bin/pip" install --quiet --no-cache-dir --no-deps --target "$folder/four" transformers==4.57.6 \
    huggingface_hub==0.36.2 tokenizers==0.22.1
cd "$folder"
cat > check.py <<'PYTHON'
import sys

import numpy as np
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

tokens = torch.arange(48)[None]
bands = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
kinds = {
    "default": (500000.0, None),
    "llama3": (500000.0, bands | {"factor": 8.0}),
    "linear": (500000.0, {"rope_type": "linear", "factor": 4.0}),
    "theta 10000": (10000.0, None),
}
job, writer = sys.argv[1:]
version = transformers.__version__.split(".")[0]


def place(name):
    return f"by_{writer}_{name.replace(' ', '_')}"


def logits(model):
    with torch.no_grad():
        return model.eval()(tokens).logits[0].numpy()


def built(theta, scaling):
    if version == "4":
        rope = {"rope_theta": theta, "rope_scaling": scaling}
    else:
        rope = {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | (scaling or {})}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        initializer_range=0.15, max_position_embeddings=512, **rope))


if job == "write":
    assert version == writer
    for name, choice in kinds.items():
        model = built(*choice)
        model.save_pretrained(place(name))
        np.save(place(name) + ".npy", logits(model))
else:
    assert version != writer
    plain = np.load(place("theta 10000") + ".npy")
    for name in kinds:
        got, own = logits(LlamaForCausalLM.from_pretrained(place(name))), np.load(place(name) + ".npy")
        like = [how for how, other in (("itself", own), ("theta 10000", plain)) if np.abs(got - other).max() < 1e-3]
        print(f"{name}: like {like[0] if like else 'neither'}")
PYTHON
python() { PYTHONPATH=$1 venv/bin/python -W ignore check.py "${@:2}" 2>> errors; }
{
    python "" write 5 && python four read 5
    python four write 4 && python "" read 4
} | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
default: like theta 10000
llama3: like theta 10000
linear: like theta 10000
theta 10000: like itself
default: like itself
llama3: like itself
linear: like itself
theta 10000: like itself
SEEN
