"""Calls of the ops to the kernels of kernels/flash, on a card that is made up: which takes them, what it is handed."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from made_up_driver import FlashCard, card_of
from ops_reference import EPS, allowed_of, expected_of, normal, right_calls

from kernels import Unsupported, alibi_attention, attention, rope_attention
from kernels.flash.prompts import plan
from kernels.flash.prompts.float32_plan import prompt32_call
from kernels.op import dispatch

card = card_of(FlashCard)


def error_of(out: torch.Tensor, name: str, tensors: tuple[torch.Tensor, ...], how: dict[str, Any]) -> float:
    return float(np.abs(out.double().numpy() - expected_of(name, tensors, how)).max())


def takes(step: int, name: str, q: torch.Tensor, given: dict[str, Any], prompts: bool = True) -> bool:
    """Whether kernels of prompts, or else of decode, take a call; `step`: of dims that are half-split."""
    halves = not given.get("interleaved", True) and given["rotary_dim"] % step
    return (q.shape[2] > 8) == prompts and q.shape[3] % (16 if prompts else 8) == 0 and not halves


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:kernels copies")
def test_random_decode_calls_reach_the_kernels_whole(card: FlashCard, dtype: torch.dtype) -> None:
    of_decode = partial(takes, 4 if dtype == torch.float32 else 8, prompts=False)
    taken = right_calls(range(600, 720), of_decode, lengths=3, dtype=dtype)
    assert taken == len(card.launched) > 30 and all(given["combined"] for given in card.launched)
    assert {given["splits"] > 1 for given in card.launched} == {True, False}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wgmma", [False, True])
@pytest.mark.filterwarnings("ignore:kernels copies")
def test_random_prompts_reach_the_kernels_whole(card: FlashCard, monkeypatch, dtype: torch.dtype, wgmma: bool) -> None:
    monkeypatch.setattr(plan, "pays_on_wgmma", lambda *_: wgmma)
    taken = right_calls(range(900, 1200), partial(takes, 8), lengths=3, dtype=dtype)
    assert taken == len(card.launched) > 10 and all(given["combined"] for given in card.launched)
    on_wgmma = [each["kernel"].split("_")[1] != "mma" for each in card.launched]
    assert on_wgmma == [wgmma and not each["by_length"] for each in card.launched]


@pytest.mark.filterwarnings("ignore:kernels copies")
def test_float32_prompts_reach_the_kernels_of_parts_whole(card: FlashCard, monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "chosen", prompt32_call)  # also where V8 is faster
    taken = right_calls(range(1200, 1700), lambda name, *call: name != "alibi_attention" and takes(4, name, *call))
    assert taken == len(card.launched) > 10


# Chunks of queries over many keys are split like decode; wide heads are spread over warps and blocks.
LENGTHS = {"lengths": torch.tensor([700], dtype=torch.int32)}
HALVES = {"interleaved": False, "rotary_dim": 32, "causal": True}
SPLIT: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *(("chunk", (1, 2, 1, 20, 900, 64), how) for how in ({}, HALVES, LENGTHS, HALVES | LENGTHS)),
    *(("wide", (2, 4, 2, 3, 60, hdim), {"lengths": torch.tensor([60, 7], dtype=torch.int32), "causal": True})
      for hdim in (512, 1024, 4096)),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "sizes", "how"), SPLIT)
def test_float32_calls_are_split_and_combined(card: FlashCard, kernel: str, sizes: tuple[int, ...], how: Any) -> None:
    batch, heads, kv_heads, seq_q, seq_k, hdim = sizes
    q, k = normal(batch, heads, seq_q, hdim), normal(batch, kv_heads, seq_k, hdim)
    out = rope_attention(q, k, k, **how, fallback=False)
    assert error_of(out, "rope_attention", (q, k, k), how) <= allowed_of((q, k, k), how)
    (given,) = card.launched
    assert given["kernel"].startswith(kernel) and given["combined"] and (given["splits"] > 1 or kernel == "wide")


@pytest.mark.filterwarnings("error")
def test_growing_cache_loads_two_kernels_and_is_read_where_it_lies(card: FlashCard) -> None:
    q, cache = normal(1, 8, 1, 64, dtype=torch.float16), normal(1, 2, 3000, 64, dtype=torch.float16)
    for seq_k in range(1, 3001, 307):
        rope_attention(q, cache[:, :, :seq_k], cache[:, :, :seq_k], interleaved=False)
        assert (card.launched[-1]["k"], card.launched[-1]["seq_k"]) == (cache.data_ptr(), seq_k)
    assert len(card.loaded) == 2


def test_lengths_are_read_by_each_launch(card: FlashCard) -> None:
    q, k = normal(3, 4, 2, 64), normal(3, 2, 50, 64)
    lengths = torch.tensor([50, 0, 7], dtype=torch.int32)
    assert not rope_attention(q, k, k, lengths=lengths)[1].any()
    lengths[1] = 20
    out = rope_attention(q, k, k, lengths=lengths)
    torch.testing.assert_close(out[1:2], rope_attention(q[1:2], k[1:2, :, :20], k[1:2, :, :20]))
    assert card.launched[0]["lengths"] == card.launched[1]["lengths"] == lengths.data_ptr()


def test_repeated_call_has_its_own_addresses(card: FlashCard, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, empty = [], torch.empty  # so that no workspace lies where another lay
    monkeypatch.setattr(torch, "empty", lambda *size, **how: kept.append(empty(*size, **how)) or kept[-1])
    q, k = normal(2, 4, 1, 64), normal(2, 2, 300, 64)
    for step in range(3):
        lengths = torch.tensor([200 + step, 300], dtype=torch.int32)
        k = k.clone()
        rope_attention(q, k, k, lengths=lengths)
        given = card.launched[-1]
        addresses = (k.data_ptr(), lengths.data_ptr(), kept[-1].data_ptr())
        assert (given["k"], given["lengths"], given["part"]) == addresses
    assert len({given["part"] for given in card.launched}) == 3


def test_blocks_that_stay_take_more_tiles_than_multiprocessors_and_many_keys_are_split(card: FlashCard) -> None:
    """The card has four: tiles of 32 queries fill it, or splits of keys do. No block of 256 dims stays."""
    for heads, seq_q, seq_k, hdim, name, splits in (
        (2, 64, 64, 64, "mma", 1), (2, 65, 65, 64, "persistent", 1), (1, 16, 1100, 64, "mma", 5),
        (1, 16, 200, 128, "mma", 4), (1, 300, 1100, 128, "persistent", 1), (1, 128, 1100, 128, "wgmma", 3),
        (4, 65, 65, 256, "wgmma", 1), (1, 9, 1100, 256, "wgmma", 4),
    ):  # fmt: skip
        q, k = normal(1, heads, seq_q, hdim, dtype=torch.float16), normal(1, heads, seq_k, hdim, dtype=torch.float16)
        rope_attention(q, k, k, fallback=False)
        given = card.launched[-1]
        assert (given["kernel"].split("_")[1], given["splits"]) == (name, splits)


def test_tensor_that_no_map_describes_goes_to_mma(card: FlashCard) -> None:
    q = normal(2, 8, 70, 64, dtype=torch.bfloat16)
    k = normal(2, 1, 90, 64, dtype=torch.bfloat16)
    expanded = k.expand(2, 8, 90, 64)
    whole = expanded.contiguous()
    for tensors, name in (
        ((q, k, k), "wgmma"), ((q, expanded, expanded), "mma"), ((q, k.clone(), k), "wgmma"),
        ((q, expanded, whole), "mma"), ((q, whole, expanded), "mma"), ((q, whole, whole), "persistent"),
    ):  # fmt: skip
        made = alibi_attention(*tensors, fallback=False)
        assert card.launched[-1]["kernel"].split("_")[1] == name
        assert error_of(made, "alibi_attention", tensors, {}) < EPS[q.dtype] * float(k.abs().max())


@pytest.mark.filterwarnings("ignore:kernels copies")
@pytest.mark.parametrize("call", [attention, rope_attention])
def test_first_call_with_rows_that_no_map_takes_is_copied(card: FlashCard, call: Any) -> None:
    q = normal(1, 8, 70, 64, dtype=torch.float16)
    far = torch.cat((q[..., :1], q), -1)[..., 1:]
    made = call(q, far, far, fallback=False)
    assert error_of(made, call.__name__, (q, q, q), {}) < 4 * EPS[q.dtype] * float(q.abs().max())


@pytest.mark.parametrize("wgmma", [False, True])
def test_repeated_prompt_has_its_own_tensors(card: FlashCard, monkeypatch, wgmma: bool) -> None:
    monkeypatch.setattr(plan, "pays_on_wgmma", lambda *_: wgmma)
    q = normal(1, 8, 70, 64, dtype=torch.float16)
    kept = [normal(1, 8, 90, 64, dtype=torch.float16) + step for step in range(2)]
    for k in (*kept, *kept):
        for call in (attention, rope_attention):
            error = error_of(call(q, k, k, fallback=False), call.__name__, (q, k, k), {})
            assert error < 4 * EPS[q.dtype] * float(k.abs().max())
    assert len(card.launched) == 8 and len(card.rotated) == 4


@pytest.mark.parametrize(
    ("sizes", "how", "message"),
    [  # prompts, and below them decode
        ((4, 9, 72), {}, "hdim is 72; it must be a multiple of 16 up to 256"),
        ((4, 9, 64), {"interleaved": False, "rotary_dim": 12}, "rotary_dim is 12; it must be a multiple of 8"),
        ((4, 9, 64), {"scale": -0.5}, "scale is -0.5; .* take one that is above 0"),
        ((4, 9, 64), {"scale": 1e-50}, "scale is 1e-50; .* take one that is above 0 in float32"),  # -inf * 0 is NaN
        ((4, 9, 64), {"q_offset": 2**20}, "positions go up to 1,048,584"),
        ((4, 9, 72), {"dtype": torch.float32, "lengths": torch.tensor([3]).int()}, "this call has 9 queries"),
        ((4, 1, 60), {}, "hdim is 60; it must be a multiple of 8 up to 512 in decode"),
        ((4, 1, 64), {"interleaved": False, "rotary_dim": 12}, "rotary_dim is 12; it must be a multiple"),
        ((4, 1, 64), {"q_offset": 2**20}, "positions go up to 1,048,576"),
    ],
)
def test_what_no_kernel_takes_pytorch_computes(card: FlashCard, sizes, how: dict[str, Any], message: str) -> None:
    how = {"dtype": torch.float16, **how}
    q = normal(1, *sizes, dtype=how.pop("dtype"))
    with pytest.raises(Unsupported, match=message):
        rope_attention(q, q, q, **how, fallback=False)
    with pytest.warns(UserWarning, match=f"kernels computes this attention in PyTorch: .*{message}"):
        assert rope_attention(q, q, q, **how).isfinite().all()
    assert not card.launched


def test_position_beyond_the_last_exact_one_is_refused_with_lengths_too(card: FlashCard) -> None:
    q, k = normal(1, 1, 1, 64), normal(1, 1, 1, 64).expand(1, 1, 2**20 + 64, 64)
    for how in ({}, {"lengths": torch.tensor([9], dtype=torch.int32)}):
        with pytest.raises(Unsupported, match=r"positions go up to 1,048,639; .* turn by those below 1,048,576"):
            rope_attention(q, k, k, **how, fallback=False)
    assert not card.launched


@pytest.mark.parametrize("scale", [3e38, -3e38])
def test_scale_that_is_infinite_times_log2_e_is_refused(card: FlashCard, scale: float) -> None:
    with pytest.raises(Unsupported, match=r"scale is -?3e\+38; the kernels take up to 2\.36e\+38"):
        attention(*[torch.zeros(1, 1, 1, 64)] * 3, scale=scale, fallback=False)
