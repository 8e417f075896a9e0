"""What every column of the tables under data/ means, for those who read, write and describe them."""

from dataclasses import dataclass, fields, replace
from functools import partial

from kernels.version import PROBLEM_COLUMNS, Problem

STATUSES = ("ok", "wrong", "infeasible", "unsupported", "error")  # of a check, from the best to the worst


@dataclass(frozen=True)
class Column:
    """A column of a table. One that is added to a table later may be empty: files of before lack it."""

    kind: str
    name: str
    meaning: str
    optional: bool = False


text, integer, number, flag = (partial(Column, kind) for kind in ("text", "integer", "number", "flag"))


def optional(*columns: Column) -> tuple[Column, ...]:
    """The same columns, of which a row may have none."""
    return tuple(replace(column, optional=True) for column in columns)


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
PROBLEM = tuple(Column(_KINDS[str(f.type)], f.name, _PROBLEM_MEANINGS[f.name]) for f in fields(Problem))

_SHAPE = ("batch", "heads", "seq_q", "seq_k", "hdim", "rotary_dim", "dtype")
_RUN = text("run", "the measuring run, named by its start in UTC")
_STUDY = text("study", "the study (see analysis/measure/studies.py)")
_VERSION = text("version", "id of the kernel version or peer")
_LAUNCH = (integer("launch", "which launch of the call, from 0"), text("kernel", "name of the kernel"))
_SOURCE_HASH = text("source_hash", "hash of the code that made the version's kernels and launches")
_MEASURED_AT = text("measured_at", "time, UTC")
_COMMIT = text("commit", "commit of this project, with -dirty if other than measured files had changed")
_STATUS = (
    text("status", "ok, wrong (as the version declares), infeasible, unsupported or error"),
    text("reason", "why the status is not ok", True),
)
_ERROR = number("max_abs_err", "largest absolute difference from float64 over finite outputs", True)
_ALLOWED = number("allowed_abs_err", "4 times the error of fp32 math attention on the same inputs", True)
_P20 = number("p20_us", "20th percentile of the time of one call, us", True)
_MEDIAN = number("median_us", "median of the time of one call, us", True)
_P80 = number("p80_us", "80th percentile of the time of one call, us", True)
_CORE = text("core", "core of V8 that runs it: wgmma, mma or portable; empty of others and of old rows", True)

# Calls of the op: evidence that stays, and part of which is measured again.
_OP_STATUS = text(
    "status", "ok, wrong (a promise of the op is broken), fell_back (PyTorch computed it, right), refused, hang, "
    "error, unavailable (not on this machine)",
)  # fmt: skip
_OP_FAMILY = text("version", "the version of V8 whose kernels the op of that family launches")
_OP_OPTIONS = (
    flag("interleaved", "whether RoPE's pairs are dims (2j, 2j + 1), not (j, j + rotary_dim / 2)"),
    text("mode", "where RoPE's angles come from: rates or tables; _positions: positions are given"),
    text(
        "layout", "how q, k, v lie: contiguous; transposed [batch, seq, heads, hdim]; cache: k, v rows of longer ones; "
        "unaligned; strided: every other element; expanded: one head for all; negated: by the lazy bit",
    ),
)  # fmt: skip
_INTERLEAVED, _MODE, _LAYOUT = _OP_OPTIONS

