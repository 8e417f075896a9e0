"""The ops inside PyTorch: gradients, torch.compile, `out=`, and tensors that record what is done to them."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode

from kernels import Unsupported, alibi_attention, attention, rope_attention
from kernels.op import library
from tests.sampling import swept

pytestmark = pytest.mark.filterwarnings("ignore:kernels computes this attention in PyTorch")

POSITIONS = torch.tensor([[3, 9, 1, 4, 4, 20], [0, 1, 2, 3, 4, 5]])
CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "rope": lambda q, k, v: rope_attention(q, k, v, rotary_dim=6, causal=True, positions=POSITIONS),
    "half-split": lambda q, k, v: rope_attention(q, k, v, interleaved=False, q_offset=1, scale=0.4),
    "alibi": lambda q, k, v: alibi_attention(q, k, v, causal=True),
    "attention": lambda q, k, v: attention(q, k, v, causal=True, q_offset=0),
}


def small(needs: str = "qkv", seq_k: int = 5, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """q of 4 heads, k and v of 2, of batch 2; those named in `needs` require grad."""
    draw = torch.Generator().manual_seed(0)
    sizes = {"q": (2, 4, 3, 8), "k": (2, 2, seq_k, 8), "v": (2, 2, seq_k, 8)}
    made = {name: torch.randn(size, generator=draw, dtype=dtype) for name, size in sizes.items()}
    return [tensor.requires_grad_(name in needs) for name, tensor in made.items()]


@pytest.mark.parametrize("name", swept(zip(CALLS), 2, 2))
def test_gradients_and_theirs_are_the_differences(name: str) -> None:
    assert torch.autograd.gradcheck(CALLS[name], small())
    assert torch.autograd.gradgradcheck(CALLS[name], small(), fast_mode=True)


@pytest.mark.parametrize("name", CALLS)
def test_flops_are_counted_as_those_of_both_products(name: str) -> None:
    tensors = small("", dtype=torch.float32)
    with FlopCounterMode(display=False) as ours:
        CALLS[name](*tensors)
    q, k, v = tensors[0], *(x.repeat_interleave(2, 1) for x in tensors[1:])
    with FlopCounterMode(display=False) as theirs:
        _ = q @ k.mT @ v
    assert ours.get_total_flops() == theirs.get_total_flops() > 0


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_distributed_tensor_is_refused_with_advice_that_works(mesh: DeviceMesh) -> None:
    plain = [x.detach() for x in small(dtype=torch.float32)]
    right = alibi_attention(*plain)
    sharded = [distribute_tensor(x, mesh, [Shard(1)]) for x in plain]
    refusal = r"{} is a DTensor.*call it on {}\.to_local\(\)".format
    with pytest.raises(TypeError, match=refusal("q", "q")):
        alibi_attention(*sharded)
    with pytest.raises(TypeError, match=refusal("v", "v")):
        alibi_attention(*plain[:2], sharded[2])
    with pytest.raises(TypeError, match=refusal("out", "out")):
        alibi_attention(*plain, out=sharded[0])
    slopes = 2.0 ** -torch.arange(2, 9, 2)
    assert torch.equal(alibi_attention(*[x.to_local() for x in sharded], slopes=slopes), right)


@pytest.mark.parametrize("packaged", [True, False])
def test_package_of_aotinductor_for_a_card_is_refused(packaged: bool) -> None:
    with FakeTensorMode(), V.set_graph_handler(SimpleNamespace(aot_mode=packaged)):
        on_cpu, on_card = (torch.empty(1, 2, 3, 8, device=device) for device in ("cpu", "cuda"))
        assert rope_attention(on_cpu, on_cpu, on_cpu).shape == on_cpu.shape
        refusal = pytest.raises(RuntimeError, match="AOTInductor cannot package") if packaged else nullcontext()
        with refusal:
            assert rope_attention(on_card, on_card, on_card).shape == on_card.shape


@pytest.mark.parametrize("needs", ["q", "k", "v", "qv"])
def test_any_of_q_k_v_may_require_grad(needs: str) -> None:
    tensors, all_of_them = small(needs), small()
    CALLS["rope"](*tensors).square().sum().backward()
    CALLS["rope"](*all_of_them).square().sum().backward()
    for name, tensor, other in zip("qkv", tensors, all_of_them, strict=True):
        assert torch.equal(tensor.grad, other.grad) if name in needs else tensor.grad is None


@pytest.mark.parametrize(("needs", "products"), [("q", 3), ("k", 3), ("v", 2), ("qv", 4), ("qkv", 5)])
def test_gradients_that_nobody_asks_for_are_not_computed(needs: str, products: int) -> None:
    """The scores are computed again, and their gradient from that of the output; then a product for each gradient."""
    out = CALLS["half-split"](*small(needs))
    with FlopCounterMode(display=False) as counted:
        out.backward(torch.ones_like(out))
    assert counted.get_total_flops() == products * 2 * 2 * 4 * 3 * 5 * 8  # batch, heads, queries, keys, dims


def test_forward_keeps_no_more_than_its_arguments() -> None:
    kept: list[torch.Tensor] = []
    tensors = small()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        CALLS["rope"](*tensors)
    assert {x.data_ptr() for x in kept} == {x.data_ptr() for x in (*tensors, POSITIONS)}


@pytest.mark.parametrize(
    "rest",
    [
        (None, None, POSITIONS, None, torch.tensor([5, 3]).int(), "rope", 6, 1e4, True, True, 2, 0.3, True),
        pytest.param(
            (None, None, None, torch.rand(4).double(), None, "alibi", 0, 1e4, False, False, 2, 0.3, True),
            marks=pytest.mark.deep,
        ),
    ],
    ids=["rope", "alibi"],
)
def test_op_passes_opcheck(rest) -> None:
    q, k, v = small()
    q = q.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    opcheck(library.attention, (q, k, v, *rest))


@pytest.mark.parametrize("name", ["half-split", pytest.param("alibi", marks=pytest.mark.deep)])
def test_op_compiles_whole_with_its_gradients(name: str) -> None:
    compiled = torch.compile(CALLS[name], fullgraph=True, backend="aot_eager")
    tensors, same = small(), small()
    out, eager = compiled(*tensors), CALLS[name](*same)
    out.square().sum().backward()
    eager.square().sum().backward()
    assert torch.equal(out, eager) and out.stride() == eager.stride()
    for one, other in zip(tensors, same, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-13)


def test_compiled_decode_compiles_twice_however_long() -> None:
    compiled = torch.compile(rope_attention, fullgraph=True, backend=(counter := Counter()))
    for seq_k in range(4, 20):
        q, k, v = small("", seq_k=seq_k)
        assert torch.equal(compiled(q, k, v, causal=True), rope_attention(q, k, v, causal=True))
    assert counter.graphs == 2


class Counter:
    graphs = 0

    def __call__(self, module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        self.graphs += 1
        return module.forward


@pytest.mark.deep
def test_op_compiles_by_inductor() -> None:
    compiled = torch.compile(CALLS["half-split"], fullgraph=True)
    tensors = small("")
    torch.testing.assert_close(compiled(*tensors), CALLS["half-split"](*tensors), rtol=0, atol=1e-14)


@pytest.mark.parametrize("compiles", [False, True])
def test_out_is_written_in_its_own_layout(compiles: bool) -> None:
    def write(q: Any, k: Any, v: Any, out: Any) -> torch.Tensor:
        return rope_attention(q, k, v, out=out)

    if compiles:
        write = torch.compile(write, fullgraph=True, backend="aot_eager")
    q, k, v = small("")
    exact = rope_attention(q, k, v)
    for out in (torch.empty(2, 3, 4, 8).double().transpose(1, 2), torch.empty(2, 4, 3, 16).double()[..., ::2]):
        assert write(q, k, v, out) is out
        assert torch.equal(out, exact)


def test_gradient_through_out_is_refused() -> None:
    q, k, v = small("k")
    with pytest.raises(RuntimeError, match="out is given and an argument requires grad"):
        attention(q, k, v, out=torch.empty_like(q))
    with torch.no_grad():
        attention(q, k, v, out=torch.empty_like(q))


def test_modes_and_subclasses_see_the_op() -> None:
    """Modes that watch, fake or transform operations see the op: a bare launch would bypass them."""
    q, k, v = small("")
    seen: list[str] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        attention(q, k, v)
    assert "kernels.attention.default" in seen
    with torch._subclasses.FakeTensorMode() as mode:
        fake = attention(*(mode.from_tensor(x) for x in (q, k, v)))
    assert fake.shape == q.shape
    traced = torch.fx.experimental.proxy_tensor.make_fx(CALLS["attention"])(q, k, v)
    assert "kernels.attention.default" in traced.code
    parameter = torch.nn.Parameter(q, requires_grad=False)
    assert torch.equal(attention(parameter, k, v), attention(q, k, v))


def test_transforms_are_computed_by_pytorch() -> None:
    q, k, v = small("")
    grads = torch.func.grad(lambda q: CALLS["rope"](q, k, v).square().sum())(q)
    tensors = small("q")
    CALLS["rope"](*tensors).square().sum().backward()
    torch.testing.assert_close(grads, tensors[0].grad, rtol=0, atol=1e-13)
    heads = torch.vmap(lambda q: attention(q, k, v))(torch.stack((q, 2 * q)))
    torch.testing.assert_close(heads[1], attention(2 * q, k, v), rtol=0, atol=1e-14)
    _, change = torch.func.jvp(lambda q: attention(q, k, v), (q,), (torch.ones_like(q),))
    near = (attention(q + 1e-6, k, v) - attention(q - 1e-6, k, v)) / 2e-6
    torch.testing.assert_close(change, near, rtol=0, atol=1e-8)
    with forward_ad.dual_level():
        dual = attention(forward_ad.make_dual(q, torch.ones_like(q)), k, v)
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, change)
    with pytest.raises(Unsupported, match="inside a transform of torch"):
        torch.vmap(lambda q: attention(q, k, v, fallback=False))(q[None])


def test_tensors_on_the_meta_device_go_forward_and_back() -> None:
    for call in (CALLS["half-split"], CALLS["alibi"], CALLS["attention"]):
        tensors = [x.detach().to("meta").requires_grad_() for x in small()]
        out = call(*tensors)
        assert out.is_meta and out.shape == tensors[0].shape
        out.sum().backward()
        assert all(x.grad.is_meta and x.grad.shape == x.shape for x in tensors)
        with torch.no_grad():
            assert call(*tensors).is_meta


@pytest.mark.parametrize("needs", ["", "qkv"])
def test_trace_that_would_keep_the_sizes_of_its_example_is_refused(needs: str) -> None:
    with pytest.raises(RuntimeError, match=r"torch\.jit\.trace keeps the sizes and indices of its example"):
        torch.jit.trace(CALLS["attention"], tuple(small(needs)), check_trace=False)


def test_flag_that_torch_compile_traces_may_depend_on_the_shape() -> None:
    compiled = torch.compile(lambda q, k, v: attention(q, k, v, causal=k.shape[2] > 5), dynamic=True, backend="eager")
    for seq_k in (4, 6, 7):
        tensors = small("", seq_k=seq_k)
        assert torch.equal(compiled(*tensors), attention(*tensors, causal=seq_k > 5))


def test_gradients_of_a_negated_view_have_its_sign() -> None:
    z = torch.randn(2, 2, 5, 8, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    q, _, v = small("q")
    out = [attention(q, k, v) for k in (z.conj().imag, -z.imag)]
    assert torch.equal(*(torch.autograd.grad(each.square().sum(), q)[0] for each in out))
