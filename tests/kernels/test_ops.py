"""The ops on tensors, where PyTorch computes them: against the definition in float64, and what they refuse."""

import re
import warnings

import numpy as np
import pytest
import torch
from ops_reference import allowed_of, expected, expected_of, normal, random_call

import kernels
from kernels import Unsupported, alibi_attention, attention, rope_attention
from kernels.examples.block import Cache, Config, Decoder, fused, plain
from kernels.op import library

pytestmark = pytest.mark.filterwarnings("ignore:kernels computes this attention in PyTorch")


def small(dtype: torch.dtype = torch.float32, seq_q: int = 3, seq_k: int = 5, hdim: int = 8) -> list[torch.Tensor]:
    """q with 4 heads, k and v with 2, of batch 2."""
    sizes = ((4, seq_q), (2, seq_k), (2, seq_k))
    return [normal(2, heads, seq, hdim, seed=i, dtype=dtype) for i, (heads, seq) in enumerate(sizes)]


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_random_calls_are_the_definition(first: int) -> None:
    for seed in range(first, first + 40):
        name, tensors, arguments = random_call(seed, lengths=seed % 4 == 0, dtype=torch.float64)
        out = getattr(kernels, name)(*tensors, **arguments)
        error = np.abs(out.numpy() - expected_of(name, tensors, arguments)).max()
        assert error < 1e-9, (seed, name, arguments, error)  # weights of scores up to some 100 cost 2^-53 of that each


@pytest.mark.parametrize("bad", [-1, 2**20, 2**32 + 1])
def test_position_out_of_range_is_nan_and_no_wrong_number(bad: int) -> None:
    q, k, v = small(seq_q=5)
    positions = torch.tensor([0, 1, 2, 3, bad])
    out = rope_attention(q, k, v, positions=positions, causal=True)
    assert out[:, :, 4].isnan().all() and out[:, :, :4].isfinite().all()
    angle = torch.rand(7, 4)
    out = rope_attention(q, k, v, cos=angle, sin=angle, positions=positions.clamp(-1, 7), causal=True)
    assert out[:, :, 4].isnan().all() and out[:, :, :4].isfinite().all()


def test_output_has_the_layout_of_q() -> None:
    q, k, v = small()
    q = q.transpose(1, 2).contiguous().transpose(1, 2)  # as a projection leaves it: joining heads again copies nothing
    assert attention(q, k, v).stride() == q.stride()
    assert attention(q.transpose(1, 2).flatten(2).view(2, 3, 4, 8).transpose(1, 2), k, v).stride() == q.stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_float32_rounded_once(dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype) for x in small())
    table = torch.rand(5, 4)
    made = rope_attention(q, k, v, cos=table, sin=table, causal=True)
    exact = rope_attention(q.float(), k.float(), v.float(), cos=table, sin=table, causal=True)
    assert torch.equal(made, exact.to(dtype))


def test_keys_behind_the_length_of_a_sequence_are_ignored() -> None:
    q, k, v = small(torch.float64)
    lengths = torch.tensor([4, 0], dtype=torch.int32)
    exact = rope_attention(q[:1], k[:1, :, :4], v[:1, :, :4], causal=True)
    k[0, :, 4:], v[1], k[1] = torch.nan, torch.nan, torch.inf
    k.requires_grad_()
    made = rope_attention(q, k, v, lengths=lengths, causal=True)
    torch.testing.assert_close(made[:1], exact, rtol=0, atol=1e-14)
    assert not made[1].any()
    made.sum().backward()
    assert k.grad[0, :, :4].any() and not k.grad[1].any() and not k.grad[0, :, 4:].any()
    with pytest.raises(ValueError, match="lengths and q_offset are given"):
        rope_attention(q, k, v, lengths=lengths, q_offset=3)


def test_autocast_does_not_round_to_half() -> None:
    q, k, v = small()
    exact = rope_attention(q, k, v)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(rope_attention(q, k, v), exact)


def test_calls_alike_but_for_what_may_grow_are_each_checked() -> None:
    """The settled part of a call is cached without seq_k and the rows of tables."""
    q, k, v = small()
    cos = torch.rand(9, 4)
    rope_attention(q, k, v, cos=cos, sin=cos, positions=torch.arange(9))
    for wrong in ({"sin": cos[:8]}, {"cos": cos.double()}, {"positions": torch.arange(9)[None]}):
        with pytest.raises((TypeError, ValueError)):
            rope_attention(q, k, v, **{"cos": cos, "sin": cos, "positions": torch.arange(9)} | wrong)
    assert not torch.equal(rope_attention(q, k, v), rope_attention(q, k, v, causal=True))
    assert not torch.equal(rope_attention(q, k, v), rope_attention(q, k, v, interleaved=False))
    with pytest.raises(ValueError, match="positions has 4 positions"):
        rope_attention(q, k, v, cos=cos, sin=cos, positions=torch.arange(4))
    with pytest.raises(ValueError, match=re.escape("v has shape (2, 2, 4, 8); it must have that of k, (2, 2, 5, 8)")):
        attention(q, k, v[:, :, :4])


