"""Decoders of transformers with their RoPE and attention replaced by `rope_attention`.

    python -m fused_pe.examples.llama      in bfloat16, on random weights: its logits and those of SDPA's backends

`fuse(model)` takes the decoders named in `INTERLEAVED` where a token attends to all up to itself: prompts in one call
or in chunks, decode, `generate`, growing and static caches. All else it refuses: other decoders, config fields and
types of RoPE; padding, windows, packed sequences, dropout. Each row of `INTERLEAVED` was tried with transformers 5.24.

Caches of a fused model hold keys that are not rotated. Each call waits for the GPU, to read positions and mask; there
torch.compile breaks its graph, and without a cache transformers hands it a mask of packed sequences, which is refused.
Angles are float32, those of transformers of the model's dtype. So in bfloat16 the logits are further from those of
SDPA's backends than these are from one another, and nearer to those of float32.
"""

import sys
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface, Cache, LlamaConfig, LlamaForCausalLM
from transformers.masking_utils import causal_mask_function

from ..op import rope_attention

NAME = "fused_rope"  # of the attention in transformers
HALVES = "Llama Mistral Mixtral Qwen2 Qwen3 Qwen3Moe Olmo Olmo2 Olmoe Granite Gemma Phi Phi3 StableLm Starcoder2"
HALVES += " Nemotron GPTNeoX"
NEIGHBOURS = "Cohere Glm Glm4 Helium Ernie4_5"
INTERLEAVED = dict.fromkeys(HALVES.split(), False) | dict.fromkeys(NEIGHBOURS.split(), True)  # which dims make a pair

ROPE_TYPES = {"default", "linear", "llama3", "yarn"}  # their angles do not change with the length
CACHES = {"DynamicLayer", "StaticLayer"}  # they return keys as they were handed in, from the first on
UNUSED = {"use_cache", "num_items_in_batch", "output_hidden_states", "output_router_logits"}  # no attention reads them
NEUTRAL = {"dropout": 0.0, "output_attentions": False, "is_causal": True}  # what these may be; others None

