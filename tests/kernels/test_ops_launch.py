"""Arguments of the ops to V8, on a made-up card that reads and writes memory by the arguments of a launch alone."""

import re
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from made_up_driver import AXES, ClusterCard, in_place
from ops_reference import expected_of, normal, right_calls
from torch.autograd import forward_ad

import kernels
from kernels import Unsupported, alibi_attention, attention, rope_attention
from kernels.constants import MOST_POSITIONS
from kernels.flash.cluster import call as planning
from kernels.op import dispatch, resident
from kernels.op.dispatch import planned_keys
from kernels.runtime import cache, forget
from kernels.runtime import compile as compiler

BEFORE_FROM = 128  # keys from which a launch in front embeds them


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterCard]:
    with in_place(ClusterCard(), monkeypatch) as made:
        monkeypatch.setattr(dispatch, "chosen", made.choose)
        monkeypatch.setattr(planning, "fastest", lambda problem, *_: (problem.seq_k >= BEFORE_FROM, 0.0))
        yield made


@pytest.mark.filterwarnings("ignore:kernels copies")
def test_random_calls_reach_the_kernel_whole(card: ClusterCard) -> None:
    assert right_calls(range(400, 520)) == len(card.launched) == 120


@pytest.mark.filterwarnings("error")
def test_tensors_are_taken_where_they_lie(card: ClusterCard) -> None:
    cache = normal(2, 2, 40, 64)
    q, k = normal(2, 3, 4, 64).transpose(1, 2), cache[:, :, 8:19]
    out = torch.empty(2, 3, 4, 64).transpose(1, 2)
    assert rope_attention(q, k, k, out=out) is out
    (given,) = card.launched
    assert (given["q"], given["k"], given["out"]) == (q.data_ptr(), k.data_ptr(), out.data_ptr())
    assert [given[f"k_{axis}"] for axis in AXES] == [2 * 40 * 64, 40 * 64, 64]


def test_out_that_overlaps_its_inputs_is_written_through_a_copy(card: ClusterCard) -> None:
    packed, k = normal(2, 4, 6, 8), normal(2, 2, 5, 8)
    exact = attention(packed[:, :, :3], k, k)
    apart, across = torch.empty(2, 4, 3, 16)[..., ::2], packed[:, :, 1:4]
    for out in (apart, across):
        assert attention(packed[:, :, :3], k, k, out=out) is out
        assert torch.equal(out, exact)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        attention(packed[:, :, :3], k, k, out=torch.empty(1, 1, 3, 8).expand(2, 4, 3, 8))
    assert card.launched[-1]["out_batch"] == 4 * 3 * 8


def test_out_is_seen_by_autograd_as_written(card: ClusterCard) -> None:
    """Backward would otherwise read what a kernel wrote over the values that it saved."""
    q, k, weight = normal(1, 2, 3, 8), normal(1, 2, 5, 8), torch.ones(1, 2, 3, 8, requires_grad=True)
    out = torch.zeros_like(q)
    loss = (out * weight).sum()
    attention(q, k, k, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(RuntimeError, match="out requires grad; no gradient flows through it"):
        attention(q, k, k, out=weight)
    with torch.no_grad():
        attention(q, k, k, out=weight)
    with torch.inference_mode():
        attention(q, k, k, out=torch.empty_like(q))
    assert len(card.launched) == 3


def test_forward_derivative_is_pytorchs_and_not_lost(card: ClusterCard) -> None:
    q = normal(1, 2, 3, 8)
    with pytest.warns(UserWarning, match="inside a transform of torch"), forward_ad.dual_level():
        out = attention(forward_ad.make_dual(q, torch.ones_like(q)), q, q)
        assert forward_ad.unpack_dual(out).tangent is not None
    assert not card.launched


@pytest.mark.parametrize(
    "moved",
    [lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2), lambda x: torch.cat((x[..., :1], x), -1)[..., 1:]],
    ids=["columns", "unaligned"],
)
def test_tensor_that_no_kernel_takes_is_copied_and_said_once(card: ClusterCard, moved) -> None:
    q, k, v = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 8)
    exact = attention(q, k, v)
    with pytest.warns(UserWarning, match="kernels copies k on each call: its last dim is not") as caught:
        torch.testing.assert_close(attention(q, moved(k), v), exact, rtol=0, atol=0)
        attention(q, moved(k), v)
    assert len(caught) == 1 and caught[0].filename == __file__


