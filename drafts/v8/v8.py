"""Time rope_v8's candidates on the card, and where their time goes: python3 .yardstick/v8.py from the repository root.

Sections of CSV: probes; time of every (problem, candidate); ablations (result wrong on purpose, marked `ablated`);
stamps: cycles from a block's start to the end of each phase, by the clock of its SM, and where the blocks sat.
`python3 .yardstick/v8.py check` compiles everything here, without a card.
"""
import ctypes
import hashlib
import importlib
import math
import multiprocessing
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, os.getcwd())
T0 = time.time()
import numpy as np  # noqa: E402
import torch  # noqa: E402

import kernels  # noqa: E402
import kernels.rope.v8_cluster as B  # noqa: E402
import kernels.rope.v8_direct as D  # noqa: E402
from kernels.version import Buffer, Launch, Plan, Problem, version  # noqa: E402

GENERATED = Path(tempfile.gettempdir()) / f"v8_generated_{os.getuid()}"
GENERATED.mkdir(exist_ok=True)
sys.path.insert(0, str(GENERATED))


def P(b, h, s, d, r, **k):
    return Problem("rope", b, h, seq_q=s, hdim=d, rotary_dim=r, **k)


MAIN, MID, SMALL, LONG, LONGEST = P(1, 4, 64, 2048, 128), P(1, 4, 64, 512, 128), P(1, 4, 64, 128, 64), P(1, 2, 32, 4096, 128), P(1, 1, 16, 8192, 128)
FILLED, FILLED_MID = P(8, 16, 64, 2048, 128), P(8, 16, 64, 512, 128)
# "B": (cluster, queries, keys, threads) of v8_cluster; "D": (cluster, query tiles of 16, warps[, blocks an SM]) of v8_direct
SWEEP = {
    MAIN: [("B", 16, 32, 64, 256), ("B", 8, 32, 64, 256), ("D", 6, 1, 11), ("D", 8, 1, 8, 2), ("D", 4, 1, 16), ("D", 5, 1, 13), ("D", 8, 2, 8)],
    MID: [("B", 8, 32, 64, 256), ("D", 4, 1, 8), ("D", 4, 1, 4), ("D", 2, 1, 8), ("D", 8, 1, 4, 2), ("D", 2, 1, 16)],
    SMALL: [("B", 4, 16, 64, 256), ("D", 1, 1, 8), ("D", 2, 1, 4), ("D", 1, 1, 4), ("D", 4, 1, 2)],
    LONG: [("B", 16, 16, 32, 256), ("D", 16, 1, 8), ("D", 8, 1, 16), ("D", 16, 1, 16)],
    LONGEST: [("B", 16, 16, 16, 256), ("D", 16, 1, 16), ("D", 16, 1, 8)],
    FILLED: [("B", 16, 32, 64, 256), ("D", 8, 1, 8, 2), ("D", 8, 2, 8), ("D", 4, 1, 16), ("D", 6, 1, 11)],
    FILLED_MID: [("B", 8, 32, 64, 256), ("D", 4, 1, 8), ("D", 4, 1, 4), ("D", 2, 1, 8), ("D", 8, 1, 4, 2)],
}
STAMPED = {
    MAIN: [("B", 16, 32, 64, 256), ("B", 8, 32, 64, 256), ("D", 6, 1, 11), ("D", 8, 1, 8, 2), ("D", 4, 1, 16)],
    MID: [("D", 4, 1, 8)],
    SMALL: [("D", 1, 1, 8)],
    LONG: [("D", 16, 1, 8)],
    LONGEST: [("B", 16, 16, 16, 256), ("D", 16, 1, 16)],
    FILLED: [("D", 8, 1, 8, 2)],
}
ABLATED = {MAIN: [("B", 16, 32, 64, 256), ("B", 8, 32, 64, 256), ("D", 6, 1, 11), ("D", 8, 1, 8, 2)], LONGEST: [("B", 16, 16, 16, 256)]}

