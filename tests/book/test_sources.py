"""The listings and diffs of versions, in the book and in a terminal."""

from __future__ import annotations

import io
import sys

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


def test_another_version_takes_the_place_of_the_parent(capsys: pytest.CaptureFixture[str]) -> None:
    head, _, shown = printed(capsys, "diff", "rope_v7", "rope_v4").partition("\n@@")
    assert head == "--- rope_v4\n+++ rope_v7"
    for sign, name in (("-", "rope_v4"), ("+", "rope_v7")):
        changed = {line[1:] for line in shown.splitlines()[1:] if line.startswith(sign)}
        assert changed and changed <= set(sources.kernel_text(name).splitlines())


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


def test_a_variant_differs_from_its_parent_in_the_build_alone(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "diff", "rope_v3_fast_math").splitlines()[2:]
    changed = [line for line in lines if line[0] in "+-"]
    assert len(changed) == 2 and changed[1] == f"+{changed[0][1:]} fast-math"


def test_versions_alike_line_for_line_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["diff", "rope_v4", "rope_v4"]) == 0
    assert capsys.readouterr() == ("", "diff: rope_v4 has the kernels and the launches of rope_v4, line for line\n")


def test_messages_name_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "show", "rope_v44")
    assert message.startswith("show: no version is called 'rope_v44'; known: rope_v4, ")
    assert all(name in message for name in VERSIONS)
    assert "'rope_v99'" in refused(capsys, "diff", "rope_v4", "rope_v99")
    assert "'rope_v99'" in refused(capsys, "diff", "rope_v99")
    assert refused(capsys, "diff", "rope_separate") == (
        "diff: 'rope_separate' has no parent to compare with; name another version behind it\n"
    )


def test_only_a_terminal_gets_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    plain = printed(capsys, "diff", "rope_v7")
    assert "\033" not in plain
    for name, coloured in (("NO_COLOUR", True), ("NO_COLOR", False)):
        with monkeypatch.context() as patch:
            patch.delenv("NO_COLOR", raising=False)
            patch.setenv(name, "1")
            patch.setattr(sys, "stdout", Terminal())
            assert command_line.main(["diff", "rope_v7"]) == 0
            text = sys.stdout.getvalue()
        assert ("\033[31m-sync\033[0m\n" in text) == coloured
        for code in (*sources.COLOURS.values(), sources.PLAIN):
            text = text.replace(code, "")
        assert text == plain
