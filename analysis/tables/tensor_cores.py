"""Phase 7 of the half-precision report beside libraries: times of a short and a long call, and how much of the peak."""

from kernels import Problem

from ..evidence import Evidence, measured
from ..findings.tensor_cores import AHEAD, BOTH, CUDNN, LONG, PHASE4, REPORT, SCORES, STUDY, WGMMA
from ..models.rivals import label
from ..studies import FLASHINFER, unrotated
from .environment import what_changed
from .steps import ceiling
from .table import Table, lines, link, missing, small, status, why_none
from .versions import ASSEMBLER

ROWS = {
    PHASE4: "Phase 4",
    SCORES: "7a, scores in registers",
    BOTH: "7b, both products",
    AHEAD: "7c, copies ahead",
    WGMMA: "7d, wgmma",
    FLASHINFER[1]: "FlashInfer",
    CUDNN: "cuDNN",
}


def phases(e: Evidence) -> Table | str:
    """A row a kernel: its time at the report's shape and at a longer one."""
    study = e.study(STUDY)
    if not study:
        return missing(STUDY)

    def cell(name: str, problem: Problem) -> str:
        problem = unrotated(problem) if name == FLASHINFER[1] else problem
        us = e.time(name, STUDY, problem=problem)[problem]
        if not us:
            return status(why_none(us))
        return lines(f"{us.value:,.1f} µs", small(f"{100 * ceiling(e, problem) / us.value:.1f} % of the peak"))

    shapes = (REPORT, LONG)
    rows = [(link(name, words), *(cell(name, problem) for problem in shapes)) for name, words in ROWS.items()]
    header = ("kernel", *(f"{problem.seq_q:,} tokens" for problem in shapes))
    of = (f"{each.seq_q:,} tokens: {label(each)}." for each in shapes)
    caption = (
        f"{' '.join(of)} Times are of the GPU alone. Peak: what the tensor cores of the {e.card} were measured to "
        f"reach. cuDNN is that of PyTorch {study.run['torch']}. The long call has a batch of {LONG.batch}: "
        "FlashInfer takes 1 here, and Phase 4 takes head dim 64 alone."
    )
    older = [words for name, words in ROWS.items() if what_changed(study, name) == "assembler"]
    caption += f" {', '.join(older)}: {ASSEMBLER}." * bool(older)
    return Table(header, rows, header[1:], caption, source=measured(e, STUDY), title="A short and a long call")
