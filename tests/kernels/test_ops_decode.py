"""Decode calls of the ops on a card that is made up: what they hand to the kernels, and which calls they take."""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from made_up_driver import Driver, at, grid_of, in_place
from ops_reference import allowed_of, expected_of, right_calls

from kernels import rope_attention
from kernels.flash import args
from kernels.flash.combine import NAMES as COMBINED
from kernels.op.arguments import Asked, Tensors
from kernels.op.fallback import attend

GROUPS = (args.Tensors, args.Sizes, args.Rotation, args.Workspace)
NAMES = [name for group in GROUPS for name in (group._fields if group is not args.Rotation else
         ["turn_batch" if field == "batch" else field for field in group._fields])]  # fmt: skip
THREADS = 12  # offset in a configuration


class Card(Driver):
    """A card of four multiprocessors: a call's first launch attends by its arguments, a second has the same."""

    sms = 4

    def launch(self, config: int, handle: int, parameters: int, extra: None) -> int:
        name = self.names[handle]
        given = self.given(handle, parameters, COMBINED if name.startswith("combine") else NAMES)
        given |= {"grid": grid_of(config), "threads": ctypes.c_uint32.from_address(config + THREADS).value}
        if name.startswith("combine"):
            before = self.launched[-1]
            same = {*COMBINED} & {*NAMES} - {"rows"}  # which before are those of tables
            assert all(given[field] == before[field] for field in same)
            rows = before["grid"][2] * given["heads"] * given["seq_q"]
            assert given["splits"] > 1 and given["heads"] == before["kv_heads"] * before["group"]
            assert given["rows"] == rows and given["grid"] == (rows, -(-given["hdim"] // 64), 1)
            before["combined"] = f"_d{given['hdim']}_" in before["kernel"]
        else:
            self.launched.append(given | {"kernel": name, "combined": given["splits"] == 1})
            compute(self.launched[-1])
        return 0


def rates_in(given: dict[str, Any], hdim: int, pairs: int, threads: int, size: int) -> torch.Tensor:
    """Half turns a position of each pair; the table also has the rotation from one row of a thread to its next."""
    all_pairs = max(64, 1 << (hdim - 1).bit_length()) // 2
    rates, step = at(given["rates"], (2, all_pairs, 2), (2 * all_pairs, 2, 1)).double()
    rates = rates.sum(-1)
    by = np.pi * rates * (threads // min(threads, 2 * all_pairs * size // 16))
    torch.testing.assert_close(step, torch.stack((by.cos() - 1, by.sin()), -1), atol=3e-7, rtol=0)
    assert not rates[pairs:].any()
    return rates[:pairs]


def attend_as(given: dict[str, Any], batch: int, threads: int, **moved: Any) -> None:
    """Attention over the memory that the arguments of a launch tell of; `moved` are tensors that it reads elsewhere.

    `threads` share the rows of a tile of keys.
    """
    parts = given["kernel"].split("_")
    dtype, hdim = getattr(torch, parts[2]), int(parts[3][1:])
    kv_heads, seq_q, seq_k = given["kv_heads"], given["seq_q"], given["seq_k"]
    sizes = {"q": (kv_heads * given["group"], seq_q), "k": (kv_heads, seq_k)}
    sizes |= {"v": sizes["k"], "out": sizes["q"]}
    raw = np.int16 if dtype != torch.float32 else np.float32

    def tensor(name: str) -> torch.Tensor:
        strides = tuple(given[f"{name}_{axis}"] for axis in ("batch", "head", "row"))
        return at(given[name], (batch, *sizes[name], hdim), (*strides, 1), raw).view(dtype)

    pairs, places = given["rotary_dim"] // 2, max(seq_k, given["q_offset"] + seq_q)
    cos = sin = positions = slopes = lengths = None
    if "tables" in parts:
        cos, sin = (at(given[x], (given["rows"], pairs), (given["pitch"], 1)) for x in ("cos", "sin"))
    elif pairs:
        angle = np.pi * torch.arange(1200)[:, None] * rates_in(given, hdim, pairs, threads, dtype.itemsize)
        cos, sin = angle.cos().float(), angle.sin().float()
    if {"positions", "placed"} & {*parts}:
        positions = at(given["positions"], (batch, places), (given["turn_batch"], 1), np.int32)
    if "alibi" in parts:
        slopes = at(given["slopes"], (batch, sizes["q"][0]), (sizes["q"][0], 1))
    if given["by_length"]:
        lengths = at(given["lengths"], (batch,), (1,), np.int32)
    asked = Asked(
        "rope" if slopes is None else "alibi", 2 * pairs, 0.0, "halves" not in parts, bool(given["causal"]),
        given["q_offset"], given["scale"] * np.log(2),
    )  # fmt: skip
    q, k, v = (moved[x] if x in moved else tensor(x) for x in "qkv")
    tensor("out").copy_(attend(q, k, v, Tensors(cos, sin, positions, slopes, lengths), asked))


def compute(given: dict[str, Any]) -> None:
    """Launch the decode kernel in the emulator; its workspace is NaN afterwards."""
    blocks, heads, batch = given["grid"]
    splits = given["splits"]
    assert blocks == splits or (given["kernel"].startswith("wide") and blocks % splits == 0)  # in clusters
    assert heads == given["kv_heads"] * given["tiles"]
    assert (splits - 1) * given["split_keys"] < given["seq_k"] <= splits * given["split_keys"]

    if splits > 1:
        floats = splits * batch * given["kv_heads"] * given["group"] * given["seq_q"]
        hdim = int(given["kernel"].split("_")[3][1:])
        at(given["part"], (floats * hdim,), (1,)).fill_(torch.nan)
        at(given["totals"], (floats * 2,), (1,)).fill_(torch.nan)
        assert given["totals"] >= given["part"] + 4 * floats * hdim
    attend_as(given, batch, given["threads"] if given["kernel"].startswith("chunk") else 32)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    with in_place(Card(), monkeypatch) as made:
        yield made


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:kernels copies")
def test_random_calls_reach_the_kernels_whole(card: Card, dtype: torch.dtype) -> None:
    step = 4 if dtype == torch.float32 else 8

    def takes(name: str, q: torch.Tensor, given: dict[str, Any]) -> bool:
        halves = not given.get("interleaved", True) and given["rotary_dim"] % step
        return q.shape[2] <= 8 and q.shape[3] % 8 == 0 and not halves

    taken = right_calls(range(600, 720), takes, lengths=3, dtype=dtype)
    assert taken == len(card.launched) > 30 and all(given["combined"] for given in card.launched)
    assert {given["splits"] > 1 for given in card.launched} == {True, False}


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("how", [{}, {"interleaved": False, "rotary_dim": 32, "causal": True}])
def test_chunks_of_queries_over_many_keys_are_split_like_decode(card: Card, how: dict[str, Any], lengths: bool) -> None:
    q, k = normal(1, 2, 20, 64), normal(1, 1, 900, 64)
    if lengths:
        how = how | {"lengths": torch.tensor([700], dtype=torch.int32)}
    out = rope_attention(q, k, k, **how, fallback=False)
    error = np.abs(out.double().numpy() - expected_of("rope_attention", (q, k, k), how)).max()
    assert error <= allowed_of((q, k, k), how)
    (given,) = card.launched
    assert given["kernel"].startswith("chunk") and given["splits"] > 1 and given["combined"]


@pytest.mark.parametrize("hdim", [512, 1024, 4096])
def test_wide_heads_are_spread_over_warps_and_blocks(card: Card, hdim: int) -> None:
    q, k = normal(2, 4, 3, hdim), normal(2, 2, 60, hdim)
    how = {"lengths": torch.tensor([60, 7], dtype=torch.int32), "causal": True}
    out = rope_attention(q, k, k, **how, fallback=False)
    error = np.abs(out.double().numpy() - expected_of("rope_attention", (q, k, k), how)).max()
    assert error <= allowed_of((q, k, k), how)
    (given,) = card.launched
    assert given["kernel"].startswith("wide") and given["combined"]


@pytest.mark.filterwarnings("error")
def test_a_growing_cache_loads_two_kernels_and_is_read_where_it_lies(card: Card) -> None:
    q, cache = normal(1, 8, 1, 64, dtype=torch.float16), normal(1, 2, 3000, 64, dtype=torch.float16)
    for seq_k in range(1, 3001, 307):
        rope_attention(q, cache[:, :, :seq_k], cache[:, :, :seq_k], interleaved=False)
        assert (card.launched[-1]["k"], card.launched[-1]["seq_k"]) == (cache.data_ptr(), seq_k)
    assert len(card.loaded) == 2


def test_lengths_are_read_by_each_launch(card: Card) -> None:
    q, k = normal(3, 4, 2, 64), normal(3, 2, 50, 64)
    lengths = torch.tensor([50, 0, 7], dtype=torch.int32)
    assert not rope_attention(q, k, k, lengths=lengths)[1].any()
    lengths[1] = 20
    out = rope_attention(q, k, k, lengths=lengths)
    torch.testing.assert_close(out[1:2], rope_attention(q[1:2], k[1:2, :, :20], k[1:2, :, :20]))
    assert card.launched[0]["lengths"] == card.launched[1]["lengths"] == lengths.data_ptr()


def test_a_repeated_call_has_its_own_addresses(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
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
