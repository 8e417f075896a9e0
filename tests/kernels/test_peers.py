"""The peers of V8: they do the whole job, or say why they do not."""

import sys
from pathlib import Path

import pytest
import torch

from kernels import Problem, Unsupported, version
from kernels.checking.reference import reference_of
from kernels.peers import flash3, one_graph, pytorch, triton

LATE = {"seq_q": 9, "seq_k": 20, "hdim": 32, "causal": True}  # queries behind key 0, whose mask is no square


def problem(**fields) -> Problem:
    return Problem(**{"family": "rope", "batch": 2, "heads": 2, "rotary_dim": 16, **LATE, **fields})


def attends(name: str, asked: Problem) -> bool:
    case = reference_of(asked, "sharp")
    q, k, v = (torch.from_numpy(case.inputs[which]) for which in "qkv")
    call = version(name)(asked).call
    return all(case.compare(call(q, k, v)).status == "ok" for _ in range(2))  # the second call has its tables


OFFSETS = [
    {"seq_k": 9, "kv_heads": 1},
    {"heads": 4, "kv_heads": 2, "seq_q": 3, "q_offset": 2},
    {"heads": 4, "kv_heads": 2, "causal": False, "seq_q": 1, "rotary_dim": 32},
]


@pytest.mark.parametrize(
    ("name", "fields", "compiles"),
    [
        *(pytest.param(name, {"heads": 4, "kv_heads": 2}, True, marks=pytest.mark.deep)
          for name in ("torch_rope_one_graph", "torch_rope_sdpa_one_graph")),
        *((f"torch_rope_{name}", fields, False) for fields in OFFSETS
          for name in ("one_graph", "sdpa_one_graph")),
    ],
)  # fmt: skip
def test_one_graph_is_attention_at_every_offset(monkeypatch, name: str, fields: dict, compiles: bool) -> None:
    if not compiles:
        monkeypatch.setattr(one_graph, "compiled", lambda function, mode: function)
    assert attends(name, problem(**fields))


PLAIN = ("torch_sdpa", "torch_rope_compiled_sdpa", "torch_rope_compiled_sdpa_math", "torch_matmul_softmax")
TABLES = [("torch_alibi_sdpa", "computed"), *((v, "computed") for v in (*PLAIN, "torch_sinusoidal_compiled_sdpa"))]
TABLES += [("torch_learned_compiled_sdpa", table) for table in ("float32", "float16", "float8")]


