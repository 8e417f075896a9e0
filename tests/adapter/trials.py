"""`fuse(model)` on transformers' own models: each is right, or refused. Run by `python -m tests.adapter`.

Models are tiny, with random weights. What is right is as near to the eager attention in float64 as that of float32 is,
within a factor of 4. `families.csv` gets a row for each family.
"""

import copy
import csv
import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from fused_pe import rope_attention
from fused_pe.examples.llama import INTERLEAVED, NAME, fuse
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, LlamaModel, StaticCache
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.llama4 import modeling_llama4 as llama4
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl

pytestmark = pytest.mark.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

COLUMNS = ("release", "family", "arguments", "max_rel_err", "allowed_rel_err", "refused")
SLACK = 4  # of an error over that of eager attention in float32
HDIM = 24
SIZES = {
    "hidden_size": 4 * HDIM, "num_attention_heads": 4, "head_dim": HDIM, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 61, "max_position_embeddings": 64,
    "initializer_range": 0.3, "num_experts": 4, "num_local_experts": 4, "moe_intermediate_size": 16,
    "num_experts_per_tok": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"short_factor": [1.0] * 12, "long_factor": [2.0] * 12, "original_max_position_embeddings": 8}
WINDOW = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}


def rope(kind: str, **fields: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **fields}}


