"""Bytes and times of one state of the caches are taken together: a point of the roofline by hand."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.models import profiles, roofline
from analysis.records.current import today
from analysis.records.files import append_rows, problem_columns
from analysis.records.measured import Measured
from tests.evidence.made_up import PROBLEM, add_run, folder

__all__ = ["folder"]
BYTES = {  # read by the L1s from L2, and read and written at DRAM with caches warm and flushed
    "l1tex__m_xbar2l1tex_read_bytes.sum": 7e6,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 0.0,
    "dram__bytes_read.sum": 1e6,
    "dram__bytes_write.sum": 2e6,
    "dram__bytes_read.sum, cold": 3e6,
    "dram__bytes_write.sum, cold": 5e6,
}


def test_cold_bytes_go_with_cold_times(folder: Path) -> None:
    add_run(folder, "1", {"rope_v7": [10.0, 10.0]})
    row = {"run": "1", "study": "log", "version": "rope_v7", **problem_columns(PROBLEM)}
    row["source_hash"] = today("rope_v7")
    cold = {**row, "measured_at": "1", "status": "ok", "process": 1, "timer": "device_cold", "median_us": 20.0}
    append_rows(folder / "timings.csv", "timings", [cold])
    counters = [{**row, "kernel": "k", "launch": 0, "metric": name, "value": value} for name, value in BYTES.items()]
    append_rows(folder / "counters.csv", "counters", counters)
    profiled = profiles.launches(folder)
    read = profiled[["dram_read_bytes", "dram_write_bytes", "dram_read_bytes_cold", "dram_write_bytes_cold"]]
    assert read.iloc[0].tolist() == [1e6, 2e6, 3e6, 5e6]
    points = roofline.points(Measured.read(folder), counted=pd.DataFrame(), profiled=profiled)
    found = points.set_index("level")[["bytes", "us", "gb_s"]]
    assert found.loc["dram"].tolist() == pytest.approx([8e6, 20.0, 400.0])
    assert found.loc["l2"].tolist() == pytest.approx([7e6, 10.0, 700.0])