SYNCS = ("cluster_arrive()\n                cluster_wait()", "cuda.syncthreads()")
STORE2 = "shared[{at}] = {x}\n{i}shared[{at} + uint32(1)] = {y}"
B_CUTS = {
    "no_rotation": [("turn_query(shared, int", "if False:\n                    turn_query(shared, int"), ("turn_keys(shared, int32", "pass  # (shared, int32")],
    "no_qk": [("dim = first_step\n", "dim = uint32(width)\n")],
    "no_pv": [("            key = uint32(0)\n            while key < uint32(keys):", "            key = uint32(keys)\n            while key < uint32(keys):")],
    "no_exchange": [
        SYNCS,
        ("cluster_store2(shared, at, owner, x, y)", "shared[at] = x\n                        shared[at + uint32(1)] = y"),
        ("for other in range(cluster):\n", "for other in range(1):\n"),
        ("cluster_store(shared, at, uint32(other), s[0])", "shared[at] = s[0]"),
        ("cluster_store2(shared, at, uint32(other), s[0], s[per_lane - 1])", "shared[at] = s[0]"),
        ("cluster_store2(shared, at, lane_id, correction, float32(1.0) / row_sum)", "shared[at] = correction"),
    ],
    "no_copies": [("cp_async4_or_zero(shared,", "nothing(shared,")],
}
B_CUTS["copies_only"] = [p for name in ("no_rotation", "no_qk", "no_pv", "no_exchange") for p in B_CUTS[name]]
B_CUTS["exchange_only"] = [p for name in ("no_rotation", "no_qk", "no_pv", "no_copies") for p in B_CUTS[name]]
D_SYNCS = ("cluster_arrive()\n            cluster_wait()", "cuda.syncthreads()")
D_CUTS = {
    "no_rotation": [("        while uint32(rank + unit", "        while False and uint32(rank + unit"), ("* uint32(STEP) < rotary_dim:\n            turn", "* uint32(STEP) < rotary_dim and False:\n            turn")],
    "no_qk": [  # the loads stay: every fragment is added up
        ("        multiply(acc, qf, kf, step, 0, 0)\n", "        for i in range(4 * columns):\n            acc[i] = kf[i] if step == 0 else acc[i] + kf[4 * columns * step + i]\n        for i in range(8 * tiles):\n            acc[i] += qf[8 * tiles * step + i]\n"),
        ("        if columns > 4:\n            multiply", "        if False:\n            multiply"),
    ],
    "no_pv": [("        weigh(shared, weights, out, vf, s, lane_row, member, 0)", "        for i in range(16):\n            out[i] += vf[16 * s + i] * shared[weights]")],
    "no_exchange": [
        D_SYNCS,
        ("cluster_store2(shared, to, row // uint32(owned), sx, sy)", "shared[to] = sx + sy"),
        ("cluster_store2(shared, to + uint32(2), row // uint32(owned), sz, sw)", "shared[to + uint32(1)] = sz + sw"),
        ("for other in range(cluster):\n", "for other in range(1):\n"),
        ("cluster_store(shared, at, uint32(other), s[0])", "shared[at] = s[0]"),
        ("cluster_store2(shared, at, uint32(other), s[0], s[per_lane - 1])", "shared[at] = s[0]"),
        ("cluster_store(shared, inverse_at + row, lane_id, inverse)", "shared[inverse_at + row] = inverse"),
    ],
}
D_CUTS["loads_only"] = [p for name in D_CUTS for p in D_CUTS[name]]

HEAD = '''
from llvmlite import ir as _ir
from numba import types as _types
from numba.cuda.extending import intrinsic as _intrinsic
from numba.cuda import libdevice as _libdevice
from kernels.device.asm import _asm, _I32


def _special(name):
    @_intrinsic
    def read(typingctx):
        def codegen(context, builder, signature, args):
            return _asm(builder, f"mov.u32 $0, %{name};", "=r,~{memory}", _I32, [])

        return _types.uint32(), codegen

    return read


clock, smid, globaltimer = _special("clock"), _special("smid"), _special("globaltimer_lo")


@cuda.jit(device=True)
def nothing(a, b, c, d, e):
    pass


def register(**_):
    return lambda plan: plan
'''
SLOTS = 16  # uint32 a warp: smid, global timer at the start and the end, then clocks