@pytest.mark.parametrize("name", ["q", "k", "v", "out"])
@pytest.mark.filterwarnings("ignore:kernels copies")
def test_rows_whose_offsets_in_a_tile_need_more_than_32_bits_are_copied(card: ClusterCard, name: str) -> None:
    given = {"q": normal(1, 1, 2, 8), "k": normal(1, 1, 2, 8), "v": normal(1, 1, 2, 8), "out": torch.empty(1, 1, 2, 8)}
    exact = attention(given["q"], given["k"], given["v"])
    for apart, stride in ((2**26 - 4, 2**26 - 4), (2**26, 8)):
        far = torch.empty(apart + 8).as_strided((1, 1, 2, 8), (apart + 8, apart + 8, apart, 1))
        out = attention(**given | {name: far.copy_(given[name])})
        assert torch.equal(out, exact) and card.launched[-1][f"{name}_row"] == stride


@pytest.mark.filterwarnings("error")
def test_single_row_is_taken_at_any_aligned_address(card: ClusterCard) -> None:
    q, k = normal(1, 1, 3, 9).as_strided((1, 1, 1, 8), (3, 5, 7, 1)), normal(1, 1, 5, 8)
    attention(q, k, k)
    assert card.launched[0]["q"] == q.data_ptr()


@pytest.mark.filterwarnings("error")
def test_half_of_a_table_of_both_halves_is_taken_where_it_lies(card: ClusterCard) -> None:
    q, both = normal(1, 2, 3, 8), torch.rand(3, 8)
    rope_attention(q, q, q, cos=both[:, :4], sin=both[:, :4], interleaved=False)
    given = card.launched[-1]
    assert (given["cos"], given["pitch"], given["rows"]) == (both.data_ptr(), 8, 3)
    with pytest.warns(UserWarning, match="kernels copies cos on each call: its rows"):
        rope_attention(q, q, q, cos=both[:, 1:5], sin=both[:, 1:5])


def test_growing_cache_compiles_nothing_and_plans_seldom(card: ClusterCard) -> None:
    q, cache = normal(1, 2, 1, 8), normal(1, 2, 3000, 8)
    for seq_k in range(1, 3001, 7):
        rope_attention(q, cache[:, :, :seq_k], cache[:, :, :seq_k])
        assert card.launched[-1]["seq_k"] == seq_k
    assert len(card.calls) == len({planned_keys(seq_k) for seq_k in range(1, 3001)}) == 29
    assert len(card.loaded) <= 6


def test_positions_beyond_int32_stay_out_of_range(card: ClusterCard) -> None:
    q, k = normal(1, 2, 3, 8), normal(1, 2, 3, 8)
    out = rope_attention(q, k, k, positions=torch.tensor([0, 1, 2**32 + 2]), causal=True)
    assert out[:, :, 2].isnan().all() and out[:, :, :2].isfinite().all()


def test_call_that_no_kernel_takes_is_computed_by_pytorch(card: ClusterCard) -> None:
    q = normal(1, 2, 3, 6)
    with pytest.warns(UserWarning, match="kernels computes this attention in PyTorch: hdim is 6") as caught:
        first, again = attention(q, q, q), attention(q, q, q)
    assert len(caught) == 1 and torch.equal(first, again) and not card.launched
    with pytest.raises(Unsupported) as refused:
        attention(q, q, q, fallback=False)
    assert (refused.value.kind, refused.value.needed) == ("hdim", 6)
    with pytest.raises(Unsupported, match=r"torch\.float64; the kernels take torch\.float32"):
        attention(*[normal(1, 2, 3, 8).double()] * 3, fallback=False)
    q = normal(1, 1, 1, 8)
    with pytest.raises(Unsupported, match="positions go up to 1,048,576; the kernels turn by those below 1,048,576"):
        rope_attention(q, q, q, q_offset=MOST_POSITIONS, fallback=False)


