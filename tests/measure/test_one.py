"""`analysis run`: one version on one problem, without a GPU."""

import pytest

from analysis.errors import DataError
from analysis.measure.one import main


@pytest.mark.parametrize(("version", "status"), [("attention_online", "wrong"), ("attention_online_fixed", "ok")])
def test_run_finds_the_error_that_a_version_declares(capsys, version: str, status: str) -> None:
    assert main([version, "--hdim", "64", "--heads", "2"]) == 0
    declared, found, kernel = capsys.readouterr().out.splitlines()
    assert f"declared {status}" in declared and found.startswith(f"{status}: error ")
    assert "registers" in kernel and "128 blocks" in kernel


def test_run_takes_bfloat16_which_numpy_has_not(capsys) -> None:
    assert main(["rope_decode", "--hdim", "64", "--heads", "2", "--seq-q", "1", "--dtype", "bfloat16"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("ok: error ")


def test_run_names_what_a_version_does_not_take() -> None:
    with pytest.raises(DataError, match="kv_heads is 1; it must equal heads, 4"):
        main(["rope_v7", "--kv-heads", "1"])