@pytest.mark.parametrize(("name", "table"), TABLES)
@pytest.mark.parametrize("causal", [False, True])
def test_peers_do_the_whole_job(name: str, table: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncompiled; a forgotten embedding or mask is far outside what fp32 allows."""
    monkeypatch.setattr(pytorch, "compiled", lambda function: function)
    family = version(name).family
    fields = {"seq_q": 20, "causal": causal and name != "torch_matmul_softmax", "table": table}
    if family in ("alibi", "learned"):
        fields |= {"heads": 6, "kv_heads": 3, "seq_q": 5 if family == "alibi" else 20}
    assert attends(name, problem(family=family, rotary_dim=16 if family == "rope" else 0, **fields))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("fields", [{"seq_q": 4, "seq_k": 900}, {"seq_q": 1, "seq_k": 40, "causal": False}], ids=str)
def test_half_precision_does_not_reach_the_angles(monkeypatch, dtype: str, fields: dict) -> None:
    monkeypatch.setattr(one_graph, "compiled", lambda function, mode: function)
    asked = problem(heads=4, kv_heads=2, dtype=dtype, **fields)
    case = reference_of(asked, "sharp")
    q, k, v = (torch.from_numpy(case.inputs[which]).to(getattr(torch, dtype)) for which in "qkv")
    exact, made = case.expected, version("torch_rope_half_one_graph")(asked).call(q, k, v).double()
    # keys that are rounded again move scores by some roundings of a score's size, which is 4 at most times 4
    assert float((made - exact).abs().max()) <= 16 * torch.finfo(q.dtype).eps * float(v.abs().max())


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("torch_rope_one_graph", {"seq_k": 5}, "q_offset is -4; it must be 0 or more"),
        ("torch_rope_sdpa_one_graph", {"seq_k": 5}, "q_offset is -4; it must be 0 or more"),
        ("triton_rope_sliced", {"hdim": 160}, "hdim is 160; slices of a head dim take a multiple of 64"),
        ("triton_rope_sliced", {"dtype": "float16"}, "dtype is float16; this peer takes float32"),
        ("triton_rope_sliced", {"hdim": 64, "seq_k": 5}, "q_offset is -4; it must be 0 or more"),
        ("flashinfer_rope", {}, "dtype is float32; FlashInfer takes float16"),
        ("flashinfer_rope", {"dtype": "float16"}, "hdim is 32; FlashInfer takes 64, 128, 256"),
        ("flashinfer_rope", {"dtype": "float16", "hdim": 64}, "rotary_dim is 16 and hdim 64"),
        ("flashinfer_rope", {"dtype": "float16", "hdim": 64, "rotary_dim": 64}, "batch is 2; .* takes 1"),
        ("flashinfer_rope", {"dtype": "float16", "hdim": 64, "rotary_dim": 64, "batch": 1}, "set .* FLASHINFER"),
        ("flash3_rope", {"dtype": "bfloat16"}, "rotary_dim is 16 and hdim 32; this peer rotates all dims"),
        ("flash3_rope", {"dtype": "float16", "rotary_dim": 32}, "dtype is float16; FlashAttention 3 takes bfloat16"),
        ("flash3_rope", {"dtype": "bfloat16", "hdim": 264, "rotary_dim": 264}, "hdim is 264; .* of 8 up to 256"),
        ("flash3_rope", {"dtype": "bfloat16", "rotary_dim": 32, "q_offset": 0}, "q_offset is 0; it must be 11"),
        ("flash3_rope", {"dtype": "bfloat16", "rotary_dim": 32}, "set FLASH3"),
    ],
)
def test_peer_names_what_it_does_not_take(name: str, fields: dict, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        version(name)(problem(**fields))


# Its documented layout and mask, in float32.
INTERFACE = """
import torch

def flash_attn_func(q, k, v, softmax_scale, causal, num_splits):
    q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
    sees = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2]) if causal else None
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, sees, scale=softmax_scale, enable_gqa=True).transpose(1, 2).bfloat16()
"""


@pytest.fixture
def flash3_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of FlashAttention 3's interface, which FLASH3 names."""
    (tmp_path / "fa3_fwd_interface.py").write_text(INTERFACE)
    monkeypatch.setenv("FLASH3", str(tmp_path))
    monkeypatch.setitem(sys.modules, "fa3_fwd_interface", None)
    del sys.modules["fa3_fwd_interface"]
    return tmp_path


@pytest.mark.parametrize("name", ["flash3_rope", "flash3"])
@pytest.mark.parametrize("fields", [{"kv_heads": 2}, {"kv_heads": 1, "causal": False, "q_offset": 3}], ids=str)
def test_flash_attention_3_gets_rotated_tensors_in_its_layout(monkeypatch, flash3_package, name, fields) -> None:
    monkeypatch.setattr(flash3, "compiled", lambda function, mode: function)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    family = version(name).family
    asked = problem(family=family, heads=4, dtype="bfloat16", rotary_dim=32 if family == "rope" else 0, **fields)
    case = reference_of(asked, "sharp")
    q, k, v = (torch.from_numpy(case.inputs[which]).bfloat16() for which in "qkv")
    out = version(name)(asked).call(q, k, v)
    assert out.shape == q.shape and case.compare(out).status == "ok"


def test_row_of_keys_that_fills_no_tile_is_masked() -> None:
    for seq_k, masked in ((64, False), (48, True), (33, True)):
        asked = problem(causal=False, seq_q=1, seq_k=seq_k)
        q, k, v = (torch.zeros(shape) for shape in (asked.q_shape, asked.kv_shape, asked.kv_shape))
        assert triton.arguments(asked, q, k, v, ())[1]["MASKED"] == masked


def test_without_triton_its_peer_is_registered_and_refuses(monkeypatch) -> None:
    monkeypatch.setattr(triton, "triton", None)
    triton._tuned.cache_clear()
    with pytest.raises(Unsupported, match="Triton is not installed"):
        version("triton_rope_sliced")(problem(hdim=64)).call(*(torch.zeros(1) for _ in "qkv"))