RIGHT = {  # family: the model, and what is not usual of its config
    "Llama": ("llama", {}),
    "Llama (llama3)": ("llama", rope("llama3", **LLAMA3)),
    "Llama (YaRN)": ("llama", rope("yarn", factor=4.0, original_max_position_embeddings=16)),
    "Llama (linear)": ("llama", rope("linear", factor=4.0)),
    "Mistral (no window)": ("mistral", {"sliding_window": None}),
    "Mixtral": ("mixtral", {}),
    "Qwen2": ("qwen2", {}),
    "Qwen3": ("qwen3", {}),
    "Qwen3-MoE": ("qwen3_moe", {}),
    "OLMo": ("olmo", {"clip_qkv": 0.5}),
    "OLMo 2": ("olmo2", {}),
    "OLMoE": ("olmoe", {}),
    "Granite": ("granite", {"attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 3.0}),
    "Gemma": ("gemma", {}),
    "Phi": ("phi", {"qk_layernorm": True}),
    "Phi-3": ("phi3", {}),
    "StableLM": ("stablelm", {"qk_layernorm": True}),
    "StarCoder2": ("starcoder2", {}),
    "Nemotron": ("nemotron", {}),
    "GPT-NeoX": ("gpt_neox", {}),
    "Cohere": ("cohere", {"use_qk_norm": True}),
    "GLM": ("glm", {}),
    "GLM-4": ("glm4", {}),
    "Helium": ("helium", {}),
    "ERNIE 4.5": ("ernie4_5", {}),
}
REFUSED = {  # family: the model, its config, what the error names, and why
    "Mistral": ("mistral", {}, "sliding_window 4096", "windows"),
    "Qwen2 (window)": ("qwen2", WINDOW, "sliding_window 4", "windows"),
    "Qwen3 (window)": ("qwen3", WINDOW, "sliding_window 4", "windows"),
    "OLMo 3": ("olmo3", {}, "a Olmo3Model", "windows"),
    "Llama (dynamic)": ("llama", rope("dynamic", factor=2.0), "rope_type dynamic", "angles change with the length"),
    "Phi-3 (longrope)": ("phi3", rope("longrope", **LONG), "rope_type longrope", "angles change with the length"),
    "Gemma 2": ("gemma2", {}, "a Gemma2Model", "windows, a soft cap of scores"),
    "Gemma 3": ("gemma3_text", {}, "a Gemma3TextModel", "windows, angles by layer"),
    "gpt-oss": ("gpt_oss", {}, "a GptOssModel", "windows, sinks"),
    "Cohere 2": ("cohere2", {}, "a Cohere2Model", "windows, layers without RoPE"),
    "SmolLM3": ("smollm3", {}, "a SmolLM3Model", "layers without RoPE"),
    "Qwen2-MoE": ("qwen2_moe", {}, "a Qwen2MoeModel", "the mask of a window is always made"),
    "HunYuan": ("hunyuan_v1_dense", {}, "a HunYuanDenseV1Model", "norms after RoPE"),
    "Persimmon": ("persimmon", {}, "a PersimmonModel", "positions do not reach its attention"),
    "Falcon": ("falcon", {}, "a FalconModel", "an attention of its own"),
    "GPT-J": ("gptj", {}, "a GPTJModel", "an attention of its own"),
    "CodeGen": ("codegen", {}, "a CodeGenModel", "an attention of its own"),
    "BLOOM": ("bloom", {}, "a BloomModel", "ALiBi, as of alibi_attention"),
    "MPT": ("mpt", {}, "a MptModel", "ALiBi, as of alibi_attention"),
}


@pytest.fixture(scope="module")
def rows() -> Iterator[Callable[..., None]]:
    """A function that adds a row to the table."""
    found: dict[str, dict[str, Any]] = {}
    yield lambda family, **cells: found.update(
        {family: {"release": transformers.__version__, "family": family, **cells}}
    )
    with Path("families.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found[name] for name in (*RIGHT, *RECIPES, *REFUSED) if name in found)


def make(kind: str, **fields: Any) -> Any:
    """A tiny model in evaluation, its attention eager."""
    torch.manual_seed(1)
    known = vars(AutoConfig.for_model(kind)) | {"num_hidden_layers": 0, "num_attention_heads": 0, "hidden_size": 0}
    config = AutoConfig.for_model(kind, **{name: size for name, size in SIZES.items() if name in known} | fields)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").eval()


TOKENS = torch.randint(3, 61, (2, 12), generator=torch.Generator().manual_seed(0))
PADDED = torch.ones(2, 12, dtype=torch.long)
PADDED[0, :3] = 0
PACKED = torch.tensor([[*range(5), *range(7)]] * 2)


def prompt(model: Any) -> torch.Tensor:
    return model(TOKENS).logits


def chunks(model: Any, cache: Any = None, ends: tuple[int, ...] = (0, 5, 9, 10, 12)) -> torch.Tensor:
    """Logits of the tokens handed in by parts, each continuing the cache."""
    found = []
    for start, end in pairwise(ends):
        found.append(model(TOKENS[:, start:end], cache=cache, use_cache=True))
        cache = found[-1].cache
    return torch.cat([each.logits for each in found], 1)


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest difference, over the largest value."""
    return float((found.double() - exact).abs().max() / exact.abs().max())


@torch.no_grad()
def beside_eager(model: Any, call: Callable[[Any], torch.Tensor] = prompt) -> tuple[float, float]:
    """The error of a call of the fused model, and what is allowed."""
    exact = call(copy.deepcopy(model).double())
    allowed = SLACK * distance(call(model), exact)
    return distance(call(fuse(model)), exact), allowed


@pytest.mark.parametrize("family", RIGHT)
@torch.no_grad()
def test_family_is_right(family: str, rows: Callable[..., None]) -> None:
    kind, fields = RIGHT[family]
    model = make(kind, **fields)
    exact, single = (prompt(each) for each in (copy.deepcopy(model).double(), model))
    allowed = SLACK * distance(single, exact)
    fuse(model)
    error = max(distance(found, exact) for found in (prompt(model), chunks(model)))
    rotary = model.base_model.rotary_emb
    cos, _ = rotary.rotary(torch.zeros(1), torch.arange(9)[None])
    width, attention = cos.shape[-1], next(each for each in model.modules() if hasattr(each, NAME))
    half = ":d/2" if torch.equal(cos[0, :, : width // 2], rotary.cos[:9]) else "::2"
    arguments = f"cos[0, :, {half}], interleaved={rotary.interleaved}"
    arguments += ", rotary_dim=d" * (width < HDIM)
    arguments += ", scale=scaling" * (not math.isclose(attention.scaling, HDIM**-0.5))
    rows(family, arguments=arguments, max_rel_err=f"{error:.1e}", allowed_rel_err=f"{allowed:.1e}")
    assert error <= allowed
    for mistake in ({"attention_mask": PADDED}, {"position_ids": PACKED}, {"output_attentions": True}):
        with pytest.raises(ValueError, match=r"fused_rope got .*; it takes "):
            model(TOKENS, **mistake)
    rotary.interleaved = not rotary.interleaved
    assert distance(prompt(model), exact) > 100 * allowed, "other pairs are as right: the trial says nothing"


def test_every_decoder_that_fuse_names_is_tried() -> None:
    tried = {type(make(kind, **fields).base_model).__name__ for kind, fields in RIGHT.values()}
    assert tried == {f"{name}Model" for name in INTERLEAVED}


@pytest.mark.parametrize("family", REFUSED)
def test_family_is_refused(family: str, rows: Callable[..., None]) -> None:
    kind, fields, says, why = REFUSED[family]
    rows(family, refused=why)
    with torch.device("meta"):
        model = make(kind, **fields)
    with pytest.raises(ValueError, match=f"fused_rope got .*{re.escape(says)}; it takes "):
        fuse(model)


# ---------------------------------------------------------------- families that the op takes, and `fuse` does not


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of q and k that are rotated."""
    hidden = torch.ones(q.shape[2], k.shape[2]).triu(1).bool()
    return (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf).softmax(-1) @ v


def mrope(module: Any, name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[Any, ...]:
    sections = {"mrope_section": [4, 4, 4], "rope_type": "default", "rope_theta": 10_000.0}
    config = AutoConfig.for_model(name, hidden_size=96, num_attention_heads=4, head_dim=24, rope_parameters=sections)
    rotary = next(
        getattr(module, each) for each in dir(module) if re.fullmatch(r"Qwen\dVL(Text)?RotaryEmbedding", each)
    )
    b, n = len(q), q.shape[2]
    positions = torch.randint(9, (3, b, n), generator=torch.Generator().manual_seed(2))
    cos, sin = rotary(config)(q, positions)
    rows = {"cos": cos.flatten(0, 1)[:, :12].float(), "sin": sin.flatten(0, 1)[:, :12].float()}
    found = rope_attention(q.float(), k.float(), v.float(), **rows, positions=torch.arange(b * n).view(b, n),
                           interleaved=False, causal=True)  # fmt: skip
    return found, *module.apply_rotary_pos_emb(q, k, cos, sin), v


def latent(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[Any, ...]:
    """Of 24 dims of q and k the last 8 are rotated; v has 16."""
    config = AutoConfig.for_model("deepseek_v3", hidden_size=96, num_attention_heads=4, qk_rope_head_dim=8)
    cos, sin = deepseek.DeepseekV3RotaryEmbedding(config)(q, torch.arange(q.shape[2])[None])
    turned = deepseek.apply_rotary_pos_emb_interleave(q[..., 16:], k[..., 16:], cos, sin)
    first = [torch.cat((x[..., 16:], x[..., :16]), -1).float() for x in (q, k)]
    tables = {"cos": cos[0, :, :4].float(), "sin": sin[0, :, :4].float()}
    v = torch.nn.functional.pad(v[..., :16], (0, 8))
    found = rope_attention(*first, v.float(), **tables, rotary_dim=8, interleaved=True, causal=True)
    return found, *(torch.cat((x[..., :16], part), -1) for x, part in zip((q, k), turned)), v


def complex_tables(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[Any, ...]:
    config = AutoConfig.for_model("llama4_text", hidden_size=96, num_attention_heads=4, head_dim=24)
    turn = llama4.Llama4TextRotaryEmbedding(config)(q, torch.arange(q.shape[2])[None])
    turned = [x.transpose(1, 2) for x in llama4.apply_rotary_emb(q.transpose(1, 2), k.transpose(1, 2), turn)]
    tables = {"cos": turn.real[0].contiguous(), "sin": turn.imag[0].contiguous()}
    found = rope_attention(q.float(), k.float(), v.float(), **tables, interleaved=True, causal=True)
    return found, *turned, v


OF_MROPE = (
    "cos.flatten(0, 1)[:, :d/2], positions=arange(b * n).view(b, n), interleaved=False", "three axes of positions",
)  # fmt: skip
RECIPES = {  # family: its arguments, why `fuse` refuses it, and what calls the op and rotates q and k as it does
    "Qwen2-VL": (*OF_MROPE, lambda *x: mrope(qwen2_vl, "qwen2_vl_text", *x)),
    "Qwen3-VL": (*OF_MROPE, lambda *x: mrope(qwen3_vl, "qwen3_vl_text", *x)),
    "DeepSeek-V3": (
        "cos[0, :, :d/2], rotary_dim=d, interleaved=True; q, k with the rotary part first, v padded with zeros",
        "keys are cached compressed",
        latent,
    ),
    "Llama 4": ("freqs.real[0], freqs.imag[0], interleaved=True", "layers without RoPE, chunks", complex_tables),
}


@pytest.mark.parametrize("family", RECIPES)
def test_recipe_is_right(family: str, rows: Callable[..., None]) -> None:
    arguments, why, recipe = RECIPES[family]
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 4, 9, 24, generator=generator).double() for _ in range(3))
    found, *rotated = recipe(q, k, v)
    exact = eager(*rotated)
    error = distance(found, exact)
    allowed = SLACK * distance(eager(*(x.float() for x in rotated)), exact)
    cells = {"arguments": arguments, "max_rel_err": f"{error:.1e}", "allowed_rel_err": f"{allowed:.1e}"}
    rows(family, **cells, refused=why)
    assert error <= allowed


# ---------------------------------------------------------------- ways to call a fused model


def static(model: Any) -> torch.Tensor:
    return chunks(model, StaticCache(config=model.config, max_cache_len=20))


def generated(model: Any, **how: Any) -> torch.Tensor:
    """The logits of generated tokens."""
    how = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True, **how}
    return torch.stack(model.generate(TOKENS, **how).logits)


def gradient(model: Any) -> torch.Tensor:
    model.zero_grad()
    with torch.enable_grad():
        model(TOKENS, labels=TOKENS).loss.backward()
    return model.model.layers[0].self_attn.k_proj.weight.grad.clone()


def masked(**how: Any) -> Callable[[Any], torch.Tensor]:
    return lambda model: model(TOKENS, **how).logits


def continued(model: Any, **how: Any) -> torch.Tensor:
    return model(TOKENS[:, 8:], cache=model(TOKENS[:, :8]).cache, **how).logits


CALLS = {
    "a mask without padding": masked(attention_mask=torch.ones(2, 12, dtype=torch.long)),
    "positions from 0 on": masked(position_ids=torch.arange(12)[None]),
    "hidden states": lambda model: model(TOKENS, output_hidden_states=True).hidden_states[1],
    "embeddings": lambda model: model(inputs_embeds=model.get_input_embeddings()(TOKENS)).logits,
    "a growing cache": lambda model: chunks(model, DynamicCache()),
    "a static cache": static,
    "a mask and a cache": lambda model: continued(model, attention_mask=torch.ones(2, 12)),
    "generate": generated,
    "generate with beams": lambda model: generated(model, num_beams=3),
    "generate by chunks": lambda model: generated(model, prefill_chunk_size=5),
    "generate with a static cache": lambda model: generated(model, cache_implementation="static", disable_compile=True),
    "gradients": gradient,
}
MISTAKES = {  # what is called, and what of it the error names
    "padding on the left": (masked(attention_mask=PADDED), "attention_mask (2, 12) that hides some of 12 keys"),
    "padding on the right": (masked(attention_mask=PADDED.flip(1)), "attention_mask (2, 12) that hides"),
    "padding, generated": (lambda model: generated(model, attention_mask=PADDED), "attention_mask (2, 12) that hides"),
    "packed sequences": (masked(position_ids=PACKED, use_cache=False), "of packed sequences"),
    "packed sequences, cached": (masked(position_ids=PACKED), "position_ids 0 to 6 for 12 keys"),
    "later positions": (masked(position_ids=torch.arange(3, 15)[None]), "position_ids 3 to 14 for 12 keys"),
    "a mask of one's own": (masked(attention_mask=torch.zeros(2, 1, 12, 12)), "attention_mask (2, 1, 12, 12) of"),
    "a mask of new tokens alone": (
        lambda model: continued(model, attention_mask=torch.ones(2, 4)),
        "attention_mask (2, 4) that hides some of 12 keys",
    ),
    "no causal mask": (masked(is_causal=False), "a mask of a window, of packed sequences or of one's own"),
    "weights": (masked(output_attentions=True), "output_attentions=True"),
    "a head mask": (masked(head_mask=torch.ones(2, 4)), "head_mask="),
    "dropout": (lambda model: model.train()(TOKENS), "dropout=0.1"),
    "more tokens than positions": (lambda model: model(TOKENS.repeat(1, 6)), "cos has 64 rows; it must have 72"),
}


@pytest.mark.parametrize("way", CALLS)
def test_call_is_right(way: str) -> None:
    error, allowed = beside_eager(make("llama"), CALLS[way])
    assert error <= allowed


@pytest.mark.parametrize("mistake", MISTAKES)
def test_call_is_refused(mistake: str) -> None:
    call, says = MISTAKES[mistake]
    with pytest.raises(ValueError, match=re.escape(says)):
        call(fuse(make("llama", attention_dropout=0.1)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_half_precision_is_as_near_to_float32_as_eager_attention(dtype: torch.dtype) -> None:
    model = make("llama")
    exact = prompt(copy.deepcopy(model).double())
    allowed = SLACK * distance(prompt(copy.deepcopy(model).to(dtype)), exact)
    assert distance(prompt(fuse(copy.deepcopy(model).to(dtype))), exact) <= allowed
    assert distance(prompt(fuse(model).to(dtype)), exact) <= allowed


def test_compiled_model_is_right_and_refuses() -> None:
    model = make("llama", num_hidden_layers=1)
    error, allowed = beside_eager(model, lambda model: prompt(torch.compile(model, backend="eager")))
    assert error <= allowed
    with pytest.raises(ValueError, match="position_ids 3 to 14"):
        torch.compile(model, backend="eager")(TOKENS, position_ids=torch.arange(3, 15)[None])


@torch.no_grad()
def test_each_model_has_angles_of_its_own() -> None:
    models = [make("llama", **rope("default", rope_theta=theta)) for theta in (100.0, 10_000.0)]
    exact = [prompt(model) for model in models]
    for model in models:
        fuse(fuse(model))
    for model, logits in zip(models, exact):
        torch.testing.assert_close(prompt(model), logits, rtol=0, atol=1e-3)
        torch.testing.assert_close(prompt(copy.deepcopy(model)), logits, rtol=0, atol=1e-3)


@torch.no_grad()
def test_model_that_shares_a_config_with_a_fused_one_is_refused() -> None:
    model = make("llama")
    other = LlamaModel(model.config)
    fuse(model)
    with pytest.raises(ValueError, match="a layer LlamaAttention that is not causal, or not of a fused model"):
        other(TOKENS)


@torch.no_grad()
def test_other_implementation_and_saved_files_are_eager(tmp_path: Path) -> None:
    model = make("llama")
    exact = prompt(model)
    fuse(model).save_pretrained(tmp_path)
    model.set_attn_implementation("eager")
    assert torch.equal(prompt(model), exact)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert torch.equal(prompt(loaded), exact)


@torch.no_grad()
def test_cache_of_other_keys_is_refused() -> None:
    model = make("llama")
    before = model(TOKENS[:, :8]).cache
    fuse(model)
    between = model(TOKENS[:, :8]).cache
    with pytest.raises(ValueError, match="a cache that was filled by another attention"):
        model(TOKENS[:, 8:], cache=before)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="a cache that was filled by another attention"):
        model(TOKENS[:, 8:], cache=between)


def test_foreign_class_and_undeclared_field_are_refused() -> None:
    with pytest.raises(ValueError, match="a config with is_causal; it takes fields that LlamaConfig declares"):
        fuse(make("llama", is_causal=False))
    model = make("llama")
    model.model.layers[1].self_attn.__class__ = type("LlamaAttention", (type(model.model.layers[1].self_attn),), {})
    with pytest.raises(ValueError, match="a Llama model with another rotary_emb or attention"):
        fuse(model)
    with pytest.raises(ValueError, match="a LlamaModel; it takes decoders of transformers"):
        fuse(type("LlamaModel", (LlamaModel,), {})(model.config))
    with pytest.raises(ValueError, match="a NoneType; it takes decoders of transformers"):
        fuse(None)
