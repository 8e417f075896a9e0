"""The page of the kernel: what a reader decides by, and what a reader pastes."""

import contextlib
import inspect
import io
import re

import nbformat
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import kernels
from analysis import figures
from analysis.book.build import NOTEBOOKS
from analysis.evidence import Evidence
from analysis.models import rivals
from analysis.models.rivals import label
from analysis.record.files import DATA, read_rows
from analysis.record.text import NOTHING
from analysis.tables import use
from kernels import rope_attention

PAGE = NOTEBOOKS / "practice.ipynb"


def test_calls_that_lose_are_counted_and_named(e: Evidence) -> None:
    table = use.calls(e).plain()
    lost = [label(problem) for problem, rival in rivals.beside_op(e).items() if rival.over.side < 0]
    slower = table.header.index("slower")
    counted = sum(int(row[slower]) for row in table.rows if "float32" in row[0])
    assert counted == len(lost) > 0 and all(name in table.caption for name in lost)


def test_each_shape_of_the_map_has_a_mark_that_no_other_hides(e: Evidence) -> None:
    plot = figures.fuse_map(e)
    lines = [(id(axis), line.get_xydata()) for axis in plot.figure.axes for line in axis.lines]
    assert len({(axis, *at[0]) for axis, at in lines if len(at)}) == len(plot.data) > 100


@pytest.mark.filterwarnings("ignore:.*computes this attention in PyTorch")
def test_example_of_the_page_prints_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = [cell for cell in nbformat.read(PAGE, as_version=4).cells if "It prints" in cell.source]
    told = {kind: "".join(re.findall(rf"```{kind}\n(.*?)```", cell.source, re.S)) for kind in ("python", "text")}
    monkeypatch.setitem(__import__("sys").modules, "fused_pe", kernels)
    device, out = "cuda" if torch.cuda.is_available() else "cpu", io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(told["python"].replace('"cuda"', repr(device)), {})
    assert out.getvalue() == told["text"] != ""


@pytest.mark.filterwarnings("ignore:.*computes this attention in PyTorch")
@pytest.mark.parametrize("seed", range(2))
def test_inputs_of_the_example_tell_rounding_from_a_forgotten_rope(seed: int) -> None:
    """Its inputs spread as its comment says: bfloat16 moves a result by about 0.01, leaving out RoPE by 1 or more."""
    torch.manual_seed(seed)
    q = torch.randn(1, 32, 512, 128, dtype=torch.bfloat16)
    k, v = torch.randn(2, 1, 8, 512, 128, dtype=torch.bfloat16)
    angles = torch.arange(512.0).double().outer(10000.0 ** (-torch.arange(64).double() / 64))

    def rotated(x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)

    wide = [x.double() for x in (q, *(x.repeat_interleave(4, 1) for x in (k, v)))]
    plain, exact = (
        scaled_dot_product_attention(embed(wide[0]), embed(wide[1]), wide[2], is_causal=True)
        for embed in (torch.clone, rotated)
    )
    out = rope_attention(q, k, v, causal=True, interleaved=False)
    assert (out - exact).abs().max() < 0.01
    assert (plain - exact).abs().max() > 1


@pytest.mark.filterwarnings("ignore:.*computes this attention in PyTorch")
def test_recipes_of_the_page_give_what_each_sequence_gives_alone() -> None:
    (cell,) = [cell for cell in nbformat.read(PAGE, as_version=4).cells if "a row for each token" in cell.source]
    (code,) = re.findall(r"```python\n(.*?)```", cell.source, re.S)
    made = {"torch": torch, "rope_attention": rope_attention}
    ragged, padded = (part.replace('"cuda"', '"cpu"') for part in code.split("\n\n"))
    exec(ragged, made)
    cos, sin, inputs = made["cos"], made["sin"], [made[name] for name in "qkv"]
    exec(padded, made)
    for i, unpadded in ((0, 10), (1, 0)):
        alone = [x[i : i + 1] for x in inputs]
        out = rope_attention(*alone, causal=True, interleaved=False, cos=cos[i], sin=sin[i])
        torch.testing.assert_close(made["out"][i : i + 1], out, rtol=0, atol=1e-5)
        out = rope_attention(*(x[:, :, unpadded:] for x in alone), causal=True)
        torch.testing.assert_close(made["padded"][i : i + 1, :, unpadded:], out, rtol=0, atol=1e-5)


def test_row_of_models_has_arguments_or_why_they_are_refused() -> None:
    rows = use.families().plain().rows
    recorded = [row["family"] for row in read_rows(DATA / "families.csv", "families")]
    assert sorted(name for row in rows for name in row[0].split(", ")) == sorted(recorded)
    assert all((row[1] == NOTHING) == (row[2] == NOTHING) for row in rows)
    assert all(row[3] == "yes" or row[3].startswith("refused: ") for row in rows)


def test_book_tells_every_argument_of_the_op_and_its_default() -> None:
    """A default is told as it is written in Python, where it is not a tensor's or made of the others."""
    cells = nbformat.read(PAGE, as_version=4).cells
    (cell,) = [cell for cell in cells if "| argument | what it is |" in cell.source]
    firsts = [line.split(" | ")[0] for line in cell.source.splitlines() if line.startswith("| `")]
    told = {name: default for first in firsts for name, default in re.findall(r"`(\w+)=?(\w*)`", first)}
    parameters = inspect.signature(rope_attention).parameters
    assert list(told) == list(parameters)
    for name, parameter in parameters.items():
        if parameter.default not in (parameter.empty, None):
            assert told[name] == f"{parameter.default:g}" if name == "base" else str(parameter.default)
    for name in re.findall(r"`(\w+)\(q, k, v", cell.source):
        assert hasattr(kernels, name)