def stamped(source, anchors):
    """Insert `t<i> = clock()` at the anchors; the last writes them out. The kernel gets `stamps` as last argument."""
    for i, (anchor, name) in enumerate(anchors):
        assert source.count(anchor) == 1, (anchor, source.count(anchor))
        indent = re.match(r" *", anchor).group()
        code = f"{indent}t{i} = clock()\n"
        if i == 0:
            code = f"{indent}began = globaltimer()\n" + code
        if i == len(anchors) - 1:
            block = "uint32(cuda.blockIdx.x) + uint32(cuda.gridDim.x) * (uint32(cuda.blockIdx.y) + uint32(cuda.gridDim.y) * uint32(cuda.blockIdx.z))"
            code += f"{indent}slot0 = uint32((({block}) * (uint32(cuda.blockDim.x) // uint32(32)) + warp_id) * uint32({SLOTS}))\n{indent}if lane_id == 0:\n"
            values = ["smid()", "began", "globaltimer()", *(f"t{j}" for j in range(len(anchors)))]
            for j, value in enumerate(values):
                code += f"{indent}    stamps[slot0 + uint32({j})] = _libdevice.int_as_float(int32({value}))\n"
        source = source.replace(anchor, code + anchor)
    source = re.sub(r"(    def attention\([^)]*?),?(\s*\)):", r"\1, stamps\2:", source, count=1)
    return source


B_ANCHORS = [
    ("        rank = uint32(0)\n", "start"),
    ("        for i in range(-(-width // (2 * threads))):\n", "copies issued"),
    ("        # This warp's part of the scores", "frequencies, barrier"),
    ("            if tile_start == 0:\n                turn_query", "Q and K arrived"),
    ("            for i in range(sums):\n", "rotated, barrier"),
    ("            if cluster > 1 and tile_start == 0:\n", "QK"),
    ("            next_start = uint32(tile_start", "exchange 1"),
    ("            cp_async_wait_but_one()\n            if cluster > 1:", "softmax, pushed"),
    ("            weigh(shared, acc, 0, panel", "V arrived, exchange 2"),
    ("            if next_start < last_key:\n                cuda.syncthreads()", "PV"),
    ("        END\n", "stored"),
]
D_ANCHORS = [
    ("        rank = uint32(0)\n", "start"),
    ("        # Phase: table.", "loads issued"),
    ("        # Phase: scores.", "table, barrier"),
    ("        # Phase: values.", "K arrived, QK"),
    ("        # Phase: sum in the block.", "V issued"),
    ("        quad = tid\n", "stored, barrier"),
    ("        # Phase: softmax.", "pushed, exchange 1"),
    ("        # Phase: output.", "softmax, exchange 2"),
    ("        # Phase: end.", "PV stored"),
]




def module_of(kind, cut):
    """The kernel's module with a cut, or with stamps; itself for None."""
    base = B if kind == "B" else D
    if cut is None:
        return base
    source = Path(base.__file__).read_text()
    source = source.replace("from ..", "from kernels.").replace("from .v8_one", "from kernels.rope.v8_one").replace("from . import", "from kernels.rope import")
    source = source.replace(", SharedLayout, register", ", SharedLayout")
    if cut == "stamps":
        if kind == "B":
            source = source.replace("    attention.__name__ =", "        END\n\n    attention.__name__ =", 1)
        source = stamped(source, B_ANCHORS if kind == "B" else D_ANCHORS).replace("        END\n", "")
        before = "(INT, UINT, FLOAT) + (UINT,) * 3" if kind == "D" else "(INT, UINT, FLOAT)"
        assert before in source
        source = source.replace(before, before + " + (FLOATS,)")
    else:
        for old, new in (B_CUTS if kind == "B" else D_CUTS)[cut]:
            assert old in source, (kind, cut, old)
            source = source.replace(old, new)
    at = source.index("\n\n", source.index("\nfrom ..") if "\nfrom .." in source else source.rindex("\nfrom kernels"))
    source = source[:at] + "\n" + HEAD + source[at:]
    name = f"v8_{kind}_{cut}_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    path = GENERATED / f"{name}.py"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(source)
        temporary.replace(path)
        importlib.invalidate_caches()
    return importlib.import_module(name)