SCHEMAS: dict[str, tuple[Column, ...]] = {
    "runs": (
        _RUN, _STUDY,
        text("node", "name of the machine"),
        text("started_at", "start, UTC"),
        text("finished_at", "end, UTC; empty while the run is incomplete", True),
        flag("complete", "whether every row of the study was measured"),
        number("seconds", "wall time of the call that finished the run, s"),
        text("driver", "NVIDIA driver"), text("cuda", "CUDA version of torch"), text("python", "Python"),
        text("numba", "numba"), text("numba_cuda", "numba-cuda"), text("torch", "torch"),
        integer("sm_mhz_max", "highest SM clock the GPU allows, MHz", True),
        integer("power_limit_w", "power limit, W", True),
        text("throttle", "reasons for reduced clocks seen around timings, joined with +; none; unknown if unreadable"),
        _COMMIT,
        text("uuid", "UUID of the card; empty where it says none, and in rows of before it was kept", True),
        integer("other_processes", "most processes of others seen on the card; empty where not read", True),
        integer("repeated", "timings that were repeated, a process being off its siblings; empty of before", True),
    ),
    "checks": (
        _RUN, _STUDY, _VERSION, *PROBLEM,
        text("inputs", "uniform (in [-1, 1], the source's) or sharp (scores with standard deviation 4)"),
        *_STATUS, _ERROR, _ALLOWED,
        number("nan_share", "share of outputs that are not finite", True),
        _SOURCE_HASH, _MEASURED_AT, _CORE,
        number("relative_err", "norm of the difference from float64 over that of the output", True),
    ),
    "timings": (
        _RUN,
        integer("process", "process of the run, from 1"),
        _STUDY, _VERSION, *PROBLEM, *_STATUS,
        text("timer", "device_warm, device_cold or launched; empty in old rows of what could not run", True),
        integer("n", "samples", True),
        _P20, _MEDIAN, _P80, number("max_abs_err", "that of the check, in old rows", True), _SOURCE_HASH,
        integer("sm_mhz", "SM clock read after the samples, MHz", True),
        _MEASURED_AT,
        integer("discarded", "samples dropped as the card throttled; empty since, as they are kept", True),
        flag("repeated", "1 in the second row of a process off its siblings; the first stands above it", True),
    ),
    "published": (
        text("id", "N: printed in a document; X: from a log or source behind it"),
        text("source_document", "title of the document, or name of the log"),
        text("locator", "where in it"),
        text("family", "attention, sinusoidal, rope or fp16"),
        text("version", "id of the version, or the words of the document where there is none", True),
        text("baseline", "what a speedup compares with, named like version", True),
        *optional(*(column for column in PROBLEM if column.name in _SHAPE)),
        text("gpu", "GPU it was measured on", True),
        text("quantity", "what is stated: time_ms, speedup, percent, tflops, ..."),
        number("value", "the stated value"),
        text("unit", "its unit; x_faster and x_slower say which way a speedup goes", True),
        text("sense", "of a percentage that says which of two is ahead: faster or slower", True),
        text("limit", "low or high: that end of a range; least or most: a bound", True),
        text("what", "what the number is of, where the quantity does not say", True),
        text("note", "context", True),
        text("origin", "what is not in the document, and how the value is printed there", True),
    ),
    "resources": (
        _VERSION, *PROBLEM, *_LAUNCH,
        text("target", "compute target"),
        integer("registers", "registers a thread"),
        integer("spill_bytes", "bytes a thread spills, stores and loads together"),
        integer("stack_bytes", "bytes of stack a thread"),
        integer("shared_bytes", "bytes of shared memory a block"),
        integer("blocks_per_sm", "blocks that one SM holds at a time"),
        _SOURCE_HASH,
    ),
    "counters": (
        _RUN, _STUDY, _VERSION, *PROBLEM, *_LAUNCH,
        text("metric", "name that Nsight Compute gives it; `, cold` where caches were flushed before"),
        number("value", "what was read in one launch"),
        text("unit", "its unit", True),
        _SOURCE_HASH,
    ),
    "sanitizers": (
        _RUN,
        text("tool", "tool of compute-sanitizer: memcheck, racecheck, initcheck, synccheck"),
        _VERSION, *optional(*PROBLEM),
        text(
            "finding", "none, race, uninitialised, out_of_bounds, divergent_barrier; not_checked: the silence says "
            "nothing; unsupported: not on this GPU",
        ),
        text("kernel", "kernel it was found in; rows since are of a whole version", True),
        text("place", "buffer, or array of shared memory; shared: one that is not known", True),
        flag("expected", "whether the version declares this hazard; 1 where there is none to declare"),
        _SOURCE_HASH,
        integer("hazards", "how many the tool counts on all small problems", True),
    ),
    "counts": (
        _VERSION, *PROBLEM, _LAUNCH[0],
        text("target", "compute target of the PTX that was executed"),
        text("counter", "what is counted, such as global.read.sectors (32 B each)"),
        number("value", "the count over all blocks of the launch"),
        _SOURCE_HASH,
    ),
    "verdicts": (
        text("claim_id", "the claim, by its id in analysis/claims"),
        text("kind", "of the claim: number, universal, cause, count, undecided"),
        text("verdict", "of the claim, in the words of analysis/claims/rule.py"),
        text("role", "headline, which decides; effect, what a cause explains"),
        text("part", "the part of the claim, where it has several", True),
        text("condition", "as timed by the documents' harness, device, matched in load", True),
        text("given", "the verdict of the headline, or the part, under that condition", True),
        text("place", "where: a head dim, a version", True),
        text("outcome", "at that place, in the words of a verdict"),
        text("says", "what the test compares"),
        text("rule", "what the measured value must be: published, at least, at most, between, equals", True),
        number("measured", "the value: a ratio's geometric mean over the processes, or exact", True),
        number("low", "lower end of its 95 % interval; empty where it is exact", True),
        number("high", "upper end", True),
        text("unit", "unit of these numbers", True),
        text("evidence", "tables and runs that it is from; stale: versions whose code has changed", True),
        text("reason", "why the test cannot be decided", True),
        text("before", "the claim's verdict by the runs before the latest of the same code", True),
    ),
    "shapes": (
        _RUN, _MEASURED_AT, _COMMIT, *PROBLEM,
        text("core", "wgmma (products of warpgroups) or mma (of warps)"),
        integer("cluster", "blocks of a cluster, which share the head dim"),
        integer("queries", "queries of a tile"),
        integer("keys", "keys of a tile"),
        integer("width", "dims of a block's slice"),
        integer("warps", "warps of a block; 4 are a warpgroup"),
        integer("across", "of them, those that take different keys; of core mma alone", True),
        integer("blocks_per_sm", "blocks that are meant to share an SM"),
        flag("once", "whether blocks that share keys embed these together first; of core wgmma alone"),
        text("cut", "lines of the kernel changed in a past audit; empty for none", True),
        flag("chosen", "whether rope_v8 takes this core and shape for the problem"),
        integer("blocks", "blocks of the launch", True),
        integer("shared_bytes", "bytes of shared memory a block", True),
        integer("registers", "registers a thread", True),
        text("status", "ok, infeasible, unsupported, error, or wrong: a part is left out, not checked"),
        _STATUS[1], _ERROR, _ALLOWED,
        number("median_us", "median time of one call (device_warm), middle one of 3 repetitions, us", True),
        _P20, _P80, _SOURCE_HASH,
    ),
    "op_problems": (
        _RUN, _STUDY,
        integer("seed", "seed of the draw of all calls"),
        integer("call", "which call of the draw, from 0"),
        text("function", "function of kernels/ops.py"),
        _OP_FAMILY, *PROBLEM, _INTERLEAVED,
        number("base", "base of RoPE's angles"),
        _MODE,
        number("scale", "what scores are multiplied by"),
        _LAYOUT,
        text(
            "inputs", "uniform, sharp, large (q, k from 1e-3 to 1e3), or with values of one kind: minus_inf_key, "
            "overflow (of scores, to -inf), inf_value, near_max, subnormal, nan_query",
        ),
        integer("largest_position", "largest position of a query or key"),
        _CORE,
        text("kernel", "name of its kernel", True),
        _OP_STATUS,
        text("reason", "the broken promises, joined with +, or why the status is not ok", True),
        _ERROR,
        number("fp32_abs_err", "that of fp32 math, the largest of 8 orders of its sums", True),
        number("allowed_abs_err", "4 times that, which is at least what rounding the output costs", True),
        number("ratio", "max_abs_err over a quarter of allowed_abs_err: at most 4 is right", True),
        number("seconds", "wall time of inputs, call and comparison, s"),
        _SOURCE_HASH, _MEASURED_AT,
        text("called", "eager, or graph: captured, and replayed after calls that evict what is cached", True),
        flag("lengths", "whether sequences have lengths of their own", True),
    ),
    "op": (
        _RUN,
        text("study", "op_time, op_first, op_compile, op_classes, op_stress or op_sanitize"),
        text(
            "what", "op_time: op, op_out (writes to `out=`) or launch (that of the version, prepared); op_compile: "
            "import, first_call_cold (nothing cached), first_call_cached (on disk) or second_call; op_classes: decode "
            "(seq_k 1 to 32768 at one query), prefill (seq 1 to 8192), decode_batches and prefill_batches (1 to 64), "
            "or all of these; op_stress: two_streams, graph_and_eager, killed or two_devices; op_sanitize: the tool",
        ),
        text("model", "model whose attention it is", True),
        _OP_FAMILY, *optional(*PROBLEM, *_OP_OPTIONS),
        text(
            "timer", "device_warm (see timings); host_loop: the host's part of queued calls; op_first: first_call of "
            "a process with nothing cached, second_call there, first_call_cached of the next process", True,
        ),
        integer("repetition", "which turn, from 1; each times all in an order of its own", True),
        integer("n", "samples, calls or planned problems", True),
        _P20, _MEDIAN, _P80,
        number("seconds", "wall time, s", True),
        integer("kernels", "distinct kernels that are met, each compiled once", True),
        _CORE,
        flag("once", "whether blocks share embedded keys", True),
        _OP_STATUS, _STATUS[1], _SOURCE_HASH, _MEASURED_AT,
    ),
    "launches": (
        _VERSION, *PROBLEM,
        text("ptx", "digest of the PTX of its launches without mangled names (sm_90, sm_90a)"),
        _SOURCE_HASH,
    ),
    "hashes": (
        text("old", "source_hash as it was recorded"),
        text("new", "source_hash of the same code, in a later way of hashing"),
        _VERSION,
    ),
}  # fmt: skip
UNFOLDED = ("published", "op")  # tables with rows of which some of a problem's columns are known


def stored(table: str, of_run: bool = False) -> list[Column]:
    """The columns of a table in its file: one for the problem, and none for the run, which its folder names."""
    found: list[Column] = []
    for column in SCHEMAS[table]:
        if column.name in PROBLEM_COLUMNS and table not in UNFOLDED:
            if column.name == PROBLEM_COLUMNS[0]:
                found.append(Column("problem", "problem", "the problem, by its name", column.optional))
        elif not (of_run and column.name == "run"):
            found.append(column)
    return found