LAYOUTS = {  # of each angle, [.., n, pairs]
    "halves": lambda angle: torch.cat((angle, angle), -1),
    "in turn": lambda angle: angle.repeat_interleave(2, -1),
    "once": lambda angle: angle,
}
FRONTS = {  # what stands in front of n, for positions [batch, n]
    "nothing": lambda table: table[0],
    "one": lambda table: table[:1],
    "a batch": lambda table: table,
    "a batch and heads": lambda table: table[:, None],
}


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("alike", [True, False], ids=["same positions", "positions of their own"])
def test_tables_as_models_hold_them_are_refused_with_advice_that_works(interleaved, layout, front, alike) -> None:
    """GLM-4 rotates neighbours and holds halves, Cohere holds each angle twice in turn: it follows from the table."""
    q, k, v = small(torch.float64, hdim=64)
    same = alike or front in ("nothing", "one")
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4] if same else [7, 7, 0, 1, 2]])
    for rotary_dim in (16, 32, 64):
        angle = positions[..., None] * 500.0 ** (-torch.arange(0, rotary_dim, 2).double() / rotary_dim)
        given = FRONTS[front](LAYOUTS[layout](angle))
        how = {"interleaved": interleaved, "causal": True}
        exact = rope_attention(q, k, v, rotary_dim=rotary_dim, base=500.0, positions=positions, **how)
        for asked in (None, rotary_dim):
            if given.dim() == 2 and given.shape[1] == (asked or 64) // 2:  # as the op takes them
                continue
            tables = {"cos": given.cos(), "sin": given.sin()}
            with pytest.raises(ValueError, match="; pass cos=") as refused:
                rope_attention(q, k, v, rotary_dim=asked, **tables, **how)
            advised = eval(f"dict({str(refused.value).split('; pass ')[1]})", {"torch": torch, "q": q, **tables})
            out = rope_attention(q, k, v, **{"rotary_dim": asked, **advised, **how})
            torch.testing.assert_close(out, exact, rtol=0, atol=1e-14)


def test_tables_of_another_layout_get_no_advice() -> None:
    q, k, v = small()
    for shape in ((3, 5, 4), (2, 5, 3), (5, 6)):  # three axes of positions for a batch of 2; too narrow; too wide
        table = normal(*shape)
        with pytest.raises(ValueError, match=re.escape("with rotary_dim 8") + "$"):
            rope_attention(q, k, v, rotary_dim=8, cos=table, sin=table)


def test_row_for_each_token_is_its_own_position() -> None:
    """The recipe for mrope: tables [batch, n, pairs], flattened, and each token's position the number of its row."""
    q, k, v = small(torch.float64)
    cos, sin = normal(2, 5, 4, dtype=torch.float64), normal(2, 5, 4, seed=1, dtype=torch.float64)
    rows = {"cos": cos.flatten(0, 1), "sin": sin.flatten(0, 1), "positions": torch.arange(10).view(2, 5)}
    out = rope_attention(q, k, v, causal=True, **rows)
    for i in range(2):
        alone = rope_attention(q[i : i + 1], k[i : i + 1], v[i : i + 1], causal=True, cos=cos[i], sin=sin[i])
        torch.testing.assert_close(out[i : i + 1], alone, rtol=0, atol=1e-14)


def test_left_padding_is_moved_behind_the_keys() -> None:
    """The recipe for left padding: keys rolled to the front, and their number; queries stay where they are."""
    q, k, v = small(torch.float64, seq_q=5)
    lengths = torch.tensor([3, 5], dtype=torch.int32)
    rows = (torch.arange(5) - lengths[:, None]) % 5
    first = [x.gather(2, rows[:, None, :, None].expand_as(x)) for x in (k, v)]
    out = rope_attention(q, *first, causal=True, lengths=lengths)
    for i, n in enumerate(lengths.tolist()):
        alone = rope_attention(*(x[i : i + 1, :, 5 - n :] for x in (q, k, v)), causal=True)
        torch.testing.assert_close(out[i : i + 1, :, 5 - n :], alone, rtol=0, atol=1e-14)


