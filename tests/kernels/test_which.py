"""The table by which the op chooses a kernel, and what `python -m kernels which` says of a call."""

import pytest

from kernels.__main__ import which
from kernels.flash.call import NAMES, request_of
from kernels.flash.choose import TABLE, chosen
from kernels.version import Problem, Unsupported

EXAMPLES = [
    ("--heads 32 --kv-heads 8 --seq-k 4096", "decode (rope_decode)", ("decode_mma", "combine")),
    ("--seq-q 64 --kv-heads 8", "prompt (rope_prompt)", ("rotate_keys", "prompt_mma")),
    ("--seq-q 256 --kv-heads 8", "prompt_persistent (rope_prompt_persistent)",
     ("rotate_keys", "prompt_persistent")),
    ("--seq-q 256 --kv-heads 8 --hdim 256", "prompt (rope_prompt)", ("rotate_keys", "prompt_wgmma")),
    ("--seq-q 64 --batch 16 --kv-heads 8", "prompt (rope_prompt)", ("rotate_keys", "prompt_wgmma")),
    ("--seq-q 5 --seq-k 1714 --hdim 4096 --dtype float32", "wide_decode (rope_wide_decode)", ("wide", "combine")),
    ("--seq-q 3 --seq-k 4096 --hdim 512 --dtype float32", "wide_decode (rope_wide_decode)", ("wide", "combine")),
    ("--heads 8 --seq-k 4096 --hdim 512 --dtype float32", "decode (rope_decode)", ("decode_fma", "combine")),
    ("--heads 64 --kv-heads 8 --seq-q 9 --seq-k 16384 --dtype float32", "chunk (rope_chunk)", ("chunk", "combine")),
    ("--heads 8 --seq-q 2048 --dtype float32", "prompt32 (rope_prompt32)", ("split", "prompt_parts")),
    ("--heads 4 --seq-q 64 --hdim 2048 --dtype float32", "cluster (rope_v8)", ("attention_wgmma_c8_q24_w256",)),
    ("--heads 64 --kv-heads 8 --seq-q 9 --seq-k 9999", "prompt_split (rope_prompt_split)",
     ("rotate_keys", "prompt_wgmma", "combine")),
    ("--seq-q 64 --target sm_75", "PyTorch", ()),
]


def test_every_rule_has_an_example_by_the_name_of_its_kernel() -> None:
    assert {kernel.partition(" ")[0] for _, kernel, _ in EXAMPLES} == {"PyTorch", *(rule.kernel for rule in TABLE)}


@pytest.mark.parametrize(("arguments", "kernel", "launches"), EXAMPLES)
def test_example_of_each_rule_is_served_by_its_kernel(capsys, arguments: str, kernel: str, launches) -> None:
    assert which(arguments.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert kernel in lines
    shown = [line.strip() for line in lines if line.startswith("  ")]
    assert all(line.startswith(name) for line, name in zip(shown, launches, strict=True))


def test_head_dim_that_one_rule_refuses_goes_to_the_next(capsys) -> None:
    which(["--heads", "8", "--seq-q", "64", "--seq-k", "512", "--dtype", "float32"])
    assert capsys.readouterr().out.splitlines()[0] == "not chunk: V8 is as fast for 512 keys"


LARGE = [  # (sizes, the version that takes them; None: no kernel does)
    ({"batch": 70_000, "seq_k": 128, "hdim": 64}, "rope_v8"),
    ({"batch": 70_000, "seq_k": 128, "hdim": 1024}, "rope_v8"),
    ({"heads": 70_000, "seq_q": 9, "seq_k": 20_000, "hdim": 64}, "rope_v8"),
    ({"batch": 70_000, "seq_k": 128, "hdim": 64, "dtype": "float16"}, None),
    ({"heads": 8, "kv_heads": 1, "seq_q": 2**18, "hdim": 128, "dtype": "float16", "causal": True},
     "rope_prompt_persistent"),
    ({"heads": 16, "kv_heads": 1, "seq_q": 2**18, "hdim": 256, "causal": True}, "rope_hybrid_v8"),
]


@pytest.mark.parametrize(("sizes", "version"), LARGE)
def test_call_goes_to_a_kernel_whose_grid_holds_it(sizes: dict, version: str | None) -> None:
    problem = Problem("rope", **{"seq_q": 1, **sizes, "rotary_dim": sizes["hdim"]})
    request = request_of(problem, "sm_90")
    if version is None:
        with pytest.raises(Unsupported, match="the grid is 70,000 blocks along z; a GPU takes 65,535"):
            chosen(request)
    else:
        call = chosen(request)
        assert call.version == version and call.launches(NAMES, problem.seq_k)


@pytest.mark.parametrize("scale", [1e-50, 1e-39])
def test_scale_that_is_0_in_float32_goes_to_a_kernel_that_takes_it(scale: float) -> None:
    """A kernel that masks before it scales would get -inf * 0, which is NaN."""
    problem = Problem("rope", heads=8, seq_q=2048, hdim=128, rotary_dim=128, causal=True)
    assert chosen(request_of(problem, "sm_90")).version == "rope_prompt32"
    assert chosen(request_of(problem, "sm_90", scale=scale)).version == "rope_hybrid_v8"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--seq-k 0", "seq_k is 0; it must be an integer of 1 or more"),
        ("--kv-heads 0", "kv_heads is 0; it must be an integer of 1 or more"),
        ("--sms 0", "sms is 0; it must be 1 or more"),
        ("--target hopper", "target is 'hopper'; allowed: sm_75"),
        ("--family attention --rotary-dim 8", "rotary_dim is given; attention rotates nothing"),
        ("--family alibi --half-split --tables", "half_split is given; alibi rotates nothing"),
        ("--seq-q 10 --seq-k 5 --causal", "q_offset is -5, which is seq_k - seq_q = 5 - 10; it must be 0 or more"),
        ("--seq-k 5 --lengths --q-offset 1", "lengths and q_offset are given"),
    ],
)
def test_call_that_the_op_refuses_is_refused_in_one_line(capsys, arguments: str, message: str) -> None:
    assert which(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"which: {message}")


def test_queries_before_the_first_key_are_taken_where_the_op_takes_them(capsys) -> None:
    for taken in ("--q-offset 0", "--lengths", "--family attention"):
        assert which(["--seq-q", "10", "--seq-k", "5", *taken.split()]) == 0
    assert "PyTorch" not in capsys.readouterr().out.splitlines()
