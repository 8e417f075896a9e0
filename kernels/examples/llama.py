"""transformers' Llama with its RoPE and attention replaced by `rope_attention`.

    python -m fused_pe.examples.llama      in bfloat16, on random weights: its logits beside those of SDPA's backends

`fuse(model)` serves models whose layers rotate half-split pairs by `model.model.rotary_emb`: Llama, Mistral, Qwen2. It
rotates in float32, transformers in the model's dtype. So in bfloat16 the logits are further from those of SDPA's
backends than these are from one another, and nearer to those of float32.
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..ops import rope_attention

BACKENDS = (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
PROMPT, STEPS = 512, 16


class Unrotated(nn.Module):
    """In place of a model's `rotary_emb`: angles of 0, so that layers leave q and k, and cache keys, as they are."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_ones((1, 1)), x.new_zeros((1, 1))


def attend_with(rotary: Any, places: int) -> Any:
    """An attention function for transformers that rotates by the angles of a `rotary_emb`, at up to `places` places."""
    angle = torch.arange(places, device=rotary.inv_freq.device)[:, None] * rotary.inv_freq.double()
    cos, sin = ((x * rotary.attention_scaling).float() for x in (angle.cos(), angle.sin()))

    def attend(_: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, **__: Any) -> Any:
        if mask is not None and q.shape[2] > 1 and not bool(mask.all()):
            raise ValueError("attention_mask hides keys; only batches without padding are taken")
        out = rope_attention(q, k, v, cos=cos, sin=sin, interleaved=False, causal=True, scale=scaling)
        return out.transpose(1, 2), None

    return attend


def fuse(model: Any, name: str = "fused_rope") -> Any:
    """Let a model rotate and attend by `rope_attention`, in place. `name` is that of its attention in transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register(name, attend_with(model.model.rotary_emb, model.config.max_position_embeddings))
    model.model.rotary_emb = Unrotated()
    model.set_attn_implementation(name)
    return model


@torch.inference_mode()
def logits(model: Any, tokens: Tensor) -> Tensor:
    """Of a prompt, and of steps that each append one more of the tokens to its cache; in float32."""
    found = [model(tokens[:, :-STEPS], use_cache=True)]
    for token in tokens[:, -STEPS:].split(1, dim=1):
        found.append(model(token, past_key_values=found[-1].past_key_values, use_cache=True))
    return torch.cat([each.logits.float() for each in found], 1)


def main() -> int:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": PROMPT + STEPS}
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**heads, num_hidden_layers=4, attn_implementation="sdpa")).eval()
        tokens = torch.randint(model.config.vocab_size, (2, PROMPT + STEPS))
    with sdpa_kernel(SDPBackend.MATH):
        exact, rates = logits(model, tokens), model.model.rotary_emb.inv_freq
    model.bfloat16().model.rotary_emb.inv_freq = rates  # in float32, as a model has them that is loaded in bfloat16
    errors = []
    for backend in (*BACKENDS, None):
        with sdpa_kernel([backend or SDPBackend.MATH, SDPBackend.MATH], set_priority=True):  # not all take one query
            found = logits(model if backend else fuse(model), tokens)
        errors.append(float((found - exact).norm() / exact.norm()))
        print(f"{backend.name if backend else 'rope_attention':20s} error against float32: {errors[-1]:.2e}")
    return int(errors[-1] > 1.1 * max(errors[:-1]))  # as much is due to roundings of another order


if __name__ == "__main__":
    sys.exit(main())
