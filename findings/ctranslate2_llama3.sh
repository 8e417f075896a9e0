#!/usr/bin/env bash
# ctranslate2 4.8.5 with transformers 5.24.0 and torch 2.13.0 on the CPU.
# Guess: A converted Llama 3.1 computes the logits of transformers. The converter takes rope type llama3: it refuses
# others, such as yarn, with a list of what is implemented, and llama3 is on it.
# Behaviour: The model rotates without any scaling. Its logits are those of the same weights with rope type default, to
# five digits, whatever the factor and the original length are. Linear scaling is right, so it is not the config that is
# not found. Conversion and generation say nothing.
# Why it matters: llama3 is the rope type of Llama 3.1, 3.2 and 3.3. Their slow pairs were trained to turn 8 or 32 times
# slower than they do here. Short prompts look sound, and the error grows with the length.
# Output seen (two layers with random weights, 256 tokens, theta 500000, against logits by transformers):
#   default: like default
#   linear, factor 4: like itself
#   llama3, factor 8, original length 8192: like default
#   llama3, factor 32, original length 8192: like default
#   yarn: refused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-cache-dir ctranslate2==4.8.5 transformers==5.24.0 torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import ctranslate2
import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS, LENGTH = 64, 256
words = Tokenizer(models.WordLevel({f"w{word}": word for word in range(WORDS)}, unk_token="w0"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", bos_token="w1", eos_token="w2")
tokens = torch.arange(LENGTH)[None] % WORDS


def built(scaling):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        initializer_range=0.15, max_position_embeddings=131072, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0} | scaling)
    return LlamaForCausalLM(config).eval()


def converted(model):
    model.save_pretrained("saved")
    tokenizer.save_pretrained("saved")
    ctranslate2.converters.TransformersConverter("saved").convert("converted", force=True)
    generator = ctranslate2.Generator("converted", device="cpu", compute_type="float32")
    return np.array(generator.forward_batch([[f"w{token}" for token in tokens[0]]]))[0]


def logits(model):
    with torch.no_grad():
        return model(tokens).logits[0].numpy()


plain = logits(built({}))
bands = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
kinds = {
    "default": {},
    "linear, factor 4": {"rope_type": "linear", "factor": 4.0},
    "llama3, factor 8, original length 8192": bands | {"factor": 8.0, "original_max_position_embeddings": 8192},
    "llama3, factor 32, original length 8192": bands | {"factor": 32.0, "original_max_position_embeddings": 8192},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
}
for name, scaling in kinds.items():
    model = built(scaling)
    own = logits(model)
    assert not scaling or np.abs(own - plain).max() > 0.1
    try:
        got = converted(model)
    except NotImplementedError as refusal:
        assert "llama3" in str(refusal)
        print(f"{name}: refused")
        continue
    like = [how for how, other in (("default", plain), ("itself", own)) if np.abs(got - other).max() < 1e-3]
    print(f"{name}: like {like[0] if like else 'neither'}")
PYTHON
venv/bin/python -W ignore check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
default: like default
linear, factor 4: like itself
llama3, factor 8, original length 8192: like default
llama3, factor 32, original length 8192: like default
yarn: refused
SEEN
