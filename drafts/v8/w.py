import math, multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
sys.path.insert(0, os.getcwd()); T0 = time.time()
import numpy as np, torch
import kernels.v8 as C, kernels.v8_wgmma as W
from kernels.rope.v8 import ROPE, inverse_frequencies
from kernels.log import attention_buffers
from kernels.version import Plan, Problem
def P(b,h,s,d,r,**k): return Problem("rope",b,h,seq_q=s,hdim=d,rotary_dim=r,**k)
exec(open(".yardstick/w_sweep.py").read())
def plan_of(problem, config):
    buffers = attention_buffers(problem, inv_freq=inverse_frequencies(problem.rotary_dim))
    kind, *c = config
    if kind == "w": launch = W.attend(problem, ROPE, "inv_freq", problem.rotary_dim, shape=W.Shape(*c))
    else: launch = C.attend(problem, ROPE, "inv_freq", problem.rotary_dim, shape=C.Shape(c[0], c[1], c[2], C.width_of(problem.hdim, c[0]), *c[3:]))
    return Plan(problem, buffers, (launch,))
def compile_one(job):
    from kernels.runtime.compile import assembled, compile_ptx, resources
    try:
        k = plan_of(*job).launches[0].kernel; assembled(compile_ptx(k, "sm_90"), "sm_90"); r = resources(k, "sm_90")
        if "check" in sys.argv or r.stack_bytes or r.spill_bytes: return f"{job} registers {r.registers} stack {r.stack_bytes} spill {r.spill_bytes}"
    except Exception as e: return f"compile error {job}: {type(e).__name__} {str(e)[-300:]}"
def main():
    jobs = [(p, c) for p, cs in SWEEP.items() for c in cs]; chosen = {}
    for job in jobs:
        try: k = plan_of(*job).launches[0].kernel; chosen.setdefault((k.name, k.launch_bounds), job)
        except Exception as e: print("#", job, str(e)[-150:], flush=True)
    with ProcessPoolExecutor(min(16, os.cpu_count()), mp_context=multiprocessing.get_context("spawn")) as pool:
        for said in pool.map(compile_one, chosen.values()):
            if said: print("#", said, flush=True)
    if "check" in sys.argv: return
    from analysis import gpu as card
    from analysis.timing import device_warm
    from kernels.reference import trial
    from kernels.runtime.gpu import Program
    print(f"# compiled {len(chosen)} in {time.time() - T0:.1f} s", flush=True); card.warm_up(); cases = {}
    for problem, config in jobs:
        try:
            plan = plan_of(problem, config); l = plan.launches[-1]; ratios, status = [], []
            for kind in ("uniform", "sharp"):
                if (problem, kind) not in cases: cases[problem, kind] = trial(problem, kind, "cuda")
                case = cases[problem, kind]; program = Program(plan, case.inputs); v = case.judge(program.output()); status.append(v.status if v.nan_share == 0 else "nan"); ratios.append(f"{4 * v.max_abs_err / max(v.allowed_abs_err, 1e-30):.2f}")
            t = device_warm(program)
            print(f"{problem},{config},{math.prod(l.grid)} blocks,{l.shared_bytes} B,{'/'.join(status)},{' '.join(ratios)},{t.median_us:.2f} us", flush=True)
        except Exception as e:
            print(f"{problem},{config},error {type(e).__name__}: {str(e)[-200:]}", flush=True)
            if "illegal" in str(e).lower() or "LAUNCH_FAILED" in str(e): return
    print(f"# {time.time() - T0:.1f} s", flush=True)
if __name__ == "__main__": main()
