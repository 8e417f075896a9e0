"""The listings and diffs of versions, in the book and in a terminal."""

from __future__ import annotations

import pytest

from analysis import __main__ as command_line
from analysis.book import sources
from kernels import VERSIONS


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command_line.main(list(arguments)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command_line.main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [v.id for v in VERSIONS.values() if not v.is_peer])
def test_every_version_has_a_source_listing(name: str) -> None:
    text = sources.kernel_text(name)
    kernel = '\nextern "C" __global__ void attention(' if name.startswith("control_") else "\ndef "
    assert kernel in f"\n{text}" and "# one call, at" in text and "\nlaunch attention" in text


def test_the_diff_of_the_hybrid_shows_a_launch_and_a_sync_fewer(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "diff", "rope_v7")
    assert "\n-launch rotate_tokens(q, cos, sin, q_rotated)" in shown
    assert "\n-sync" in shown
    assert shown.startswith(f"--- {VERSIONS['rope_v7'].parent}\n+++ rope_v7\n")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("rope_v3_fast_math", " fast-math\n"),  # the launch says how its kernel is built
        ("rope_v3_64_queries", "def attention("),
        ("torch_sdpa_math", "import torch\n"),  # of a peer the file
    ],
)
def test_ablations_variants_and_peers_are_shown(capsys: pytest.CaptureFixture[str], name: str, line: str) -> None:
    assert line in printed(capsys, "show", name)


def test_messages_name_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "show", "rope_v44")
    assert message.startswith("show: no version is called 'rope_v44'; known: rope_v4, ")
    assert all(name in message for name in VERSIONS)
    assert "'rope_v99'" in refused(capsys, "diff", "rope_v4", "rope_v99")
    assert "'rope_v99'" in refused(capsys, "diff", "rope_v99")
    assert refused(capsys, "diff", "rope_separate") == (
        "diff: 'rope_separate' has no parent to compare with; name another version behind it\n"
    )
