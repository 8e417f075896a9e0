"""From a statement to an instruction: the registry of opcodes, and what their decoders share.

A decoder takes an `Instruction` and returns a closure `step(row, mask)`, or None for what the scheduler executes. A
mask is True for all lanes of the row, or bool[lanes].
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from ..ptx.program import SlottedKernel
from ..ptx.source import WIDTHS, Statement, split_operands
from ..report import UnknownInstruction
from ..row import Mask, Row
from . import arithmetic as am

PLAIN, BRANCH, EXIT, BARRIER, CLUSTER_WAIT, CONVERGENT, PHASE_WAIT = range(7)

F32, U32 = np.float32, np.uint32
Step = Callable[[Row, Mask], None]
Blocked = Callable[[Row, Mask], np.ndarray | None]
Decoder = Callable[["Instruction"], Step | None]
DECODERS: dict[str, tuple[Decoder, frozenset[str], bool]] = {}
CONVERTED = ("f16", "bf16", "f16x2", "bf16x2", "tf32")  # types of conversions and products alone
LANES = np.arange(32)
GROUP, MEMBER = LANES >> 2, LANES & 3  # of a lane in the fragments of a product
BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def opcode(names: str, modifiers: str = "", ordered: bool = False) -> Callable[[Decoder], Decoder]:
    """Register the decoder of some opcodes with the modifiers it understands (types are always allowed).

    An opcode may include its first modifier, if that selects a different instruction. Those that access or order memory
    are `ordered`: each is a step of the race detection.
    """

    def register(decoder: Decoder) -> Decoder:
        for name in names.split():
            DECODERS[name] = (decoder, frozenset(modifiers.split()), ordered)
        return decoder

    return register


class Instruction:
    """One statement, decoded. `step(row, mask)` executes it; `guard` and `members` are the slots of its predicate and
    of a warp instruction's member mask, `target` is where a branch leads, each -1 without.

    `blocked(row, mask)` of a wait for an mbarrier returns the barrier that each lane waits for, or None if none waits.
    """

    step: Step

    def __init__(self, module: SlottedKernel, statement: Statement, index: int) -> None:
        self.module, self.statement, self.index = module, statement, index
        self.head, *self.modifiers = statement.parts
        self.operands = statement.operands
        self.types = [part for part in self.modifiers if part in WIDTHS]
        self.flags = {part for part in self.modifiers if part not in WIDTHS}
        self.kind = PLAIN
        self.guard = module.operand(statement.guard, "pred") if statement.guard else -1
        self.negated = statement.negated
        self.target = self.members = -1
        self.blocked: Blocked = lambda row, mask: None

    @property
    def type(self) -> str:
        if not self.types or self.types[-1] in CONVERTED:
            raise self.unknown("its type" if self.types else "it has no type")
        return self.types[-1]

    @cached_property
    def counter(self) -> str:
        return f"event.{self.modifiers[0]}" if self.head == "mark" else f"inst.{_counter(self)}"

    @property
    def is_float(self) -> bool:
        return self.type in ("f32", "f64")

    def unknown(self, why: str) -> UnknownInstruction:
        return UnknownInstruction(f"{self.statement.opcode}: {why} in '{self.statement.text}'")

    def flag(self, choices: str, default: str = "") -> str:
        """The one modifier of `choices` that the statement has."""
        return next((part for part in self.modifiers if part in choices.split()), default)

    def source(self, position: int, kind: str | np.dtype | None = None) -> int:
        return self.module.operand(self.operands[position], kind or self.type)

    def sources(self, *positions: int) -> list[int]:
        return [self.source(position) for position in positions]

    def result(self, position: int = 0, kind: str | np.dtype | None = None) -> int:
        return self.module.result(self.operands[position], kind or self.type)

    def predicate(self, text: str) -> tuple[int, bool]:
        """Slot of a predicate operand, and whether it is negated."""
        return self.module.operand(text.lstrip("!"), "pred"), text.startswith("!")

    def vector(self, position: int) -> list[str]:
        return split_operands(self.operands[position].strip("{} "))

    def apply(self, function: Callable, *sources: int) -> Step:
        """A closure that computes `function` of slots into the first operand; ufuncs write in place."""
        target = self.result()
        if self.type == "f32" and "ftz" in self.flags:
            function = compose(am.flush, flushed(function))
        if "sat" in self.flags and self.is_float:
            function = compose(am.saturate, function)
        return elementwise(function, target, *sources)


def begun(step: Step, index: int) -> Step:
    def both(row: Row, mask: Mask) -> None:
        row.unit.begin(index)
        step(row, mask)

    return both


def no_step(row: Row, mask: Mask) -> None:
    """The step of an instruction that the scheduler executes, or that has no effect here."""


def elementwise(function: Callable, out: int, *sources: int) -> Step:
    """A closure that computes `function` of the source slots into the slot `out`."""

    def in_place(row, mask):
        views = row.views
        function(*[views[s] for s in sources], out=views[out], where=mask)

    def copied(row, mask):
        views = row.views
        np.copyto(views[out], function(*[views[s] for s in sources]), where=mask)

    return in_place if isinstance(function, np.ufunc) else copied


def flushed(function: Callable) -> Callable:
    """`function` with subnormal float32 operands replaced by zero (.ftz)."""
    return lambda *args: function(*map(am.flush, args))


def compose(second: Callable, first: Callable) -> Callable:
    return lambda *args: second(first(*args))


def decode(module: SlottedKernel, statement: Statement, index: int) -> Instruction:
    """Decode one statement. Raises: UnknownInstruction for an unknown opcode, modifier or operand, which it names."""
    instruction = Instruction(module, statement, index)
    wholes = (".".join(statement.parts[:length]) for length in (4, 2))
    name = next((whole for whole in wholes if whole in DECODERS), instruction.head)
    if name not in DECODERS:
        raise UnknownInstruction(f"opcode {statement.opcode} in '{statement.text}'")
    decoder, allowed, ordered = DECODERS[name]
    strange = {flag for flag in instruction.flags - allowed if not flag.startswith(("L1::", "L2::"))}
    if strange:
        raise instruction.unknown(f"modifier {', '.join(sorted(strange))}")
    try:
        step = decoder(instruction)
    except UnknownInstruction as error:
        raise UnknownInstruction(f"{statement.opcode}: {error}") from error
    except (IndexError, KeyError, ValueError, StopIteration) as error:
        raise instruction.unknown(f"{type(error).__name__} {error}") from error
    instruction.step = begun(step, index) if step and ordered else step or no_step
    return instruction


def _counter(d: Instruction) -> str:
    head, types = d.head, d.types
    if head in ("sin", "cos", "ex2", "lg2", "rcp", "rsqrt", "sqrt", "tanh"):
        return f"mufu.{head}"
    if head in ("ld", "st", "atom", "red"):
        if "param" in d.flags:
            return "other"
        space = d.flag("global shared shared::cta shared::cluster local const", "global").split("::")[0]
        return ("atom." if head in ("atom", "red") else f"{head}.") + space.replace("const", "global")
    if head == "ldmatrix":
        return "ld.shared"
    if head == "cp" and "bulk" in d.flags:
        return "cp_bulk"
    if head == "cp":
        return "cp_async" if "shared" in d.flags else "other"
    if head in ("shfl", "mma", "cvt"):
        return head
    if head == "wgmma":
        return "wgmma" if "mma_async" in d.flags else "other"
    if head in ("bar", "barrier", "mbarrier"):
        return "barrier"
    if head in ("bra", "ret", "exit"):
        return "control"
    if head in ("mov", "cvta", "selp", "mapa", "vote", "membar", "fence"):
        return "other"
    if not types:
        return "other"
    if "f64" in types:
        return "fp64"
    if "f16" in types:
        return "fp16"
    if "f32" in types:
        return "fma" if head in ("fma", "mad") else "fp32"
    return "int"
