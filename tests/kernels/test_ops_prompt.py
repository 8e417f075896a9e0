"""Prompts in half precision of the ops, on a card that is made up: which kernel takes them, and what it is handed."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from made_up_driver import PromptCard, in_place
from ops_reference import EPS, expected_of, normal, right_calls

from kernels import Unsupported, alibi_attention, attention, rope_attention
from kernels.flash.prompts import plan
from kernels.flash.prompts.float32_plan import prompt32_call
from kernels.op import dispatch


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> Iterator[PromptCard]:
    with in_place(PromptCard(), monkeypatch) as made:
        yield made


def takes(step: int, name: str, q: torch.Tensor, given: dict[str, Any]) -> bool:
    halves = not given.get("interleaved", True) and given["rotary_dim"] % step
    return q.shape[2] > 8 and q.shape[3] % 16 == 0 and not halves


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wgmma", [False, True])
@pytest.mark.filterwarnings("ignore:kernels copies")
def test_random_calls_reach_the_kernels_whole(prompts: PromptCard, monkeypatch, dtype: torch.dtype, wgmma) -> None:
    monkeypatch.setattr(plan, "pays_on_wgmma", lambda *_: wgmma)
    taken = right_calls(range(900, 1200), partial(takes, 8), lengths=3, dtype=dtype)
    assert taken == len(prompts.launched) > 10
    on_wgmma = [each["kernel"].split("_")[1] != "mma" for each in prompts.launched]
    assert on_wgmma == [wgmma and not each["by_length"] for each in prompts.launched]


def test_blocks_that_stay_take_more_tiles_than_multiprocessors_and_many_keys_are_split(prompts: PromptCard) -> None:
    """The card has four: tiles of 32 queries fill it, or splits of keys do. No block of 256 dims stays."""
    for heads, seq_q, seq_k, hdim, name, splits in (
        (2, 64, 64, 64, "mma", 1), (2, 65, 65, 64, "persistent", 1), (1, 16, 1100, 64, "mma", 5),
        (1, 16, 200, 128, "mma", 4), (1, 300, 1100, 128, "persistent", 1), (1, 128, 1100, 128, "wgmma", 3),
        (4, 65, 65, 256, "wgmma", 1), (1, 9, 1100, 256, "wgmma", 4),
    ):  # fmt: skip
        q, k = normal(1, heads, seq_q, hdim, dtype=torch.float16), normal(1, heads, seq_k, hdim, dtype=torch.float16)
        rope_attention(q, k, k, fallback=False)
        given = prompts.launched[-1]
        assert (given["kernel"].split("_")[1], given["splits"]) == (name, splits)


def test_tensor_that_no_map_describes_goes_to_mma(prompts: PromptCard) -> None:
    q = normal(2, 8, 70, 64, dtype=torch.bfloat16)
    k = normal(2, 1, 90, 64, dtype=torch.bfloat16)
    expanded = k.expand(2, 8, 90, 64)
    whole = expanded.contiguous()
    for tensors, name in (
        ((q, k, k), "wgmma"), ((q, expanded, expanded), "mma"), ((q, k.clone(), k), "wgmma"),
        ((q, expanded, whole), "mma"), ((q, whole, expanded), "mma"), ((q, whole, whole), "persistent"),
    ):  # fmt: skip
        made = alibi_attention(*tensors, fallback=False)
        assert prompts.launched[-1]["kernel"].split("_")[1] == name
        wanted = expected_of("alibi_attention", (q, *tensors[1:]), {})
        assert np.abs(made.double().numpy() - wanted).max() < EPS[q.dtype] * float(k.abs().max())


@pytest.mark.filterwarnings("ignore:kernels copies")
@pytest.mark.parametrize("name", ["attention", "rope_attention"])
def test_first_call_with_rows_that_no_map_takes_is_copied(prompts: PromptCard, name: str) -> None:
    q = normal(1, 8, 70, 64, dtype=torch.float16)
    far = torch.cat((q[..., :1], q), -1)[..., 1:]
    made = (attention if name == "attention" else rope_attention)(q, far, far, fallback=False)
    error = np.abs(made.double().numpy() - expected_of(name, (q, q, q), {})).max()
    assert error < 4 * EPS[q.dtype] * float(q.abs().max())


@pytest.mark.parametrize("wgmma", [False, True])
def test_a_repeated_call_has_its_own_tensors(prompts: PromptCard, monkeypatch, wgmma: bool) -> None:
    monkeypatch.setattr(plan, "pays_on_wgmma", lambda *_: wgmma)
    q = normal(1, 8, 70, 64, dtype=torch.float16)
    kept = [normal(1, 8, 90, 64, dtype=torch.float16) + step for step in range(2)]
    for k in (*kept, *kept):
        for call in (attention, rope_attention):
            wanted = expected_of(call.__name__, (q, k, k), {})
            error = np.abs(call(q, k, k, fallback=False).double().numpy() - wanted).max()
            assert error < 4 * EPS[q.dtype] * float(k.abs().max())
    assert len(prompts.launched) == 8 and len(prompts.rotated) == 4


@pytest.mark.parametrize(
    ("sizes", "how", "message"),
    [  # prompts, and below them decode
        ((4, 9, 72), {}, "hdim is 72; it must be a multiple of 16 up to 256"),
        ((4, 9, 64), {"interleaved": False, "rotary_dim": 12}, "rotary_dim is 12; it must be a multiple of 8"),
        ((4, 9, 64), {"scale": -0.5}, "scale is -0.5; .* take one above 0"),
        ((4, 9, 64), {"q_offset": 2**20}, "positions go up to 1,048,584"),
        ((4, 9, 72), {"dtype": torch.float32, "lengths": torch.tensor([3]).int()}, "this call has 9 queries"),
        ((4, 1, 60), {}, "hdim is 60; it must be a multiple of 8 up to 512 in decode"),
        ((4, 1, 64), {"interleaved": False, "rotary_dim": 12}, "rotary_dim is 12; it must be a multiple"),
        ((4, 1, 64), {"q_offset": 2**20}, "positions go up to 1,048,576"),
    ],
)
def test_what_no_kernel_takes_pytorch_computes(prompts: PromptCard, sizes, how: dict[str, Any], message: str) -> None:
    how = {"dtype": torch.float16, **how}
    q = normal(1, *sizes, dtype=how.pop("dtype"))
    with pytest.raises(Unsupported, match=message):
        rope_attention(q, q, q, **how, fallback=False)
    with pytest.warns(UserWarning, match=f"kernels computes this attention in PyTorch: .*{message}"):
        assert rope_attention(q, q, q, **how).isfinite().all()
    assert not prompts.launched


@pytest.mark.filterwarnings("ignore:kernels copies")
def test_float32_prompts_reach_the_kernels_of_parts_whole(prompts: PromptCard, monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "chosen", prompt32_call)  # also where V8 is faster
    taken = right_calls(range(1200, 1700), lambda name, *call: name != "alibi_attention" and takes(4, name, *call))
    assert taken == len(prompts.launched) > 10
