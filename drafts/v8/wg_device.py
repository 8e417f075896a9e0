"""On the device, from the repository root: correctness, then microseconds per launch, v8 beside v8_wgmma."""
import numpy as np, torch, sys
sys.path[:0] = [".", "tests"]
from kernels import v8, v8_wgmma as w
from kernels.log import attention_buffers
from kernels.reference import trial
from kernels.rope.v8 import ROPE, inverse_frequencies
from kernels.runtime.gpu import Program
from kernels.version import Plan, Problem
import test_wgmma as t

def plan(p, attend):
    b = attention_buffers(p, inv_freq=inverse_frequencies(p.rotary_dim))
    return Plan(p, b, (attend(p, ROPE, "inv_freq", p.rotary_dim),))

def time(program, n=200):
    program.launch(); torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(n): program.launch()
    best = []
    for _ in range(20):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); g.replay(); b.record(); torch.cuda.synchronize(); best.append(a.elapsed_time(b) * 1e3 / n)
    return float(np.median(best))

for n in (8, 32, 64):  # layouts on the hardware
    rng = np.random.default_rng(5); x, y = (rng.normal(size=(r, 32)).astype(np.float32) for r in (64, n))
    out = Program(t.product_plan(n), {"x": x, "y": y}).output().cpu().numpy()
    print("product", n, np.abs(out - x.astype(np.float64) @ y.T.astype(np.float64)).max(), flush=True)
S = w.Shape
for p, shapes in (
    (Problem("rope", 1, 4, seq_q=64, hdim=2048, rotary_dim=128), [S(8, 32, 256, 2), S(8, 32, 256, 1), S(16, 32, 128, 2), S(16, 32, 128, 1), S(8, 16, 256, 2)]),
    (Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128), [S(8, 32, 64, 1), S(4, 32, 128, 2), S(8, 16, 64, 1), S(2, 32, 256, 2)]),
    (Problem("rope", 1, 4, seq_q=64, hdim=4096, rotary_dim=128), [S(16, 32, 256, 2), S(16, 16, 256, 2)]),
    (Problem("rope", 8, 16, seq_q=64, hdim=128, rotary_dim=64), [S(1, 32, 128, 1), S(1, 32, 128, 2), S(2, 32, 64, 1, 2), S(2, 32, 64, 1, 3), S(2, 64, 64, 1, 2)]),
    (Problem("rope", 8, 16, seq_q=64, hdim=512, rotary_dim=128), [S(4, 32, 128, 2), S(8, 32, 64, 1, 3), S(2, 32, 256, 2), S(4, 64, 128, 2), S(8, 64, 64, 1, 2)]),
    (Problem("rope", 8, 16, seq_q=64, hdim=2048, rotary_dim=128), [S(8, 32, 256, 2), S(16, 32, 128, 2), S(16, 64, 128, 2)]),
    (Problem("rope", 1, 8, seq_q=2048, hdim=128, rotary_dim=64), [S(1, 64, 128, 2), S(2, 64, 64, 1, 2), S(1, 32, 128, 1)]),
):
    for label, attend in [("v8", v8.attend)] + [(s, lambda *a, s=s: w.attend(*a, shape=s)) for s in shapes]:
        made, errors = plan(p, attend), []
        for kind in ("uniform", "sharp"):
            case = trial(p, kind); program = Program(made, case.inputs); v = case.judge(program.output())
            errors.append(f"{v.status} {4 * v.max_abs_err / v.allowed_abs_err:.2f}")
        print(p, label, errors, f"{time(program):.2f} us", flush=True)
