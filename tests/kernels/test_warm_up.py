"""Kernels that `warm_up` compiles: all kernels of a model's calls, few of them, in other processes."""

import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_driver import Driver, card_of

from kernels import Unsupported, alibi_attention, attention, rope_attention, warm_up
from kernels.op import warm as classes
from kernels.runtime import cache
from kernels.runtime import compile as compiler

LLAMA = {"heads": 32, "kv_heads": 8, "hdim": 128, "interleaved": False, "causal": True}
PROMPTS = (*range(9, 2049, 3), *range(2049, 131_073, 2999))


card = card_of(Driver)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 12), (torch.bfloat16, 4)])
def test_model_has_few_kernels(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, most: int) -> None:
    monkeypatch.setattr(compiler, "is_cached", lambda kernel, target: True)
    assert 2 < warm_up(**LLAMA, dtype=dtype, seq_q=range(1, 9), target="sm_90") <= 5
    assert 2 < warm_up(**LLAMA, dtype=dtype, seq_q=PROMPTS, target="sm_90") <= most


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_cross_attention_to_fewer_keys_than_queries_is_warmed(card: Driver, dtype: torch.dtype) -> None:
    count = warm_up(8, 8, 64, dtype=dtype, seq_q=4096, seq_k=77, op=attention, device="cpu")
    warm = card.loaded
    assert len(warm) == count > 0
    q, k = torch.zeros(1, 8, 4096, 64, dtype=dtype), torch.zeros(1, 8, 77, 64, dtype=dtype)
    attention(q, k, k, fallback=False)
    assert card.loaded == warm


@pytest.mark.parametrize(("heads", "kv_heads", "hdim"), [(12, 12, 64), (8, 1, 256), (16, 16, 1024), (4, 4, 2048)])
def test_prompts_of_any_model_have_few_kernels(monkeypatch, heads: int, kv_heads: int, hdim: int) -> None:
    monkeypatch.setattr(compiler, "is_cached", lambda kernel, target: True)
    how: dict[str, Any] = {"causal": True, "seq_q": PROMPTS[::9], "target": "sm_90"}
    assert all(0 < warm_up(heads, kv_heads, hdim, dtype=torch.float32, batch=n, **how) <= 12 for n in (1, 8))


@pytest.mark.parametrize(
    ("op", "dtype", "given"),
    [
        (rope_attention, torch.float32, ()),
        (rope_attention, torch.bfloat16, ("lengths",)),
        (rope_attention, torch.float16, ("tables", "positions")),
        (alibi_attention, torch.float16, ()),
        (attention, torch.float32, ()),
    ],
)
def test_warm_up_leaves_nothing_to_compile(card: Driver, op: Any, dtype: torch.dtype, given: tuple[str, ...]) -> None:
    most, batches, how = 400, (1, 3), {"causal": True, "interleaved": False}
    flags = {name: True for name in given}
    count = warm_up(8, 2, 64, dtype=dtype, seq_q=range(1, most), batch=batches, op=op, device="cpu", **how, **flags)
    warm = card.loaded
    assert len(warm) == len(set(warm)) == count
    if op is not rope_attention:
        how.pop("interleaved")
    dice = random.Random(0)
    for _ in range(60):
        seq_q, batch = dice.choice((dice.randint(1, 8), dice.randint(9, most - 1))), dice.choice(batches)
        seq_k = seq_q if seq_q > 8 else dice.randint(8, 5000)
        q, k = torch.zeros(batch, 8, seq_q, 64, dtype=dtype), torch.zeros(batch, 2, seq_k, 64, dtype=dtype)
        arguments: dict[str, Any] = {}
        if "lengths" in given:
            arguments["lengths"] = torch.full((batch,), seq_k, dtype=torch.int32)
        if "tables" in given:
            arguments |= {"cos": torch.ones(5000, 32), "sin": torch.zeros(5000, 32)}
            arguments["positions"] = torch.arange(5000)
        op(q, k, k, **how, **arguments, fallback=False)
    assert card.loaded == warm


def test_other_processes_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    monkeypatch.setattr(classes, "FEW", 0)
    monkeypatch.delattr(compiler, "_numba_ptx")  # with which this one would
    assert warm_up(2, 2, 64, dtype=torch.float16, target="sm_90") == 2
    assert len(list(tmp_path.glob("*/*.cubin"))) == 2


def test_sizes_of_numpy_and_single_ones_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "is_cached", lambda kernel, target: True)
    sizes = {"rotary_dim": np.int64(64), "seq_q": np.int64(100), "batch": np.array([1, 2]), "base": np.float32(1e4)}
    count = warm_up(np.int64(8), np.int32(2), np.int64(128), **sizes, causal=np.bool_(True), target="sm_90")
    assert count == warm_up(8, 2, 128, rotary_dim=64, seq_q=[100], batch=(1, 2), causal=True, target="sm_90") > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"op": partial(rope_attention, causal=True)}, "op is functools.partial.*; it must be rope_attention, "),
        ({"hdim": 64.0}, r"hdim is 64\.0; it must be an integer"),
        ({"heads": "8"}, "heads is '8'; it must be an integer"),
        ({"seq_q": "many"}, "seq_q is 'm'; it must be an integer"),
        ({"batch": torch.tensor([1])}, "batch is tensor.*; it must be an integer"),
        ({"causal": 2}, "causal is 2; it must be True or False"),
        ({"base": "10000"}, "base is '10000'; it must be a number"),
        ({"base": 0.5}, r"base is 0\.5; it must be 1 or more"),
        ({"heads": 0}, "heads is 0"),
        ({"target": "hopper"}, "target is 'hopper'; allowed: sm_75"),
        ({"target": "hopper", "seq_q": ()}, "target is 'hopper'; allowed: sm_75"),
        ({"device": "cuda:1"}, "device is cuda:1 and target is sm_90; give one of both"),
        ({"op": attention, "rotary_dim": 7}, "rotary_dim is given; attention rotates nothing"),
        ({"op": alibi_attention, "tables": True}, "tables is given; alibi_attention rotates nothing"),
        ({"op": attention, "positions": True}, "positions is given; attention rotates nothing"),
        ({"target": None, "device": "cpu"}, "device is cpu; it must be a CUDA device"),
    ],
)
def test_wrong_argument_of_warm_up_is_named_with_what_is_allowed(changed: dict[str, Any], message: str) -> None:
    given = {"heads": 8, "kv_heads": 2, "hdim": 64, "target": "sm_90"} | changed
    with pytest.raises((TypeError, ValueError), match=message):
        warm_up(**given)


@pytest.mark.deep
def test_python_without_an_executable_compiles_in_its_own_process(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    monkeypatch.setattr(classes, "FEW", 0)
    monkeypatch.setattr(sys, "executable", None)
    assert warm_up(2, 2, 64, dtype=torch.float16, target="sm_90") == 2


def test_model_that_no_kernel_takes_is_refused() -> None:
    with pytest.raises(Unsupported, match="hdim is 1000"):
        warm_up(8, 8, 1000, dtype=torch.float16, target="sm_90")
    with pytest.raises(ValueError, match="dtype is 'torch"):
        warm_up(8, 8, 64, dtype=torch.float64, target="sm_90")
