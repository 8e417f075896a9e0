"""Decode calls of the ops on a card that is made up: what they hand to the kernels, and which calls they take."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from made_up_driver import DecodeCard, in_place
from ops_reference import allowed_of, expected_of, normal, right_calls

from kernels import rope_attention


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[DecodeCard]:
    with in_place(DecodeCard(), monkeypatch) as made:
        yield made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:kernels copies")
def test_random_calls_reach_the_kernels_whole(card: DecodeCard, dtype: torch.dtype) -> None:
    step = 4 if dtype == torch.float32 else 8

    def takes(name: str, q: torch.Tensor, given: dict[str, Any]) -> bool:
        halves = not given.get("interleaved", True) and given["rotary_dim"] % step
        return q.shape[2] <= 8 and q.shape[3] % 8 == 0 and not halves

    taken = right_calls(range(600, 720), takes, lengths=3, dtype=dtype)
    assert taken == len(card.launched) > 30 and all(given["combined"] for given in card.launched)
    assert {given["splits"] > 1 for given in card.launched} == {True, False}


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("how", [{}, {"interleaved": False, "rotary_dim": 32, "causal": True}])
def test_chunks_of_queries_over_many_keys_are_split_like_decode(card: DecodeCard, how: Any, lengths: bool) -> None:
    q, k = normal(1, 2, 20, 64), normal(1, 1, 900, 64)
    if lengths:
        how = how | {"lengths": torch.tensor([700], dtype=torch.int32)}
    out = rope_attention(q, k, k, **how, fallback=False)
    error = np.abs(out.double().numpy() - expected_of("rope_attention", (q, k, k), how)).max()
    assert error <= allowed_of((q, k, k), how)
    (given,) = card.launched
    assert given["kernel"].startswith("chunk") and given["splits"] > 1 and given["combined"]


@pytest.mark.parametrize("hdim", [512, 1024, 4096])
def test_wide_heads_are_spread_over_warps_and_blocks(card: DecodeCard, hdim: int) -> None:
    q, k = normal(2, 4, 3, hdim), normal(2, 2, 60, hdim)
    how = {"lengths": torch.tensor([60, 7], dtype=torch.int32), "causal": True}
    out = rope_attention(q, k, k, **how, fallback=False)
    error = np.abs(out.double().numpy() - expected_of("rope_attention", (q, k, k), how)).max()
    assert error <= allowed_of((q, k, k), how)
    (given,) = card.launched
    assert given["kernel"].startswith("wide") and given["combined"]


@pytest.mark.filterwarnings("error")
def test_growing_cache_loads_two_kernels_and_is_read_where_it_lies(card: DecodeCard) -> None:
    q, cache = normal(1, 8, 1, 64, dtype=torch.float16), normal(1, 2, 3000, 64, dtype=torch.float16)
    for seq_k in range(1, 3001, 307):
        rope_attention(q, cache[:, :, :seq_k], cache[:, :, :seq_k], interleaved=False)
        assert (card.launched[-1]["k"], card.launched[-1]["seq_k"]) == (cache.data_ptr(), seq_k)
    assert len(card.loaded) == 2


def test_lengths_are_read_by_each_launch(card: DecodeCard) -> None:
    q, k = normal(3, 4, 2, 64), normal(3, 2, 50, 64)
    lengths = torch.tensor([50, 0, 7], dtype=torch.int32)
    assert not rope_attention(q, k, k, lengths=lengths)[1].any()
    lengths[1] = 20
    out = rope_attention(q, k, k, lengths=lengths)
    torch.testing.assert_close(out[1:2], rope_attention(q[1:2], k[1:2, :, :20], k[1:2, :, :20]))
    assert card.launched[0]["lengths"] == card.launched[1]["lengths"] == lengths.data_ptr()


def test_repeated_call_has_its_own_addresses(card: DecodeCard, monkeypatch: pytest.MonkeyPatch) -> None:
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
