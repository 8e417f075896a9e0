"""What every column of the tables under data/ means, for those who read, write and describe them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from kernels.version import Problem

STATUSES = ("ok", "wrong", "infeasible", "unsupported", "error")  # of a check, from the best to the worst


@dataclass(frozen=True)
class Column:
    """A column of a table. One that is added to a table later may be empty: files of before lack it."""

    name: str
    kind: str
    meaning: str
    optional: bool = False


_PROBLEM_MEANINGS = {
    "family": "what is computed around attention: attention (nothing), sinusoidal, rope, ...",
    "batch": "batch size",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "seq_q": "queries a head",
    "seq_k": "keys a head",
    "hdim": "head dim",
    "rotary_dim": "leading dims that RoPE rotates; 0 without RoPE",
    "dtype": "dtype of q, k, v and out",
    "causal": "whether query i sees only keys up to its own position",
    "q_offset": "position of the first query",
    "cache": "state of the key cache: none, or all keys but the last seq_q rotated already",
    "table": "where the embedding comes from: computed, or a table of a dtype",
}
_KINDS = {"int": "integer", "str": "text", "bool": "flag"}
PROBLEM = tuple(Column(f.name, _KINDS[str(f.type)], _PROBLEM_MEANINGS[f.name]) for f in fields(Problem))

_RUN = Column("run", "text", "the measuring run, named by its start in UTC")
_STUDY = Column("study", "text", "the study (see analysis/measure/studies.py)")
_VERSION = Column("version", "text", "id of the kernel version or peer")
_SOURCE_HASH = Column("source_hash", "text", "hash of the code that made the version's kernels and launches")
_STATUS = Column("status", "text", "ok, wrong (as the version declares), infeasible, unsupported or error")
_OP_STATUS = Column(
    "status",
    "text",
    "ok, wrong (a rule of analysis.measure.op_calls.judge is broken), fell_back (PyTorch computed it, right), refused, "
    "hang, error, unavailable (not on this machine)",
)
_OP_FAMILY = Column("version", "text", "the version of V8 whose kernels the op of that family launches")
_MODE = Column(
    "mode",
    "text",
    "where RoPE's angles come from: rates, rates_positions, tables, tables_positions; positions are those given",
)
_LAYOUT = Column(
    "layout",
    "text",
    "how q, k, v lie: contiguous; transposed [batch, seq, heads, hdim]; cache: k, v rows of longer ones; unaligned; "
    "strided: every other element; expanded: one head for all; negated: by the lazy bit",
)
_INTERLEAVED = Column("interleaved", "flag", "whether RoPE's pairs are dims (2j, 2j + 1), not (j, j + rotary_dim / 2)")
_REASON = Column("reason", "text", "why the status is not ok", optional=True)

SCHEMAS: dict[str, tuple[Column, ...]] = {
    "runs": (
        _RUN,
        _STUDY,
        Column("node", "text", "name of the machine"),
        Column("started_at", "text", "start, UTC"),
        Column("finished_at", "text", "end, UTC; empty while the run is incomplete", optional=True),
        Column("complete", "flag", "whether every row of the study was measured"),
        Column("seconds", "number", "wall time of the call that finished the run, s"),
        Column("driver", "text", "NVIDIA driver"),
        Column("cuda", "text", "CUDA version of torch"),
        Column("python", "text", "Python"),
        Column("numba", "text", "numba"),
        Column("numba_cuda", "text", "numba-cuda"),
        Column("torch", "text", "torch"),
        Column("sm_mhz_max", "integer", "highest SM clock the GPU allows, MHz", optional=True),
        Column("power_limit_w", "integer", "power limit, W", optional=True),
        Column(
            "throttle",
            "text",
            "reasons for reduced clocks seen before and after timings, joined with +; none; unknown if unreadable",
        ),
        Column("commit", "text", "commit of this project, with -dirty if other than measured files had changed"),
        Column(
            "uuid",
            "text",
            "UUID of the card; empty where it says none, and in rows of before it was kept",
            optional=True,
        ),
        Column(
            "other_processes",
            "integer",
            "most processes of others seen on the card; empty where they cannot be read, and in rows of before",
            optional=True,
        ),
        Column(
            "repeated",
            "integer",
            "timings that were repeated, a process being off its siblings; empty in rows of before",
            optional=True,
        ),
    ),
    "checks": (
        _RUN,
        _STUDY,
        _VERSION,
        *PROBLEM,
        Column("inputs", "text", "uniform (in [-1, 1], the source's) or sharp (scores with standard deviation 4)"),
        _STATUS,
        _REASON,
        Column("max_abs_err", "number", "largest absolute difference from float64 over finite outputs", optional=True),
        Column(
            "allowed_abs_err", "number", "4 times the error of fp32 math attention on the same inputs", optional=True
        ),
        Column("nan_share", "number", "share of outputs that are not finite", optional=True),
        _SOURCE_HASH,
        Column("measured_at", "text", "time, UTC"),
        Column(
            "core",
            "text",
            "the V8 core that ran: wgmma, mma or portable; empty of other versions, and in rows of before it was kept",
            optional=True,
        ),
    ),
    "timings": (
        _RUN,
        Column("process", "integer", "process of the run, from 1"),
        _STUDY,
        _VERSION,
        *PROBLEM,
        _STATUS,
        _REASON,
        Column("timer", "text", "device_warm, device_cold or launched; empty where nothing could run", optional=True),
        Column("n", "integer", "samples", optional=True),
        Column("p20_us", "number", "20th percentile of the time of one call, us", optional=True),
        Column("median_us", "number", "median of the time of one call, us", optional=True),
        Column("p80_us", "number", "80th percentile of the time of one call, us", optional=True),
        Column("max_abs_err", "number", "largest absolute difference from float64 in this run's checks", optional=True),
        _SOURCE_HASH,
        Column("sm_mhz", "integer", "SM clock read after the samples, MHz", optional=True),
        Column("measured_at", "text", "time, UTC"),
        Column(
            "discarded",
            "integer",
            "samples thrown away since the card throttled, other than by its power cap; empty in rows of before",
            optional=True,
        ),
        Column(
            "repeated",
            "flag",
            "1 in the second row of a process that was off its siblings; the first stands above it; else empty",
            optional=True,
        ),
    ),
    "published": (
        Column("id", "text", "N: printed in a document; X: from a log or source behind it"),
        Column("source_document", "text", "title of the document, or name of the log"),
        Column("locator", "text", "where in it"),
        Column("family", "text", "attention, sinusoidal, rope or fp16"),
        Column("version", "text", "id of the version, or the words of the document where there is none", optional=True),
        Column("baseline", "text", "what a speedup compares with, named like version", optional=True),
        Column("batch", "integer", "batch size", optional=True),
        Column("heads", "integer", "heads", optional=True),
        Column("seq_q", "integer", "queries", optional=True),
        Column("seq_k", "integer", "keys", optional=True),
        Column("hdim", "integer", "head dim", optional=True),
        Column("rotary_dim", "integer", "rotated dims", optional=True),
        Column("dtype", "text", "float32 or float16", optional=True),
        Column("gpu", "text", "GPU it was measured on", optional=True),
        Column("quantity", "text", "what is stated: time_ms, speedup, percent, tflops, ..."),
        Column("value", "number", "the stated value"),
        Column("unit", "text", "its unit; x_faster and x_slower say which way a speedup goes", optional=True),
        Column("sense", "text", "of a percentage that says which of two is ahead: faster or slower", optional=True),
        Column("limit", "text", "low or high: that end of a range; least or most: a bound", optional=True),
        Column("what", "text", "what the number is of, where the quantity does not say", optional=True),
        Column("note", "text", "context", optional=True),
        Column("origin", "text", "what is not in the document, and how the value is printed there", optional=True),
    ),
    "resources": (
        _VERSION,
        *PROBLEM,
        Column("launch", "integer", "which launch of the call, from 0"),
        Column("kernel", "text", "name of the kernel"),
        Column("target", "text", "compute target"),
        Column("registers", "integer", "registers a thread"),
        Column("spill_bytes", "integer", "bytes a thread spills, stores and loads together"),
        Column("stack_bytes", "integer", "bytes of stack a thread"),
        Column("shared_bytes", "integer", "bytes of shared memory a block"),
        Column("blocks_per_sm", "integer", "blocks that one SM holds at a time"),
        _SOURCE_HASH,
    ),
    "counters": (
        _RUN,
        _STUDY,
        _VERSION,
        *PROBLEM,
        Column("launch", "integer", "which launch of the call, from 0"),
        Column("kernel", "text", "name of the kernel"),
        Column("metric", "text", "name that Nsight Compute gives it; `, cold` where caches were flushed before"),
        Column("value", "number", "what was read in one launch"),
        Column("unit", "text", "its unit", optional=True),
        _SOURCE_HASH,
    ),
    "sanitizers": (
        _RUN,
        Column("tool", "text", "tool of compute-sanitizer: memcheck, racecheck, initcheck, synccheck"),
        _VERSION,
        *(replace(column, optional=True) for column in PROBLEM),
        Column(
            "finding",
            "text",
            "none, race, uninitialised, out_of_bounds, divergent_barrier; not_checked: the silence says nothing; "
            "unsupported: not on this GPU",
        ),
        Column("kernel", "text", "kernel it was found in; rows since are of a whole version", optional=True),
        Column("place", "text", "buffer, or array of shared memory; shared: one that is not known", optional=True),
        Column("expected", "flag", "whether the version declares this hazard; 1 where there is none to declare"),
        _SOURCE_HASH,
        Column("hazards", "integer", "how many the tool counts on all small problems", optional=True),
    ),
    "counts": (
        _VERSION,
        *PROBLEM,
        Column("launch", "integer", "which launch of the call, from 0"),
        Column("target", "text", "compute target of the PTX that was executed"),
        Column("counter", "text", "what is counted, such as global.read.sectors (32 B each)"),
        Column("value", "number", "the count over all blocks of the launch"),
        _SOURCE_HASH,
    ),
    "verdicts": (
        Column("claim_id", "text", "the claim, by its id in analysis/claims"),
        Column("kind", "text", "of the claim: number, universal, cause, count, undecided"),
        Column("verdict", "text", "of the claim, in the words of analysis/claims/rule.py"),
        Column("test", "integer", "which row of the claim, from 1; a row a test, place and condition"),
        Column(
            "role", "text", "headline, which decides; effect, what a cause explains; support, which decides nothing"
        ),
        Column("part", "text", "the part of the claim, where it has several", optional=True),
        Column("condition", "text", "as timed by the documents' harness, device, matched in load", optional=True),
        Column("given", "text", "the verdict of the headline, or the part, under that condition", optional=True),
        Column("place", "text", "where: a head dim, a version", optional=True),
        Column("outcome", "text", "at that place, in the words of a verdict"),
        Column("says", "text", "what the test compares"),
        Column("rule", "text", "what the measured value must be: published, at least, at most, between, equals", True),
        Column("published", "number", "the number of the rule, where it is one", optional=True),
        Column("measured", "number", "the value: a ratio's geometric mean over the processes, or exact", optional=True),
        Column("low", "number", "lower end of its 95 % interval; empty where it is exact", optional=True),
        Column("high", "number", "upper end", optional=True),
        Column("unit", "text", "unit of these numbers", optional=True),
        Column("evidence", "text", "tables and runs that it is from; stale: versions whose code has changed", True),
        Column("reason", "text", "why the test cannot be decided", optional=True),
        Column("before", "text", "the claim's verdict by the runs before the latest of the same code", optional=True),
    ),
    "shapes": (
        _RUN,
        Column("measured_at", "text", "time, UTC"),
        Column("commit", "text", "commit of this project, with -dirty if other than measured files had changed"),
        *PROBLEM,
        Column("core", "text", "wgmma (products of warpgroups) or mma (of warps), see kernels/v8"),
        Column("cluster", "integer", "blocks of a cluster, which share the head dim"),
        Column("queries", "integer", "queries of a tile"),
        Column("keys", "integer", "keys of a tile"),
        Column("width", "integer", "dims of a block's slice"),
        Column("warps", "integer", "warps of a block; 4 are a warpgroup"),
        Column("across", "integer", "of them, those that take different keys; of core mma alone", optional=True),
        Column("blocks_per_sm", "integer", "blocks that are meant to share an SM"),
        Column("once", "flag", "whether blocks that share keys embed these together first; of core wgmma alone"),
        Column(
            "cut",
            "text",
            "lines of the kernel changed in a past audit (see analysis/models/steps.py); empty for none",
            optional=True,
        ),
        Column("chosen", "flag", "whether rope_v8 takes this core and shape for the problem"),
        Column("blocks", "integer", "blocks of the launch", optional=True),
        Column("shared_bytes", "integer", "bytes of shared memory a block", optional=True),
        Column("registers", "integer", "registers a thread", optional=True),
        Column("status", "text", "ok, infeasible, unsupported, error, or wrong: a part is left out, not checked"),
        _REASON,
        Column("max_abs_err", "number", "largest absolute difference from float64, of the worse inputs", optional=True),
        Column("allowed_abs_err", "number", "4 times the error of fp32 math attention on them", optional=True),
        Column("median_us", "number", "median time of one call (device_warm), middle one of 3 repetitions, us", True),
        Column("p20_us", "number", "20th percentile of its samples, us", optional=True),
        Column("p80_us", "number", "80th percentile of its samples, us", optional=True),
        Column("source_hash", "text", "hash of the code that made the kernels and launches of rope_v8"),
    ),
    "op_problems": (
        _RUN,
        _STUDY,
        Column("seed", "integer", "seed of the draw of all calls"),
        Column("call", "integer", "which call of the draw, from 0"),
        Column("function", "text", "function of kernels/ops.py"),
        _OP_FAMILY,
        *PROBLEM,
        _INTERLEAVED,
        Column("base", "number", "base of RoPE's angles"),
        _MODE,
        Column("scale", "number", "what scores are multiplied by"),
        _LAYOUT,
        Column(
            "inputs",
            "text",
            "uniform, sharp, large (q, k from 1e-3 to 1e3), or with values of one kind: minus_inf_key, overflow (of "
            "scores, to -inf), inf_value, near_max, subnormal, nan_query",
        ),
        Column("largest_position", "integer", "largest position of a query or key"),
        Column("core", "text", "core of V8 that is planned for it: wgmma, mma or portable", optional=True),
        Column("kernel", "text", "name of its kernel", optional=True),
        _OP_STATUS,
        Column("reason", "text", "the broken rules, joined with +, or why the status is not ok", optional=True),
        Column("max_abs_err", "number", "largest absolute difference from float64 over finite outputs", optional=True),
        Column("fp32_abs_err", "number", "that of fp32 math, the largest of 8 orders of its sums", optional=True),
        Column("allowed_abs_err", "number", "4 times that, which is at least what rounding the output costs", True),
        Column("ratio", "number", "max_abs_err over a quarter of allowed_abs_err: at most 4 is right", optional=True),
        Column("seconds", "number", "wall time of inputs, call and comparison, s"),
        _SOURCE_HASH,
        Column("measured_at", "text", "time, UTC"),
        Column(
            "called",
            "text",
            "eager, or graph: captured, and replayed after calls that evict what is cached; before it was kept: eager",
            optional=True,
        ),
    ),
    "op": (
        _RUN,
        Column("study", "text", "op_time, op_compile, op_classes, op_stress or op_sanitize"),
        Column(
            "what",
            "text",
            "op_time: op, op_out (writes to `out=`) or launch (that of the version, prepared); op_compile: import, "
            "first_call_cold (nothing cached), first_call_cached (on disk) or second_call; op_classes: decode (seq_k 1 "
            "to 32768 at one query), prefill (seq 1 to 8192), decode_batches and prefill_batches (1 to 64), or all of "
            "these; op_stress: two_streams, graph_and_eager or two_devices; op_sanitize: tool of compute-sanitizer",
        ),
        Column("model", "text", "model whose attention it is", optional=True),
        _OP_FAMILY,
        *(replace(column, optional=True) for column in PROBLEM),
        replace(_INTERLEAVED, optional=True),
        replace(_MODE, optional=True),
        replace(_LAYOUT, optional=True),
        Column("timer", "text", "device_warm (see timings), or host_loop: the host's part of queued calls", True),
        Column("repetition", "integer", "which turn, from 1; each times all in an order of its own", optional=True),
        Column("n", "integer", "samples, calls or planned problems", optional=True),
        Column("p20_us", "number", "20th percentile of the time of one call, us", optional=True),
        Column("median_us", "number", "median of the time of one call, us", optional=True),
        Column("p80_us", "number", "80th percentile of the time of one call, us", optional=True),
        Column("seconds", "number", "wall time, s", optional=True),
        Column("kernels", "integer", "distinct kernels that are met, each compiled once", optional=True),
        Column("core", "text", "core of V8 that is planned for it: wgmma, mma or portable", optional=True),
        Column("once", "flag", "whether blocks share embedded keys", optional=True),
        _OP_STATUS,
        _REASON,
        _SOURCE_HASH,
        Column("measured_at", "text", "time, UTC"),
    ),
    "launches": (
        _VERSION,
        *PROBLEM,
        Column("ptx", "text", "digest of the PTX of its launches without mangled names (sm_90, sm_90a)"),
        _SOURCE_HASH,
    ),
    "hashes": (
        Column("old", "text", "source_hash as it was recorded"),
        Column("new", "text", "source_hash of the same code, in a later way of hashing"),
        _VERSION,
    ),
}