def plan_of(problem, config, cut=None):
    kind, *numbers = config
    module = module_of(kind, cut)
    plan = module.plan_with(problem, module.shape_of(problem, *numbers))
    if cut != "stamps":
        return plan
    launch = plan.launches[0]
    warps = math.prod(launch.grid) * launch.block[0] // 32
    launch = Launch(launch.kernel, launch.grid, launch.block, (*launch.args, "stamps"), launch.shared, launch.cluster)
    return Plan(problem, {**plan.buffers, "stamps": Buffer((warps * SLOTS,))}, (launch,))


def name_of(config):
    kind, c, q, *rest = config
    return f"B c{c} q{q} k{rest[0]} t{rest[1]}" if kind == "B" else f"D c{c} q{16 * q} w{rest[0]}" + (f" b{rest[1]}" if rest[1:] else "")


def jobs():
    """(problem, configuration, cut)"""
    for problem, configs in SWEEP.items():
        for config in configs:
            yield problem, config, None
    for problem, configs in STAMPED.items():
        for config in configs:
            yield problem, config, "stamps"
    for problem, configs in ABLATED.items():
        for config in configs:
            for cut in B_CUTS if config[0] == "B" else D_CUTS:
                yield problem, config, cut


def compile_one(job):
    from kernels.runtime.compile import assembled, compile_ptx, resources

    try:
        kernel = plan_of(*job).launches[0].kernel
        assembled(compile_ptx(kernel, "sm_90"), "sm_90")
        if "check" in sys.argv:
            r = resources(kernel, "sm_90")
            return f"{job[2]} {name_of(job[1])} {kernel.name} registers {r.registers} stack {r.stack_bytes} spill {r.spill_bytes}"
    except Exception as error:  # said again when it is timed
        return f"compile error {name_of(job[1])} {job[2]}: {type(error).__name__} {str(error)[-400:]}"


def distinct():
    """One job per kernel, so that no two processes compile the same."""
    chosen = {}
    for job in jobs():
        try:
            kernel = plan_of(*job).launches[0].kernel
        except Exception as error:
            print("#", job, str(error)[-200:], flush=True)
            continue
        chosen.setdefault((kernel.function.__module__, kernel.name, kernel.launch_bounds), job)
    return list(chosen.values())