def test_accepted_types_do_not_depend_on_earlier_calls() -> None:
    q, k, v = small()
    exact = rope_attention(q, k, v, rotary_dim=8, causal=True, base=10_000.0, scale=1.0, q_offset=2)
    for same in (
        {"rotary_dim": np.int64(8), "causal": np.True_, "scale": np.float32(1), "q_offset": np.int32(2)},
        {"rotary_dim": np.uint8(8), "causal": True, "base": np.float64(1e4), "scale": 1, "interleaved": np.bool_(1)},
    ):
        assert torch.equal(rope_attention(q, k, v, **same), exact)
    for name, wrong in (("rotary_dim", 8.0), ("causal", 1), ("scale", True), ("interleaved", 1.0), ("fallback", 1)):
        with pytest.raises(TypeError, match=f"{name} is {wrong}; it must be"):
            rope_attention(q, k, v, **{"rotary_dim": 8, "causal": True, "scale": 1.0, name: wrong})
    with pytest.raises(TypeError, match=re.escape("q has layout torch.sparse_coo; it must be torch.strided")):
        rope_attention(q.to_sparse(), k, v)


def test_alibi_far_behind_all_keys_is_the_definition() -> None:
    """The softmax of a row does not change when all keys are as much further away; float32 scores lose their bits."""
    q, k, v = small()
    near = expected(q, k, v, family="alibi", q_offset=5)
    for q_offset in (6, 2**20, 2**30 - 3):
        for causal in (False, True):
            out = alibi_attention(q, k, v, q_offset=q_offset, causal=causal)
            assert np.abs(out.numpy() - near).max() <= allowed_of((q, k, v), {})


def test_rope_far_out_is_the_definition() -> None:
    q, k, v = small()
    calls = [{"base": base, "q_offset": at} for base, at in ((1.0, 2**22), (10_000.0, 2**22), (2.0, 2**20))]
    calls += [{"positions": torch.arange(start, start + 5)} for start in (4_095, 131_072, 2**20 - 6)]
    for how in calls:
        out, exact = rope_attention(q, k, v, **how), expected(q, k, v, **how)
        assert np.abs(out.numpy() - exact).max() <= allowed_of((q, k, v), {})


half = torch.zeros(2, 4, 3, 8, dtype=torch.float16)
table = torch.zeros(9, 4)
REFUSED = [
    ({"q": [1.0]}, TypeError, "q is a list; it must be a torch.Tensor"),
    ({"q": half.int()}, TypeError, "q is torch.int32; it must be torch.float32 or torch.float64 or torch.float16 or"),
    ({"v": half[:, :2]}, TypeError, "v is torch.float16; it must be torch.float32"),
    ({"k": torch.zeros(2, 2, 5, 8, device="meta")}, ValueError, "k is on meta; it must be on the device of q, cpu"),
    ({"q": torch.zeros(4, 3, 8)}, ValueError, "q has shape (4, 3, 8); it must be [batch, heads, seq_q, hdim]"),
    ({"q": torch.zeros(2, 4, 0, 8)}, ValueError, "q has shape (2, 4, 0, 8); it must be"),
    ({"q": torch.zeros(2, 3, 3, 8)}, ValueError, "q has 3 heads; it must have a multiple of those of k, 2"),
    ({"q": torch.zeros(1, 4, 3, 8)}, ValueError, "k has batch 2 and hdim 8; it must have those of q, batch 1 and"),
    ({"rotary_dim": 3}, ValueError, "rotary_dim is 3; it must be even and between 0 and hdim, which is 8"),
    ({"rotary_dim": 10}, ValueError, "rotary_dim is 10; it must be even and between 0 and hdim, which is 8"),
    ({"rotary_dim": 4.0}, TypeError, "rotary_dim is 4.0; it must be an integer"),
    ({"base": 1e-3}, ValueError, "base is 0.001; it must be 1 or more"),
    ({"base": float("inf")}, ValueError, "base is inf; it must be finite"),
    ({"base": 10**400}, ValueError, "base is inf; it must be finite"),
    ({"base": torch.tensor(10.0)}, TypeError, "base is tensor(10.); it must be a number"),
    ({"base": "10000"}, TypeError, "base is '10000'; it must be a number"),
    ({"scale": float("nan")}, ValueError, "scale is nan; it must be finite"),
    ({"scale": 1e39}, ValueError, "scale is 1e+39; it must be finite in torch.float32"),
    ({"causal": "False"}, TypeError, "causal is 'False'; it must be True or False"),
    ({"causal": torch.ones(1).bool()}, TypeError, "causal is tensor([True]); it must be True or False"),
    ({"interleaved": "no"}, TypeError, "interleaved is 'no'; it must be True or False"),
    ({"fallback": None}, TypeError, "fallback is None; it must be True or False"),
    ({"q_offset": True}, TypeError, "q_offset is True; it must be an integer"),
    ({"q_offset": 2**31}, ValueError, "q_offset is 2,147,483,648; with 3 queries it must be 1,073,741,821 at most"),
    ({"q_offset": -1}, ValueError, "q_offset is -1; it must be 0 or more"),
    ({"q_offset": torch.tensor(1)}, TypeError, "q_offset is tensor(1); it must be an integer"),
    ({"cos": table}, ValueError, "cos is given and sin is not; give both or none"),
    ({"sin": table}, ValueError, "sin is given and cos is not; give both or none"),
    ({"cos": table, "sin": table[:, :2]}, ValueError, "sin has shape (9, 2); it must have that of cos, (9, 4)"),
    ({"cos": table[:4], "sin": table[:4]}, ValueError, "cos has 4 rows; it must have 5 at least: keys stand at"),
    ({"cos": table, "sin": table, "rotary_dim": 6}, ValueError, "cos has shape (9, 4); it must be [n, rotary_dim / 2]"),
    ({"cos": torch.zeros(9, 8), "sin": torch.zeros(9, 8)}, ValueError, "; pass cos=cos[:, :4], sin=sin[:, :4]"),
    ({"cos": table.clone().requires_grad_(), "sin": table}, ValueError, "cos requires grad; no gradient flows to it"),
    ({"positions": torch.arange(4)}, ValueError, "positions has 4 positions; it must have 5 at least: keys stand at"),
    ({"positions": torch.zeros(3, 5).int()}, ValueError, "positions has shape (3, 5); it must be [n] or [batch, n]"),
    ({"positions": torch.arange(5.0)}, TypeError, "positions is torch.float32; it must be torch.int32 or torch.int64"),
    ({"lengths": torch.zeros(2)}, TypeError, "lengths is torch.float32; it must be torch.int32"),
    ({"lengths": torch.zeros(3).int()}, ValueError, "lengths has shape (3,); it must be [batch], with batch 2"),
    ({"out": torch.zeros(2, 4, 3, 4)}, ValueError, "out has shape (2, 4, 3, 4); it must have that of q, (2, 4, 3, 8)"),
    ({"out": half}, TypeError, "out is torch.float16; it must be torch.float32"),
]


