"""Phase 7 of the half-precision report beside cuDNN: times of a short and a long call, and how much of the peak."""

from kernels import Problem

from ..evidence import Evidence, measured
from ..findings.tensor_cores import AHEAD, BOTH, CUDNN, LONG, REPORT, WGMMA
from .steps import ceiling
from .table import Table, lines, link, missing, small, status, why_none

STUDY = "half_prompts"
ROWS = {BOTH: "both products", AHEAD: "copies ahead", WGMMA: "wgmma", CUDNN: "cuDNN"}


def phases(e: Evidence) -> Table | str:
    """A row a kernel: its time at the report's shape and at a longer one."""
    study = e.study(STUDY)
    if not study:
        return missing(STUDY)

    def cell(name: str, problem: Problem) -> str:
        us = e.time(name, STUDY, problem=problem)[problem]
        if not us:
            return status(why_none(us))
        return lines(f"{us.value:,.1f} µs", small(f"{100 * ceiling(e, problem) / us.value:.1f} % of the peak"))

    shapes = (REPORT, LONG)
    rows = [(link(name, words), *(cell(name, problem) for problem in shapes)) for name, words in ROWS.items()]
    header = ("kernel", *(f"{problem.seq_q:,} tokens" for problem in shapes))
    of = (f"{each.seq_q:,} tokens: {each.batch * each.heads} heads, head dim {each.hdim}." for each in shapes)
    caption = (
        f"{' '.join(of)} Times are of the GPU alone. Peak: what the tensor cores of the {e.card} were measured to "
        f"reach. cuDNN is that of PyTorch {study.run['torch']}."
    )
    return Table(header, rows, header[1:], caption, source=measured(e, STUDY), title="A short and a long call")