def probes():
    """What a launch, its barriers, copies and the pipes cost."""
    from numba import cuda, float32, types, uint32

    from kernels.device.asm import cp_async4, cp_async_commit, cp_async_wait_all, mma_m16n8k8_tf32
    from kernels.device.cluster import cluster_arrive, cluster_wait
    from kernels.runtime.compile import compile_ptx
    from kernels.runtime.gpu import load_ptx, prepare_launch
    from kernels.version import Kernel

    def empty(x):
        pass

    def barriers(x):
        for _ in range(3):
            cluster_arrive()
            cluster_wait()

    def copies(x):
        shared = cuda.shared.array(0, float32, 16)
        tid = uint32(cuda.threadIdx.x)
        base = uint32(cuda.blockIdx.x) % uint32(64) * uint32(20480)
        for i in range(20):
            cp_async4(shared, uint32(4) * tid + uint32(1024 * i), x, base + uint32(4) * tid + uint32(1024 * i))
        cp_async_commit()
        cp_async_wait_all()
        cuda.syncthreads()
        if shared[tid] == float32(12345.0):
            x[tid] = float32(1.0)

    def mma_of(chains):
        floats = 4 * chains

        def mma(x):
            """96 x 8 products of a warp in that many chains."""
            tid = uint32(cuda.threadIdx.x)
            a, b = x[tid], x[tid + uint32(32)]
            c = cuda.local.array(floats, float32)
            for i in range(4 * chains):
                c[i] = a
            n = uint32(0)
            while n < uint32(768 // chains):
                for j in range(chains):
                    d = mma_m16n8k8_tf32((a, b, a, b), (b, a), (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3]))
                    c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
                n += uint32(1)
            total = float32(0.0)
            for i in range(4 * chains):
                total += c[i]
            if total == float32(12345.0):
                x[tid] = total

        mma.__name__ = mma.__qualname__ = f"mma_{chains}_chains"
        return mma

    def fma(x):
        """768 x 8 multiply-adds of a warp in 8 chains."""
        tid = uint32(cuda.threadIdx.x)
        a = x[tid]
        c = cuda.local.array(8, float32)
        for i in range(8):
            c[i] = a + float32(i)
        n = uint32(0)
        while n < uint32(768):
            for j in range(8):
                c[j] = c[j] * a + a
            n += uint32(1)
        total = float32(0.0)
        for i in range(8):
            total += c[i]
        if total == float32(12345.0):
            x[tid] = total

    x = torch.zeros(64 * 20480, device="cuda")
    runs = [(empty, c, b, 256) for c, b in ((1, 128), (8, 128), (16, 128), (4, 64), (6, 96))]
    runs += [(barriers, c, b, 256) for c, b in ((8, 128), (16, 128), (4, 64), (6, 96))] + [(copies, 1, 128, 256), (copies, 8, 64, 256), (copies, 16, 128, 256)]
    runs += [(f, 1, 132, t) for f in (mma_of(1), mma_of(4), mma_of(8)) for t in (32, 128, 256, 512)] + [(fma, 1, 132, 256)]
    for function, cluster, blocks, threads in runs:
        kernel = Kernel(function, (types.CPointer(types.float32),), max_threads=512)
        label = f"probe,{function.__name__} cluster {cluster} blocks {blocks} threads {threads}"
        try:
            go = prepare_launch(load_ptx(compile_ptx(kernel, "sm_90")), (blocks,), (threads,), (x.data_ptr(),), (ctypes.c_uint64,), 107_024, cluster)
            go()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(100):
                    go()
            graph.replay()
            times = []
            for _ in range(8):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                graph.replay()
                b.record()
                b.synchronize()
                times.append(a.elapsed_time(b) * 1000 / 100)
            print(f"{label},{np.median(times):.2f} us", flush=True)
        except Exception as error:
            print(f"{label},error {str(error)[-100:]}", flush=True)


