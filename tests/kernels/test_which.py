"""The table by which the op chooses a kernel, and what `python -m kernels which` says of a call."""

import pytest

from kernels.__main__ import which
from kernels.flash.choose import TABLE

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