def test_launch_goes_to_the_current_stream_of_the_tensors_device(card: ClusterCard) -> None:
    q = normal(1, 2, 3, 8)
    for card.stream in (5, 5, 9, 0):
        attention(q, q, q)
    card.tensor_device = 1
    kernels.op.arguments._settled.clear()  # which tells devices apart by the tensors', and these are on the CPU
    attention(q, q, q)
    assert [given["stream"] for given in card.launched] == [5, 5, 9, 0, 0]
    assert [given["device"] for given in card.launched] == [0, 0, 0, 0, 1]
    assert len(card.loaded) == 2  # a function belongs to a device


def test_thread_keeps_its_arguments_to_itself(card: ClusterCard) -> None:
    """Another thread may launch between the packing and the launch: the driver is called outside of Python's lock."""
    q, other = normal(1, 2, 3, 8), normal(1, 2, 3, 8) * 3
    exact, driver = attention(q, q, q), card.launch

    def interrupted(*arguments: Any) -> int:
        if threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=attention, args=(other, other, other))
            thread.start()
            thread.join()
        return driver(*arguments)

    card.launch = interrupted
    forget()
    assert torch.equal(attention(q, q, q), exact)
    assert len(card.launched) == 3


def test_calls_in_flight_at_once_have_workspaces_of_their_own(card: ClusterCard) -> None:
    """Calls of other streams' threads begin before the first has ended."""
    q, k = normal(1, 2, 3, 8), normal(1, 2, BEFORE_FROM, 8)
    driver, nested = card.launch, 3
    held: list[tuple[int, int]] = []

    def interrupted(*arguments: Any) -> int:
        before = len(card.launched)
        driver(*arguments)
        if before == len(card.launched):
            return 0
        at = card.launched[-1]["k_embedded"]
        held.append((at, at + 4 * k.numel()))
        if len(card.launched) < nested:
            card.stream += 1
            thread = threading.Thread(target=rope_attention, args=(q, k, k))
            thread.start()
            thread.join()
        return 0

    card.launch = interrupted
    rope_attention(q, k, k)
    assert len(card.launched) == nested
    held.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(held))