@pytest.mark.parametrize(("changed", "error", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_wrong_argument_is_named_with_what_is_allowed(changed, error, message) -> None:
    q, k, v = small()
    with pytest.raises(error, match=re.escape(message)):
        rope_attention(**{"q": q, "k": k, "v": v} | changed)


def test_slopes_of_another_size_are_refused() -> None:
    q, k, v = small()
    alibi_attention(q, k, v, slopes=torch.rand(4))
    with pytest.raises(ValueError, match=re.escape("slopes has shape (2,); it must be [heads] or [batch, heads]")):
        alibi_attention(q, k, v, slopes=torch.rand(2))


def test_pytorch_computes_with_one_warning_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_warned", set())
    q, k, v = small()
    message = "kernels computes this attention in PyTorch: the tensors are on cpu; the kernels take those on cuda"
    with pytest.warns(UserWarning, match=message) as caught:
        attention(q, k, v)
    assert caught[0].filename == __file__  # the line of whoever called
    beneath_torch = (
        lambda: torch.vmap(lambda q: attention(q, k, v))(q[None]),
        lambda: attention(q, k.clone().requires_grad_(), v),
    )
    for call in beneath_torch:
        with pytest.warns(UserWarning, match="kernels computes this attention in PyTorch") as caught:
            library._warned.clear()
            call()
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rope_attention(q, k, v)
    with pytest.raises(Unsupported, match="the tensors are on cpu") as refused:
        attention(q, k, v, fallback=False)
    assert (refused.value.kind, refused.value.needed, refused.value.allowed) == ("capability", "cpu", "cuda")


def test_decoder_has_the_same_logits_with_the_fused_attention() -> None:
    torch.manual_seed(0)
    config = Config()
    reference, model = Decoder(config, plain).double(), Decoder(config, fused).double()
    model.load_state_dict(reference.state_dict())
    tokens = torch.randint(config.vocabulary, (2, 12))
    with torch.no_grad():
        logits = reference(tokens)
        torch.testing.assert_close(model(tokens), logits, rtol=0, atol=1e-12)
        caches = [Cache(config, batch=2, capacity=16, dtype=torch.float64) for _ in range(config.layers)]
        steps = [model(tokens[:, :4], caches)]
        steps += [model(tokens[:, i : i + 1], caches) for i in range(4, 12)]
    torch.testing.assert_close(torch.cat(steps, 1), logits, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:kernels computes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_same_call_has_the_same_bits_where_pytorch_computes(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, heads, seq, 64).to(dtype) for heads, seq in ((4, 33), (2, 65), (2, 65)))
    first, again = (rope_attention(q, k, v, causal=True) for _ in range(2))
    assert torch.equal(first, again)
