"""The ops on a card: right on a user's tensors, under graphs, streams, threads and torch.compile, with their gradients.

`make test-gpu`. In all some 20 seconds beside what compiles.
"""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
import torch
from ops_reference import allowed_of, expected_of, random_call
from torch.library import opcheck

import kernels
from kernels import alibi_attention, attention, rope_attention
from kernels.examples.block import Cache, Config, Decoder, fused, plain
from kernels.runtime import torch_op
from kernels.runtime.tensors import planned_keys

pytestmark = pytest.mark.gpu

CALLS = {
    "rope": lambda q, k, v: rope_attention(q, k, v, causal=True),
    "half-split": lambda q, k, v: rope_attention(q, k, v, interleaved=False, rotary_dim=16),
    "alibi": lambda q, k, v: alibi_attention(q, k, v, causal=True),
    "attention": lambda q, k, v: attention(q, k, v),
}


def small(seq_q: int = 3, seq_k: int = 50, hdim: int = 64, device: str = "cuda") -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(seq_k)
    sizes = ((2, 4, seq_q, hdim), (2, 2, seq_k, hdim), (2, 2, seq_k, hdim))
    return tuple(torch.randn(size, generator=draw).to(device) for size in sizes)


def test_random_calls_are_the_definition_and_none_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "kernels copies")
        for seed in range(1000, 1100):
            name, tensors, arguments = random_call(seed, device="cuda")
            out = getattr(kernels, name)(*tensors, **arguments, fallback=False)
            error = np.abs(out.cpu().double().numpy() - expected_of(name, tensors, arguments)).max()
            # Three TF32 products leave out the product of the low parts, which is below a rounding of each term.
            assert error <= 2 * allowed_of(tensors, arguments), (seed, name, arguments, error)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_graph_replays_on_new_values(call) -> None:
    static, fresh = small(), [x + 0.5 for x in small()]
    call(*static)  # compiles: nothing may be loaded while a graph is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(*static)
    for one, other in zip(static, fresh, strict=True):
        one.copy_(other)
    graph.replay()
    assert torch.equal(out, call(*fresh))


@pytest.mark.parametrize("sizes", [(3, 50, 64), (64, 256, 64)], ids=str)
def test_two_streams_at_once_do_not_meet(sizes) -> None:
    first, second = small(*sizes), [2 * x for x in small(*sizes)]
    exact = [CALLS["rope"](*tensors) for tensors in (first, second)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    wrong = torch.zeros(2, device="cuda")
    for _ in range(1000):
        for i, (stream, tensors) in enumerate(zip(streams, (first, second), strict=True)):
            with torch.cuda.stream(stream):
                wrong[i] += (CALLS["rope"](*tensors) != exact[i]).any()
    torch.cuda.synchronize()
    assert not wrong.any()


def test_two_threads_at_once_do_not_meet() -> None:
    inputs = [small(), tuple(2 * x for x in small())]
    exact = [CALLS["rope"](*tensors) for tensors in inputs]
    wrong = [0, 0]

    def run(i: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(300):
                wrong[i] += not torch.equal(CALLS["rope"](*inputs[i]), exact[i])

    torch.cuda.synchronize()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0, 0]


@pytest.mark.parametrize("card", range(max(torch.cuda.device_count(), 1)))
def test_tensors_are_computed_on_their_card_whichever_is_current(card: int) -> None:
    with torch.cuda.device(0):
        tensors = small(device=f"cuda:{card}")
        out = CALLS["rope"](*tensors)
    assert out.device == tensors[0].device
    assert torch.equal(out.cpu(), CALLS["rope"](*(x.to("cuda:0") for x in tensors)).cpu())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_gradients_are_those_of_pytorch_in_float64(call) -> None:
    single = [x.requires_grad_() for x in small()]
    double = [x.detach().double().requires_grad_() for x in single]
    call(*single).square().sum().backward()
    call(*double).square().sum().backward()
    for one, other in zip(single, double, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=0, atol=1e-4 * float(other.grad.abs().max()))


def test_the_op_is_what_torch_asks_of_one() -> None:
    q, k, v = (x.requires_grad_() for x in small())
    rest = (None, None, None, None, "rope", 64, 1e4, True, True, 47, 0.125, False)
    opcheck(torch_op.attention, (q, k, v, *rest))


def test_compiles_whole() -> None:
    compiled = torch.compile(rope_attention, fullgraph=True, backend="aot_eager")
    for seq_k in (50, 51, 70):
        q, k, v = small(seq_k=seq_k)
        assert torch.equal(compiled(q, k, v, causal=True), rope_attention(q, k, v, causal=True))


def test_a_decode_loop_compiles_for_planned_lengths_alone(capsys: pytest.CaptureFixture) -> None:
    q, k, v = small(seq_q=1, seq_k=3072)
    steps = [rope_attention(q, k[:, :, :n], v[:, :, :n]) for n in {planned_keys(n) for n in range(1, 3001)}]
    capsys.readouterr()
    for n in range(1, 3001, 37):
        steps.append(rope_attention(q, k[:, :, :n], v[:, :, :n]))
    assert capsys.readouterr().err == "" and all(bool(step.isfinite().all()) for step in steps)


def test_a_decoder_has_the_same_logits_with_the_fused_attention() -> None:
    torch.manual_seed(0)
    config = Config(dim=256, heads=4, kv_heads=2, hidden=512)
    reference, model = Decoder(config, plain).cuda(), Decoder(config, fused).cuda()
    exact = Decoder(config, plain).cuda().double()
    for each in (model, exact):
        each.load_state_dict(reference.state_dict())
    tokens = torch.randint(config.vocabulary, (2, 100), device="cuda")
    with torch.no_grad():
        logits = exact(tokens)
        allowed = 4 * float((reference(tokens) - logits).abs().max())  # as the kernels are checked: 4 times fp32's
        caches = [Cache(config, batch=2, capacity=128, device="cuda") for _ in range(config.layers)]
        steps = [model(tokens[:, :64], caches)]
        steps += [model(tokens[:, i : i + 1], caches) for i in range(64, 100)]
        assert float((model(tokens) - logits).abs().max()) <= allowed
        assert float((torch.cat(steps, 1) - logits).abs().max()) <= allowed