def test_compilation_is_announced_once(card: ClusterCard, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(compiler, "is_cached", lambda kernel, target: False)
    monkeypatch.setattr(compiler, "build", lambda kernels, target: None)
    q = normal(1, 2, 3, 8)
    attention(q, q, q)
    attention(q, q, q)
    where = re.escape(str(cache.FOLDER))
    said = rf"kernels: compiling attention_\w+ for sm_90, once \(kept in {where}\)\n"
    assert re.fullmatch(said, capsys.readouterr().err)


def test_gradients_and_the_kernel_go_together(card: ClusterCard) -> None:
    q, k = normal(1, 2, 3, 8).requires_grad_(), normal(1, 2, 5, 8)
    rope_attention(q, k, k).square().sum().backward()
    assert len(card.launched) == 1
    kernel, q.grad = q.grad, None
    exact = q.detach().double().requires_grad_()
    rope_attention(exact, k.double(), k.double()).square().sum().backward()
    torch.testing.assert_close(kernel.double(), exact.grad, rtol=0, atol=1e-5)


ROPE: dict[str, Any] = {"rotary_dim": 4}


@pytest.mark.parametrize(("op", "arguments"), [(rope_attention, ROPE), (alibi_attention, {})], ids=["rope", "alibi"])
def test_captured_launch_reads_what_it_read_then(card: ClusterCard, monkeypatch, op, arguments) -> None:
    """A graph replays the addresses that it captured; torch's allocator hands freed memory to the next who asks."""
    monkeypatch.setattr(kernels.op.arguments, "MOST_SIGNATURES", 16)
    q, k = normal(3, 4, 3, 8), normal(3, 2, 5, 8)
    out = op(q, k, k, **arguments)
    exact, replay = out.clone(), card.replays[-1]
    for i in range(600):
        rope_attention(q, k, k, base=2.0 + i, **ROPE)
        alibi_attention(*[normal(i % 8 + 1, i % 7 + 1, 3, 8)] * 3)
        torch.full((4, 2), torch.nan)
    out.zero_()
    replay()
    assert torch.equal(out, exact)


def test_tables_beyond_what_is_kept_belong_to_their_call(card: ClusterCard, monkeypatch: pytest.MonkeyPatch) -> None:
    q = normal(1, 2, 3, 8)
    exact = [rope_attention(q, q, q, base=base) for base in (10.0, 20.0, 30.0)]
    monkeypatch.setattr(resident, "MOST_BYTES", 4 * 32)  # tables of four bases; there are three
    bases = (10.0, 40.0, 50.0, 20.0, 50.0, 30.0)
    outs = {base: rope_attention(q, q, q, base=base) for base in bases}
    assert len(resident._tables) == 4
    assert all(torch.equal(outs[base], each) for base, each in zip((10.0, 20.0, 30.0), exact, strict=True))
    assert np.abs(outs[50.0].numpy() - expected_of("rope_attention", (q, q, q), {"base": 50.0})).max() < 1e-5


def test_capture_is_refused_what_only_an_earlier_call_can_make(card: ClusterCard) -> None:
    q = normal(2, 2, 3, 8)
    rope_attention(q, q, q)
    alibi_attention(q, q, q)
    card.captures = True
    for captured in (rope_attention, alibi_attention):
        captured(q, q, q)
    kernels.op.arguments._settled.clear()  # planned anew, but made before
    rope_attention(q, q, q)
    for needed, call in (
        ("a table", lambda: rope_attention(q, q, q, base=500.0)),
        ("a table", lambda: alibi_attention(*[normal(3, 2, 3, 8)] * 3)),
        ("a kernel", lambda: attention(q, q, q)),
    ):
        with pytest.raises(RuntimeError, match=f"is being captured, and this call needs {needed} that no call before"):
            call()


def negated(x: torch.Tensor) -> torch.Tensor:
    """The values of x, as a view of what has the opposite sign: it lies as an imaginary part does, or like x."""
    view = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert view.is_neg() and torch.equal(view, x)
    return view


@pytest.mark.parametrize("lies", [negated, lambda x: torch._neg_view(-x)], ids=["imag", "contiguous"])
@pytest.mark.parametrize("name", ["q", "k", "v", "cos", "sin", "slopes", "out"])
def test_lazily_negated_view_is_read_with_its_sign(card: ClusterCard, name: str, lies) -> None:
    q, k, angle = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(5, 4)
    given = {"q": q, "k": k, "v": k + 1, "cos": angle.cos(), "sin": angle.sin(), "out": torch.empty_like(q)}
    op = rope_attention
    if name == "slopes":
        op, given = alibi_attention, {"q": q, "k": k, "v": k, "slopes": torch.rand(4)}
    exact = op(**given).clone()
    changed = given | {name: lies(given[name])}
    if name == "out":
        op(**changed)
    else:
        with pytest.warns(UserWarning, match=f"kernels copies {name[:3]}.* negated") as caught:
            op(**changed)
        assert caught[0].filename == __file__
    assert torch.equal(op(**changed), exact) and len(card.launched) == 3


def test_sizes_beyond_32_bits_do_not_reach_a_launch(card: ClusterCard) -> None:
    """Strides, rows and positions that 32 bits do not hold; indices that a launch would add up past them."""
    q, angle = normal(1, 1, 2, 8), normal(1, 4)
    for rows, positions in ((2**30, [0, 2**30 - 1]), (2**33, [5, 2**31 - 2])):
        cos, sin = (angle.cos().expand(rows, 4), angle.sin().expand(rows, 4))
        out = rope_attention(q, q, q, cos=cos, sin=sin, positions=torch.tensor(positions), fallback=False)
        assert torch.equal(out, rope_attention(q, q, q, cos=cos, sin=sin)) and out.isfinite().all()
    assert rope_attention(q, q, q, cos=cos, sin=sin, q_offset=2**30 - 2, fallback=False).isfinite().all()
    with pytest.raises(ValueError, match="q_offset is 1,073,741,823; with 2 queries it must be 1,073,741,822 at most"):
        rope_attention(q, q, q, cos=cos, sin=sin, q_offset=2**30 - 1)
    with pytest.raises(Unsupported, match=r"k and v have 1,073,741,825 keys; the kernels take 1,073,741,824"):
        attention(q, *[normal(1, 1, 1, 8).expand(1, 1, 2**30 + 1, 8)] * 2, fallback=False)
