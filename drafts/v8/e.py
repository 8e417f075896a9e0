"""Time V8 candidates on the card: python3 .yardstick/e.py [check]."""
import ctypes, hashlib, importlib, math, multiprocessing, os, re, sys, tempfile, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
sys.path.insert(0, os.getcwd())
T0 = time.time()
import numpy as np, torch
import kernels
from kernels.rope import v8 as R
import kernels.v8 as C
from kernels.version import Buffer, Launch, Plan, Problem, version
GENERATED = Path(tempfile.gettempdir()) / f"e_generated_{os.getuid()}"; GENERATED.mkdir(exist_ok=True)
sys.path.insert(0, str(GENERATED))
def P(b,h,s,d,r,**k): return Problem("rope",b,h,seq_q=s,hdim=d,rotary_dim=r,**k)
exec(Path(".yardstick/e_sweep.py").read_text())
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
'''
SLOTS = 20
def stamped(source):
    """Anchors are comment lines `# @ name` put into the source by ANCHORS."""
    for i, (anchor, name) in enumerate(ANCHORS):
        assert source.count(anchor) == 1, (anchor, source.count(anchor))
        indent = re.match(r" *", anchor).group()
        code = f"{indent}t{i} = clock()\n"
        if i == 0: code = f"{indent}began = globaltimer()\n" + code
        if i == len(ANCHORS) - 1:
            block = "uint32(cuda.blockIdx.x) + uint32(cuda.gridDim.x) * (uint32(cuda.blockIdx.y) + uint32(cuda.gridDim.y) * uint32(cuda.blockIdx.z))"
            code += f"{indent}slot0 = uint32((({block}) * (uint32(cuda.blockDim.x) // uint32(32)) + warp_id) * uint32({SLOTS}))\n{indent}if lane_id == 0:\n"
            for j, value in enumerate(["smid()", "began", "globaltimer()", *(f"t{j}" for j in range(len(ANCHORS)))]):
                code += f"{indent}    stamps[slot0 + uint32({j})] = _libdevice.int_as_float(int32({value}))\n"
        source = source.replace(anchor, code + anchor)
    return re.sub(r"(    def attention\([^)]*?),?(\s*\)):", r"\1, stamps\2:", source, count=1)
ANCHORS = [
    ("        rank = uint32(0)\n", "start"),
    ("        if tid < uint32(rows):\n            shared[running_at", "copies issued"),
    ("            cp_async_wait_all()\n", "angles"),
    ("            if embeds:\n                if copied_dim < embedded_dim:\n                    if embeds_query and tile_start == 0:\n                        apply_query(shared, query_values, column)", "Q and K arrived"),
    ("            for i in range(sums):\n", "rotated, barrier"),
    ("            if cluster > 1 and tile_start == 0:\n", "QK"),
    ("            next_start = uint32(tile_start", "exchange 1"),
    ("            cp_async_wait_but_one()\n            if cluster > 1:", "softmax, pushed"),
    ("            weigh(shared, acc, 0, panel", "V arrived, exchange 2"),
    ("            tile_start = next_start\n", "PV"),
    ("        END\n", "stored"),
]
CUTS = {
    "no_rotation": [("    embeds = embeds_query or embeds_keys", "    embeds = embeds_query = embeds_keys = False\n    compute_query = apply_query = compute_keys = apply_keys = None")],
    "no_membar": [("cluster_arrive()\n", "cluster_start()\n")],
    "no_qk": [("            dim = first_step\n", "            dim = uint32(width)\n")],
    "no_pv": [("            key = uint32(0)\n            while key < uint32(keys):", "            key = uint32(keys)\n            while key < uint32(keys):")],
    "no_exchange": [("cluster_arrive()\n                copy_values(", "cuda.syncthreads()\n                copy_values("), ("                cp_async_commit()\n                cluster_wait()\n", "                cp_async_commit()\n"), ("cluster_arrive()\n                cluster_wait()", "cuda.syncthreads()"),
        ("cluster_store2(shared, at, owner, x, y)", "shared[at] = x\n                        shared[at + uint32(1)] = y"),
        ("for other in range(cluster):\n", "for other in range(1):\n"),
        ("cluster_store(shared, at, uint32(other), s[0])", "shared[at] = s[0]"),
        ("cluster_store2(shared, at, uint32(other), s[0], s[per_lane - 1])", "shared[at] = s[0]"),
        ("cluster_store2(shared, at, lane_id, correction, float32(1.0) / row_sum)", "shared[at] = correction")],
}
CUTS["copies_only"] = [p for n in ("no_rotation", "no_qk", "no_pv", "no_exchange") for p in CUTS[n]]
def module_of(cut):
    if cut is None: return C
    source = Path(C.__file__).read_text().replace("from .", "from kernels.")
    if cut == "stamps":
        source = source.replace("    name = f\"attention_c", "        END\n\n    name = f\"attention_c", 1)
        source = stamped(source).replace("        END\n", "")
        before = "(INT, UINT, FLOAT)"; assert before in source
        source = source.replace(before, before + " + (FLOATS,)")
    else:
        for old, new in CUTS[cut]:
            assert old in source, (cut, old)
            source = source.replace(old, new)
    at = source.index("\nGROUP = 32")
    source = source[:at] + "\n" + HEAD + source[at:]
    name = f"e_{cut}_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    path = GENERATED / f"{name}.py"
    if not path.exists():
        t = path.with_suffix(f".{os.getpid()}"); t.write_text(source); t.replace(path); importlib.invalidate_caches()
    return importlib.import_module(name)
def plan_of(problem, config, cut=None):
    m = module_of(cut)
    table = Buffer((-(-problem.rotary_dim // 4) * 2,), init=lambda: R.frequencies(problem.rotary_dim))
    plan = m.plan_with(problem, m.shape_of(problem, *config), m.Embedding(R.ROPE.name, R.ROPE.begin, R.ROPE.prepare, R.ROPE.embed), table, problem.rotary_dim)
    if cut != "stamps": return plan
    l = plan.launches[0]
    warps = math.prod(l.grid) * l.block[0] // 32
    l = Launch(l.kernel, l.grid, l.block, (*l.args, "stamps"), l.shared, l.cluster)
    return Plan(problem, {**plan.buffers, "stamps": Buffer((warps * SLOTS,))}, (l,))
def name_of(c): return "c%d q%d k%d a%d d%d b%d" % c
def jobs():
    for p, cs in SWEEP.items():
        for c in cs: yield p, c, None
    for p, cs in STAMPED.items():
        for c in cs: yield p, c, "stamps"
    for p, cs in ABLATED.items():
        for c in cs:
            for cut in CUTS: yield p, c, cut
def compile_one(job):
    from kernels.runtime.compile import assembled, compile_ptx, resources
    try:
        k = plan_of(*job).launches[0].kernel
        assembled(compile_ptx(k, "sm_90"), "sm_90")
        r = resources(k, "sm_90")
        if "check" in sys.argv or r.stack_bytes or r.spill_bytes:
            return f"{job[2]} {name_of(job[1])} {k.name} registers {r.registers} stack {r.stack_bytes} spill {r.spill_bytes}"
    except Exception as e:
        return f"compile error {job[0]} {name_of(job[1])} {job[2]}: {type(e).__name__} {str(e)[-300:]}"
def distinct():
    chosen = {}
    for job in jobs():
        try: k = plan_of(*job).launches[0].kernel
        except Exception as e: print("#", job, str(e)[-200:], flush=True); continue
        chosen.setdefault((k.function.__module__, k.name, k.launch_bounds), job)
    return list(chosen.values())
def resident(plan):
    from cuda.bindings import driver
    from kernels.runtime import gpu
    l = plan.launches[0]
    if l.cluster == 1: return ""
    g = driver.CUlaunchConfig()
    g.gridDimX, g.gridDimY, g.gridDimZ = (*l.grid, 1, 1)[:3]
    g.blockDimX, g.blockDimY, g.blockDimZ = (*l.block, 1, 1)[:3]
    g.sharedMemBytes = l.shared_bytes
    a = driver.CUlaunchAttribute(); a.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    a.value.clusterDim.x, a.value.clusterDim.y, a.value.clusterDim.z = l.cluster, 1, 1
    g.attrs, g.numAttrs = [a], 1
    try: return gpu._check(driver.cuOccupancyMaxActiveClusters(gpu._function(l.kernel), g))
    except Exception as e: return f"error {e}"
def show_stamps(problem, config):
    from kernels.reference import trial
    from kernels.runtime.gpu import Program
    program = Program(plan_of(problem, config, "stamps"), trial(problem, "uniform", "cuda").inputs)
    for _ in range(5): program.launch()
    torch.cuda.synchronize()
    l = program.plan.launches[0]; warps = l.block[0] // 32
    raw = program.buffers[0, "stamps"].cpu().numpy().view(np.uint32).reshape(-1, warps, SLOTS).astype(np.int64)
    sms = raw[:, 0, 0]; names = [n for _, n in ANCHORS]
    clocks = raw[:, :, 3:3 + len(names)]; begin = clocks[:, :, 0].min(axis=1)[:, None, None]
    clocks = (clocks - begin) & 0xFFFFFFFF
    span = int(raw[:, :, 2].max() - raw[:, :, 1].min()); per = np.bincount(sms)
    print(f"stamps,{problem},{name_of(config)},blocks {len(sms)},SMs {len(set(sms.tolist()))},most blocks an SM {per.max()},SMs with more than 1 {(per > 1).sum()},span {span} ns")
    alone = per[sms] == 1
    for title, chosen in (("alone", alone), ("sharing", ~alone)):
        if chosen.any():
            c = clocks[chosen]
            line = []
            for i, n in enumerate(names):
                step = np.median(c[:, :, i] - c[:, :, i - 1]) if i else 0
                line.append(f"{n} {np.median(c[:, :, i]):.0f} ({c[:, :, i].max()}) [{step:.0f}]")
            print(f"stamps,  {title} {chosen.sum()}: " + " | ".join(line), flush=True)
def main():
    chosen = distinct()
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=multiprocessing.get_context("spawn")) as pool:
        for said in pool.map(compile_one, chosen):
            if said: print("#", said, flush=True)
    if "check" in sys.argv: return
    from analysis import gpu as card
    from analysis.timing import device_warm
    from cuda.bindings import driver
    from kernels.reference import trial
    from kernels.runtime import gpu
    from kernels.runtime.gpu import Program
    print(f"# compiled {len(chosen)} in {time.time() - T0:.1f} s", flush=True)
    card.warm_up()
    cases = {}
    for problem, config, cut in jobs():
        if cut == "stamps": continue
        try:
            plan = plan_of(problem, config, cut); l = plan.launches[-1]; ratios, status = [], []
            for kind in ("uniform", "sharp") if cut is None else ("uniform",):
                if (problem, kind) not in cases: cases[problem, kind] = trial(problem, kind, "cuda")
                case = cases[problem, kind]; program = Program(plan, case.inputs)
                if cut is None:
                    v = case.judge(program.output()); status.append(v.status if v.nan_share == 0 else "nan")
                    ratios.append(f"{4 * v.max_abs_err / max(v.allowed_abs_err, 1e-30):.2f}")
                else: program.output()
            t = device_warm(program)
            regs = gpu._check(driver.cuFuncGetAttribute(driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, gpu._function(l.kernel)))
            print(f"{problem},{name_of(config)} {cut or ''},{math.prod(l.grid)} blocks,{l.shared_bytes} B,{regs} regs,{resident(plan)} res,{'/'.join(status)},{' '.join(ratios)},{t.median_us:.2f} us", flush=True)
        except Exception as e:
            print(f"{problem},{name_of(config)} {cut or ''},error {type(e).__name__}: {str(e)[-200:]}", flush=True)
            if "illegal" in str(e).lower() or "LAUNCH_FAILED" in str(e): return
    cases.clear()
    for problem, configs in STAMPED.items():
        for config in configs:
            try: show_stamps(problem, config)
            except Exception as e: print(f"stamps,{problem},{name_of(config)},error {type(e).__name__}: {str(e)[-200:]}", flush=True)
    for problem in PEERED:
        for v in kernels.VERSIONS.values():
            if v.is_peer and v.family == "rope":
                try:
                    t = device_warm(Program(v(problem), trial(problem, "uniform", "cuda").inputs)); print(f"{problem},{v.id},{t.median_us:.2f}", flush=True)
                except Exception as e: print(f"{problem},{v.id},{type(e).__name__} {str(e)[-100:]}", flush=True)
    print(f"# {time.time() - T0:.1f} s", flush=True)
if __name__ == "__main__":
    main()