BACKENDS = (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
PROMPT, STEPS = 512, 16


class Unrotated(nn.Module):
    """In place of a model's `rotary_emb`: angles of 0, so that layers leave q and k, and cache keys, as they are.

    cos, sin: `[max_position_embeddings, pairs]`, the model's own angles in float32, for `attend`
    """

    def __init__(self, rotary: nn.Module, config: Any, dtype: torch.dtype, interleaved: bool) -> None:
        super().__init__()
        self.rotary, self.config, self.interleaved = rotary, config, interleaved
        positions = torch.arange(config.max_position_embeddings, device=rotary.inv_freq.device)[None]
        like = torch.empty(0, dtype=torch.promote_types(dtype, torch.float32), device=positions.device)
        for name, table in zip(("cos", "sin"), rotary(like, positions)):
            self.register_buffer(name, once(table[0]), persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        if not is_fused(self.config):
            return self.rotary(x, position_ids)
        width = 2 * self.cos.shape[1]
        return x.new_ones((1, 1, width)), x.new_zeros((1, 1, width))


def once(table: Tensor) -> Tensor:
    """`[n, pairs]` of a table `[n, 2 pairs]` that holds each angle twice, as halves or in turn."""
    first, second = table.chunk(2, dim=-1)
    return (first if torch.equal(first, second) else table[:, ::2]).contiguous()


def is_fused(config: Any) -> bool:
    """Whether the model attends by `attend` now: `set_attn_implementation` may choose another at any time."""
    return config._attn_implementation == NAME


def attend(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    scaling: float,
    position_ids: Tensor,
    **others: Any,
) -> tuple[Tensor, None]:
    """A layer's attention, as transformers calls it; the mask is one of `causal_mask`."""
    rotary, lengths, seq_q = getattr(module, NAME, None), None, q.shape[2]
    if rotary is None or not module.is_causal:
        refuse(f"a layer {type(module).__name__} that is not causal, or not of a fused model", "causal layers of one")
    for name, value in others.items():
        if name not in UNUSED and value is not None and not (name in NEUTRAL and value == NEUTRAL[name]):
            refuse(f"{name}={value}", f"{NEUTRAL.get(name)}")
    if mask is not None:
        if mask.dtype != torch.int32 or mask.shape != (len(q), 1, 1, 1):
            refuse(f"an attention_mask {tuple(mask.shape)} of {mask.dtype}", "none, or [batch, keys] without padding")
        lengths = mask.view(-1)
    if module.layer_idx == 0:
        first = k.shape[2] - seq_q if lengths is None else lengths[:, None] - seq_q
        if not bool((position_ids == first + torch.arange(seq_q, device=q.device)).all()):
            given = f"position_ids {int(position_ids.min())} to {int(position_ids.max())} for {k.shape[2]} keys"
            refuse(given, "those of tokens that follow one another, the first at 0")
    out = rope_attention(
        q,
        k,
        v,
        cos=rotary.cos,
        sin=rotary.sin,
        rotary_dim=2 * rotary.cos.shape[1],
        interleaved=rotary.interleaved,
        causal=True,
        scale=scaling,
        lengths=lengths,
    )
    return out.transpose(1, 2), None


def causal_mask(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor,
    kv_offset: int,
    mask_function: Any,
    attention_mask: Tensor | None,
    device: Any,
    **_: Any,
) -> Tensor | None:
    """The mask that `attend` gets: None, or int32 `[batch, 1, 1, 1]`, the keys that a static cache holds so far."""
    if mask_function is not causal_mask_function or kv_offset:
        refuse("a mask of a window, of packed sequences or of one's own", "the causal mask")
    keys = q_offset + q_length
    if attention_mask is not None and (attention_mask.shape[1] < keys or not bool(attention_mask[:, :keys].all())):
        refuse(f"an attention_mask {tuple(attention_mask.shape)} that hides some of {int(keys)} keys", "no padding")
    if not isinstance(keys, Tensor) and keys == kv_length:
        return None
    return torch.as_tensor(keys, dtype=torch.int32, device=device).repeat(batch_size).view(-1, 1, 1, 1)


def check_call(body: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Before a call: refuse what layers do not see, weights asked for and caches with keys rotated otherwise."""
    fused = is_fused(body.config)
    if fused and named.get("output_attentions"):
        refuse("output_attentions=True", "False")
    for cache in (*args, *named.values()):
        if isinstance(cache, Cache):
            if fused and (others := {type(layer).__name__ for layer in cache.layers} - CACHES):
                refuse(f"a cache of {', '.join(sorted(others))}", " and ".join(sorted(CACHES)))
            if getattr(cache, NAME, False) is not fused and cache.get_seq_length():
                refuse("a cache that was filled by another attention", "a new one")


def mark_cache(body: Any, args: tuple[Any, ...], output: Any) -> None:
    """After a call: note in its cache whether keys are rotated."""
    for each in output.values() if isinstance(output, dict) else output:
        if isinstance(each, Cache):
            setattr(each, NAME, is_fused(body.config))


def require_known(body: Any) -> None:
    """Refuse a decoder whose classes or config hold what `INTERLEAVED` was not tried with."""
    family = type(body).__name__.removesuffix("Model")
    if family not in INTERLEAVED or not type(body).__module__.startswith("transformers.models."):
        refuse(f"a {type(body).__name__}", f"decoders of transformers: {', '.join(INTERLEAVED)}")
    config = body.config
    if type(config).__name__ != f"{family}Config":
        refuse(f"a {type(config).__name__}", f"a {family}Config")
    if undeclared := vars(config).keys() - vars(type(config)()).keys() - {"model_type"}:
        refuse(f"a config with {', '.join(sorted(undeclared))}", f"fields that {type(config).__name__} declares")
    for name, allowed in (("sliding_window", None), ("output_attentions", False)):
        if (given := getattr(config, name, allowed)) != allowed:
            refuse(f"a config with {name} {given}", f"{allowed}")
    if others := set(getattr(config, "layer_types", ())) - {"full_attention"}:
        refuse(f"layer_types {', '.join(sorted(others))}", "full_attention")
    if (given := config.rope_parameters.get("rope_type")) not in ROPE_TYPES:
        refuse(f"rope_type {given}", ", ".join(sorted(ROPE_TYPES)))


def refuse(given: str, allowed: str) -> NoReturn:
    raise ValueError(f"{NAME} got {given}; it takes {allowed}")


def fuse(model: Any) -> Any:
    """Let a model rotate and attend by `rope_attention`, in place. `set_attn_implementation("sdpa")` undoes it.

    Raises: ValueError, here and in calls of the model, for what it does not know.
    """
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, causal_mask)
    body = getattr(model, "base_model", model)
    if not isinstance(getattr(body, "rotary_emb", None), Unrotated):
        require_known(body)
        family = type(body).__name__.removesuffix("Model")
        known = vars(sys.modules[type(body).__module__])
        layers = [each for each in body.modules() if type(each) is known[f"{family}Attention"]]
        if type(body.rotary_emb) is not known[f"{family}RotaryEmbedding"] or len(layers) != len(body.layers):
            refuse(f"a {family} model with another rotary_emb or attention", "its own")
        body.rotary_emb = Unrotated(body.rotary_emb, body.config, body.dtype, INTERLEAVED[family])
        for layer in layers:
            setattr(layer, NAME, body.rotary_emb)
        body.register_forward_pre_hook(check_call, with_kwargs=True)
        body.register_forward_hook(mark_cache)
    model.set_attn_implementation(NAME)
    return model


@torch.inference_mode()
def logits(model: Any, tokens: Tensor) -> Tensor:
    """Logits in float32 of a prompt, and of steps that each append one more of the tokens to its cache."""
    found = [model(tokens[:, :-STEPS], use_cache=True)]
    for token in tokens[:, -STEPS:].split(1, dim=1):
        found.append(model(token, past_key_values=found[-1].past_key_values, use_cache=True))
    return torch.cat([each.logits.float() for each in found], 1)


def main() -> int:
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
