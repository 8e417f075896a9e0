"""The listings and diffs of versions, in the book and in a terminal."""

from __future__ import annotations

import pytest

from analysis import __main__ as command_line
from analysis.book import sources
from kernels import VERSIONS


def said(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    assert command_line.main(list(arguments)) == code
    printed = capsys.readouterr()
    assert not printed.out or not code
    return printed.err if code else printed.out


def test_every_version_has_a_source_listing() -> None:
    for name in (each.id for each in VERSIONS.values() if not each.is_peer):
        text = sources.kernel_text(name)
        kernel = '\nextern "C" __global__ void attention(' if name.startswith("control_") else "\ndef "
        assert kernel in f"\n{text}" and "# one call, at" in text and "\nlaunch " in text, name


def test_versions_and_their_diffs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, 0, "diff", "rope_v7")
    assert "\n-launch rotate_tokens(q, cos, sin, q_rotated)" in shown and "\n-sync" in shown
    assert shown.startswith(f"--- {VERSIONS['rope_v7'].parent}\n+++ rope_v7\n")
    assert " fast-math\n" in said(capsys, 0, "show", "rope_v3_fast_math")  # how its kernel is built
    assert "import torch\n" in said(capsys, 0, "show", "torch_sdpa_math")  # of a peer the file


def test_messages_name_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    message = said(capsys, 1, "show", "rope_v44")
    assert message.startswith("show: no version is called 'rope_v44'; known: rope_v4, ")
    assert "'rope_v99'" in said(capsys, 1, "diff", "rope_v4", "rope_v99")
    assert "name another version behind it" in said(capsys, 1, "diff", "rope_separate")