def resident(plan):
    """How many clusters of the plan's first launch the card holds at once, or ''."""
    from cuda.bindings import driver

    from kernels.runtime import gpu

    launch = plan.launches[0]
    if launch.cluster == 1:
        return ""
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = (*launch.grid, 1, 1)[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = (*launch.block, 1, 1)[:3]
    config.sharedMemBytes = launch.shared_bytes
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = launch.cluster, 1, 1
    config.attrs, config.numAttrs = [attribute], 1
    try:
        return gpu._check(driver.cuOccupancyMaxActiveClusters(gpu._function(launch.kernel), config))
    except Exception as error:
        return f"error {error}"


def show_stamps(problem, config):
    """Cycles from a warp's start to the end of each phase: median and largest over the warps; SMs that held 2 blocks."""
    from kernels.reference import trial
    from kernels.runtime.gpu import Program

    program = Program(plan_of(problem, config, "stamps"), trial(problem, "uniform", "cuda").inputs)
    for _ in range(5):  # back to back, as it is timed
        program.launch()
    torch.cuda.synchronize()
    launch = program.plan.launches[0]
    warps = launch.block[0] // 32
    raw = program.buffers[0, "stamps"].cpu().numpy().view(np.uint32).reshape(-1, warps, SLOTS).astype(np.int64)
    sms = raw[:, 0, 0]
    names = [name for _, name in (B_ANCHORS if config[0] == "B" else D_ANCHORS)]
    clocks = raw[:, :, 3 : 3 + len(names)]
    begin = clocks[:, :, 0].min(axis=1)[:, None, None]
    clocks = (clocks - begin) & 0xFFFFFFFF
    span = int(raw[:, :, 2].max() - raw[:, :, 1].min())
    blocks_of_sm = np.bincount(sms)
    print(f"stamps,{problem},{name_of(config)},blocks {len(sms)},SMs {len(set(sms.tolist()))},most blocks an SM {blocks_of_sm.max()},SMs with more than 1 {(blocks_of_sm > 1).sum()},first start to last end {span} ns")
    alone = blocks_of_sm[sms] == 1
    for title, chosen in (("alone", alone), ("sharing", ~alone)):
        if chosen.any():
            c = clocks[chosen]
            print(f"stamps,{title} {chosen.sum()} blocks,phase: median end (largest) [median duration]")
            for i, name in enumerate(names):
                step = np.median(c[:, :, i] - c[:, :, i - 1]) if i else 0
                print(f"stamps,  {name},{np.median(c[:, :, i]):.0f} ({c[:, :, i].max()}) [{step:.0f}]", flush=True)
    late = (raw[:, :, 1].min(axis=1) - raw[:, :, 1].min()).max()
    print(f"stamps,  last block began {late} ns after the first (the timer ticks every 32 ns or more)", flush=True)


def main():
    from analysis import gpu as card
    from analysis.timing import device_warm
    from cuda.bindings import driver

    from kernels.reference import trial
    from kernels.runtime import gpu
    from kernels.runtime.gpu import Program

    chosen = distinct()
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=multiprocessing.get_context("spawn")) as pool:
        for said in pool.map(compile_one, chosen):
            if said:
                print("#", said, flush=True)
    if "check" in sys.argv:
        return
    print(f"# compiled {len(chosen)} in {time.time() - T0:.1f} s on {torch.cuda.get_device_name()}", flush=True)
    card.warm_up()
    print("problem,candidate,blocks,cluster,shared,regs,clusters resident,status,error / fp32 uniform,error / fp32 sharp,p20 us,median us,p80 us")
    cases = {}
    for problem, config, cut in jobs():
        if cut == "stamps":
            continue
        try:
            plan = plan_of(problem, config, cut)
            launch = plan.launches[-1]
            ratios, status = [], []
            for kind in ("uniform", "sharp") if cut is None else ("uniform",):
                if (problem, kind) not in cases:
                    cases[problem, kind] = trial(problem, kind, "cuda")
                case = cases[problem, kind]
                program = Program(plan, case.inputs)
                if cut is None:
                    verdict = case.judge(program.output())
                    status.append(verdict.status if verdict.nan_share == 0 else "nan")
                    ratios.append(f"{4 * verdict.max_abs_err / max(verdict.allowed_abs_err, 1e-30):.2f}")
                else:
                    program.output()
                    status.append("ablated")
            timing = device_warm(program)
            registers = gpu._check(driver.cuFuncGetAttribute(driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, gpu._function(launch.kernel)))
            print(
                f"{problem},{name_of(config)} {cut or ''},{math.prod(launch.grid)},{launch.cluster},{launch.shared_bytes},{registers},{resident(plan)},"
                f"{'/'.join(status)},{','.join(ratios) or ','},{timing.p20_us:.2f},{timing.median_us:.2f},{timing.p80_us:.2f}",
                flush=True,
            )
        except Exception as error:
            print(f"{problem},{name_of(config)} {cut or ''},error {type(error).__name__}: {str(error)[-200:]}", flush=True)
            if "illegal" in str(error).lower() or "ILLEGAL" in str(error) or "LAUNCH_FAILED" in str(error):
                return
    cases.clear()
    for problem, configs in STAMPED.items():
        for config in configs:
            try:
                show_stamps(problem, config)
            except Exception as error:
                print(f"stamps,{problem},{name_of(config)},error {type(error).__name__}: {str(error)[-200:]}", flush=True)
    probes()
    try:
        show = [version("rope_v7"), version("rope_v8")]
        for problem in (MAIN, MID, SMALL):
            for one in show:
                timing = device_warm(Program(one(problem), trial(problem, "uniform", "cuda").inputs))
                print(f"{problem},{one.id},{timing.median_us:.2f}", flush=True)
    except Exception as error:
        print("versions", str(error)[-200:])
    print(f"# {time.time() - T0:.1f} s", flush=True)


if __name__ == "__main__":
    assert kernels
    main()
