"""Prompts in half precision where a block has less shared memory."""

from functools import partial

import flash_plans
import pytest

from kernels.flash.prompts.plan import shape_of, split_shape

problem_of, assert_right = (partial(made, "mma") for made in (flash_plans.problem_of, flash_plans.assert_right))


@pytest.mark.deep
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_120"])
@pytest.mark.parametrize("hdim", [64, 128, 256])
def test_smaller_cards_have_less_in_shared_memory(target: str, hdim: int) -> None:
    problem = problem_of(hdim=hdim, rotary_dim=hdim, seq_k=600, seq_q=20, causal=True, q_offset=580)
    shape = shape_of("float16", hdim, 600, "rates", False, target)
    splits = [split_shape("float16", hdim, rows, "rates", False, target) for rows in (16, 32, 64)]
    most = {"sm_80": 163, "sm_89": 99, "sm_120": 99}[target] << 10
    assert max(each.layout.nbytes for each in (shape, *splits)) <= most
    assert_right(problem, target=target)
    assert_right(problem, target=target, split=True, sms=4)
