"""transformers' Llama with its RoPE and attention replaced by `rope_attention`.

    python -m fused_pe.examples.llama      in bfloat16, on random weights: its logits beside those of SDPA's backends

`fuse(model)` serves models whose layers rotate half-split pairs by `model.model.rotary_emb`: Llama, Mistral, Qwen2.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..ops import rope_attention

BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
PROMPT, STEPS = 512, 16


class Unrotated(nn.Module):
    """In place of a model's `rotary_emb`: angles of 0, so that layers leave q and k, and cache keys, as they are."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        zeros = x.new_zeros(())
        return zeros.cos()[None, None], zeros[None, None]


def attend_with(rotary: Any, places: int) -> Any:
    """An attention function for transformers that rotates by the angles of a `rotary_emb`, at up to `places` places."""
    angle = torch.arange(places, device=rotary.inv_freq.device)[:, None] * rotary.inv_freq.double()
    cos, sin = ((x * rotary.attention_scaling).float() for x in (angle.cos(), angle.sin()))

    def attend(
        module: Any, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, scaling: float, **_: Any
    ) -> tuple[Tensor, None]:
        if attention_mask is not None and q.shape[2] > 1 and not bool(attention_mask.all()):
            raise ValueError("attention_mask hides keys; only batches without padding are taken")
        out = rope_attention(q, k, v, cos=cos, sin=sin, interleaved=False, causal=True, scale=scaling)
        return out.transpose(1, 2), None

    return attend


def fuse(model: Any, name: str = "fused_rope") -> Any:
    """Let a model rotate and attend by `rope_attention`, in place. `name` is that of its attention in transformers."""
    from transformers import AttentionInterface

    rotary = model.model.rotary_emb
    AttentionInterface.register(name, attend_with(rotary, model.config.max_position_embeddings))
    model.model.rotary_emb = Unrotated()
    model.set_attn_implementation(name)
    return model


def logits(model: Any, tokens: Tensor) -> Tensor:
    """Of a prompt, and of steps that each append one more of the tokens to its cache; float32, on the CPU."""
    with torch.inference_mode():
        found = model(tokens[:, :-STEPS], use_cache=True)
        kept = [found.logits]
        for place in range(tokens.shape[1] - STEPS, tokens.shape[1]):
            found = model(tokens[:, place : place + 1], past_key_values=found.past_key_values, use_cache=True)
            kept.append(found.logits)
    return torch.cat(kept, 1).float().cpu()


def main() -> int:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192}
    config = LlamaConfig(**sizes, num_hidden_layers=4, vocab_size=8192, max_position_embeddings=2048)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.float32).eval()
        tokens = torch.randint(config.vocab_size, (2, PROMPT + STEPS))
    model.set_attn_implementation("sdpa")
    with sdpa_kernel(SDPBackend.MATH):
        exact = logits(model, tokens)
    rates = model.model.rotary_emb.inv_freq.clone()
    model.to(torch.bfloat16)
    model.model.rotary_emb.inv_freq = rates  # as a model has them that is loaded in bfloat16
    found: dict[str, Tensor] = {}
    for backend in BACKENDS:
        with sdpa_kernel([backend, SDPBackend.MATH] if backend != SDPBackend.MATH else backend, set_priority=True):
            found[backend.name] = logits(model, tokens)
    found["fused"] = logits(fuse(model), tokens)
    error = {name: float((x - exact).norm() / exact.norm()) for name, x in found.items()}
    for name, x in found.items():
        apart = [f"{float((x - y).norm() / exact.norm()):.2e}" for y in found.values()]
        print(f"{name:20s} error against float32 {error[name]:.3e}; apart from each of the above: {', '.join(apart)}")
    worst = max(value for name, value in error.items() if name != "fused")
    print(f"fused / worst of SDPA: {error['fused'] / worst:.3f}")
    return int(error["fused"] > worst)


if __name__ == "__main__":
    sys.exit(main())
