"""Executes the PTX of a kernel on the CPU with NumPy, checks it for hazards and counts what it does.

    module = parse(ptx)
    memory = Memory({"x": x, "out": out}, unwritten={"out"})
    report = execute(module, memory, grid=(64,), block=(256,), args=("x", "out"))
    memory["out"], report.counts, report.findings

`run(plan, inputs)` does this for all launches of a plan.

Counts of a launch are flat names. Instructions are PTX instructions, counted per thread whose predicate
is on. The assembler may fuse a mul with an add or sub that PTX has apart: the GPU then runs more FFMA than
inst.fma, and rounds once where the emulator rounds twice.

    inst.fma  inst.fp32  inst.fp64  inst.fp16  inst.int  inst.cvt
    inst.mufu.sin cos ex2 lg2 rcp rsqrt sqrt tanh    (one each, whatever the rounding)
    inst.ld.global  inst.st.global  inst.ld.shared  inst.st.shared  inst.ld.local  inst.st.local
    inst.atom.global  inst.atom.shared  inst.cp_async  inst.cp_bulk
    inst.shfl  inst.barrier  inst.mma  inst.wgmma  inst.control  inst.other (moves, selections, parameters, votes)

Further:

    event.rotation sin cos sincos pow   marks of `kernels.device.mark`, per thread, where they are enabled

    warp_inst                           instructions issued per warp, whatever the predicate
    global.{read,write}.sectors         distinct 32-byte sectors of each warp instruction; also .<buffer>
    global.read.bytes_requested         bytes that threads asked for
    global.unique_sectors.{read,write}  distinct sectors over the launch
    shared.requests  shared.wavefronts  warp instructions on shared memory, and the cycles they take
    barriers                            block barriers completed, summed over blocks

128-bit shared accesses are served a quarter warp at a time, 64-bit ones half a warp; a phase takes as
many wavefronts as the fullest of the 32 banks holds distinct words. An atomic reads and writes.

Floats are rounded exactly as PTX says; .approx functions are the exact value rounded once, so nearer to
the truth than the hardware. A NaN's bits are not those of the hardware.
"""

from .execute import execute
from .memory.contents import Memory
from .module import Module, parse
from .plan import run
from .report import Finding, LaunchReport, PlanReport, UnknownInstruction

__all__ = ["Finding", "LaunchReport", "Memory", "Module", "PlanReport", "UnknownInstruction", "execute", "parse", "run"]
