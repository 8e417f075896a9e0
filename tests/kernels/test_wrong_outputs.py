"""The float64 models of the log's wrong results can be told from the reference, and give it where their versions do.

That a wrong version computes what its model does, test_versions sees: `faults` compares the two.
"""

import numpy as np
import pytest

from kernels import Problem, Version, version
from kernels.checking.check import Fault, allowance, differences, model_of, problems
from kernels.checking.reference import INPUTS, reference_of
from kernels.registry import OWN

CASES = [(chosen, problem) for chosen in OWN for problem in problems(chosen)]
WRONG = [case for case in CASES if case[0](case[1]).expected == "wrong"]
ALSO_RIGHT = [case for case in CASES if case[0].wrong_output and case not in WRONG]


def as_params(cases: list[tuple[Version, Problem]]) -> list:
    return [pytest.param(*case, id=f"{case[0].id}-{case[1]}") for case in cases]


def test_exactly_the_versions_that_are_wrong_somewhere_have_a_model() -> None:
    assert {chosen.id for chosen, _ in WRONG} == {chosen.id for chosen in OWN if chosen.wrong_output}


@pytest.mark.parametrize(("chosen", "problem"), as_params(ALSO_RIGHT))
def test_model_is_right_where_its_version_is(chosen: Version, problem: Problem) -> None:
    for kind in INPUTS:
        case = reference_of(problem, kind)
        model = model_of(chosen)(problem, **case.inputs)
        np.testing.assert_allclose(model, case.expected.numpy(), rtol=0, atol=1e-6 * case.allowed_abs_err + 1e-12)


@pytest.mark.parametrize(("chosen", "problem"), as_params(WRONG))
def test_model_differs_from_the_truth_by_more_than_its_allowance(chosen: Version, problem: Problem) -> None:
    """So that a version that computed the reference instead would be noticed."""
    for kind in INPUTS:
        case = reference_of(problem, kind)
        assert differences(chosen, problem, case, case.expected.numpy())


def test_values_one_allowance_off_and_nan_in_another_place_are_noticed() -> None:
    chosen, problem = version("attention_online"), Problem("attention", seq_q=40, hdim=64)
    case = reference_of(problem, "sharp")
    model = model_of(chosen)(problem, **case.inputs)
    allowed = np.broadcast_to(allowance(chosen, problem, case), model.shape)
    assert not differences(chosen, problem, case, model)
    finite = np.unravel_index(np.flatnonzero(np.isfinite(model))[-1], model.shape)
    for factor, noticed in ((0.99, False), (1.01, True)):
        off = model.copy()
        off[finite] += factor * allowed[finite]
        assert bool(differences(chosen, problem, case, off)) is noticed
    off = model.copy()
    off[finite] = np.nan
    (fault,) = differences(chosen, problem, case, off)
    assert isinstance(fault, Fault) and fault.by == "value" and "NaN in" in fault.text
