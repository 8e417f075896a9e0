"""Registers of the controls by release of CUDA: compilers in a folder, and the recorded table."""

import sys
from functools import partial
from pathlib import Path

import pytest

from analysis.errors import MeasureError
from analysis.evidence import NotMeasured
from analysis.evidence.current import outdated
from analysis.measure import releases
from analysis.models.waves import released
from analysis.record import files

INSTALLED = next(Path(path) / "nvidia" for path in sys.path if path.endswith("site-packages"))
CONTROLS = {(name, launch.kernel.name): launch for name, _, launch in releases.controls()}
V7 = "control_rope_v7", "attention"


def test_every_release_is_recorded_with_todays_controls() -> None:
    rows = files.read_table(files.RELEASES, "releases")
    assert not outdated(rows).any(), "python -m analysis releases DIR... brings them up to date"
    by_nvrtc = rows[rows["compiler"] == "NVRTC"]
    assert {"11.8.89", "12.4.131", "13.0.88", "13.5.37"} <= set(by_nvrtc["release"])
    for _, mine in rows.groupby(["release", "compiler", "target", "build"]):
        assert set(zip(mine["version"], mine["kernel"], strict=True)) == set(CONTROLS)
    assert set(by_nvrtc.groupby("release").size()) == {len(releases.TARGETS) * len(releases.BUILDS) * len(CONTROLS)}


@pytest.mark.parametrize("build", ["default", "rdc"])
def test_installed_release_compiles_what_is_recorded_of_it(build: str) -> None:
    write_ptx = partial(releases.ptx_by_nvrtc, releases.nvrtc_of(INSTALLED))
    found = releases.compiled(write_ptx, releases.only(INSTALLED, "ptxas"), CONTROLS[V7], "sm_89", build)
    rows = released(V7[0], compiler="NVRTC", target="sm_89", build=build)
    (recorded,) = rows[rows["release"] == found["release"]].to_dict("records")
    assert found == {column: recorded[column] for column in found}


def test_ptxas_of_another_release_than_the_compiler_is_refused() -> None:
    head, ptxas = "// release 11.8, V11.8.89\n.version 7.8", releases.only(INSTALLED, "ptxas")
    ptx = f"{head}\n.target sm_89\n.address_size 64\n.visible .entry attention() {{ ret; }}"
    with pytest.raises(MeasureError, match="ptxas is not of the release of the compiler"):
        releases.compiled(lambda function, options: ptx, ptxas, CONTROLS[V7], "sm_89", "default")


def test_rows_are_chosen_by_column_and_where_there_are_none_it_is_said() -> None:
    rows = released(V7[0], target="sm_89", build="default", compiler="NVRTC")
    assert rows["release"].is_unique and set(rows["kernel"]) == {"attention"} and rows["registers"].gt(0).all()
    with pytest.raises(NotMeasured, match="control_rope_v7: no release of CUDA is recorded for sm_75"):
        released(V7[0], target="sm_75")
