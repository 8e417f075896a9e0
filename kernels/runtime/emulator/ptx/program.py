"""A parsed kernel with the slots of its operands.

A slot is one typed view of an operand: an array with a lane per thread (registers, special registers) or a NumPy
scalar (constants).
"""

from typing import Any

import numpy as np

from ..report import UnknownInstruction
from .source import WIDTHS, PtxKernel, Statement, numpy_type, parse_number

SPECIAL = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"}
SPECIAL |= {"%laneid", "%warpid", "%cluster_ctarank", "%cluster_nctarank", "%dynamic_smem_size"}


class SlottedKernel:
    """A parsed kernel; `name` is its short name in findings.

    `slots` describes the operands in use: ("register", name, dtype), ("constant", value), ("special", name, dtype),
    ("param", name, dtype) or ("symbol", name, dtype) of an initialised global variable. `stored_params` are the pointer
    parameters through which the kernel may store.
    """

    def __init__(self, source: PtxKernel, name: str) -> None:
        self.source = source
        self.name = name
        self.slots: list[tuple] = []
        self._numbers: dict[tuple, int] = {}
        self.granule = self._granule()
        self._single_constants = self._find_constants()
        opcodes = [statement.opcode for statement in source.statements]
        self.is_atomic = np.array([opcode.startswith(("atom.", "red.")) for opcode in opcodes] + [False])
        self.is_bulk = np.array([opcode.startswith("cp.async.bulk.") for opcode in opcodes] + [False])
        self.uses_cluster = any("cluster" in opcode or opcode.startswith("mapa") for opcode in opcodes)
        self.uses_mbarriers = any(opcode.startswith(("mbarrier.", "st.async.")) for opcode in opcodes)
        self.stored_params = _stored_params(source)

    def _granule(self) -> int:
        """The smallest width of any access to shared or global memory, at most 4 bytes."""
        widths = [4]
        for statement in self.source.statements:
            if statement.parts[0] in ("ld", "st", "atom", "red") and not {"param", "local"} & set(statement.parts):
                widths.append(WIDTHS.get(statement.parts[-1], 4))
        return min(widths)

    def _find_constants(self) -> dict[str, int]:
        """Integer registers whose only assignment is a `mov` of an immediate."""
        assigned: dict[str, list[Statement]] = {}
        for statement in self.source.statements:
            if statement.operands:
                for name in statement.operands[0].strip("{}").replace("|", ",").split(","):
                    assigned.setdefault(name.strip(), []).append(statement)
        found = {}
        for name, statements in assigned.items():
            first = statements[0]
            if len(statements) == 1 and first.parts[0] == "mov" and not first.guard and len(first.operands) == 2:
                value = parse_number(first.operands[1])
                if isinstance(value, int):
                    found[name] = value
        return found

    # --- operands -----------------------------------------------------------------------------------

    def _slot(self, description: tuple) -> int:
        key = tuple(
            part.tobytes() + part.dtype.str.encode() if isinstance(part, np.generic) else part for part in description
        )
        if key not in self._numbers:
            self._numbers[key] = len(self.slots)
            self.slots.append(description)
        return self._numbers[key]

    def constant_value(self, text: str) -> int | None:
        """The value of an integer immediate, or of a register that only ever holds one value."""
        value = self._single_constants.get(text, parse_number(text))
        return value if isinstance(value, int) else None

    def constant(self, value: int | float, dtype: np.dtype) -> int:
        if dtype.kind == "b":
            typed: Any = np.bool_(value != 0)
        elif dtype.kind == "f":
            typed = dtype.type(value)
        elif isinstance(value, float):
            typed = np.array(value, f"f{dtype.itemsize}").view(dtype)[()]
        else:
            typed = np.array(int(value) & (1 << 8 * dtype.itemsize) - 1, f"u{dtype.itemsize}").view(dtype)[()]
        return self._slot(("constant", typed))

    def operand(self, text: str, ptx_type: str | np.dtype) -> int:
        """Slot of a source operand. Raises: UnknownInstruction."""
        dtype = ptx_type if isinstance(ptx_type, np.dtype) else numpy_type(ptx_type)
        source = self.source
        if text in source.registers:
            width = source.registers[text]
            if (width == 0) != (dtype.kind == "b") or (width and width < dtype.itemsize):
                raise UnknownInstruction(f"operand {text}: {8 * width} bits where {dtype} is expected")
            return self._slot(("register", text, dtype))
        if text in SPECIAL:
            return self._slot(("special", text, dtype))
        if text in source.shared:
            return self.constant(source.shared[text], dtype)
        if text in source.local:
            return self.constant(source.local[text], dtype)
        if text in source.constants:
            return self._slot(("symbol", text, dtype))
        value = parse_number(text)
        if value is None:
            raise UnknownInstruction(f"operand {text!r}")
        return self.constant(value, dtype)

    def result(self, text: str, ptx_type: str | np.dtype) -> int:
        """Slot of a destination; a register wider than the type is written whole, sign-extended."""
        dtype = ptx_type if isinstance(ptx_type, np.dtype) else numpy_type(ptx_type)
        if text == "_":
            return self._slot(("register", f"_{dtype}", dtype))
        if text not in self.source.registers:
            raise UnknownInstruction(f"destination {text!r}")
        width = self.source.registers[text]
        if (width == 0) != (dtype.kind == "b") or (width and width < dtype.itemsize):
            raise UnknownInstruction(f"destination {text}: {8 * width} bits for {dtype}")
        if width > dtype.itemsize:
            if dtype.kind == "f":
                raise UnknownInstruction(f"destination {text}: {8 * width} bits for {dtype}")
            dtype = np.dtype(f"{dtype.kind}{width}")
        return self._slot(("register", text, dtype))

    def param(self, name: str, ptx_type: str) -> int:
        return self._slot(("param", name, numpy_type(ptx_type)))


def _stored_params(source: PtxKernel) -> set[str]:
    """Pointer parameters through which a store or an atomic may go, by propagation over 64-bit registers."""
    wide = {name for name, width in source.registers.items() if width == 8}
    origin: dict[str, set[str]] = {name: set() for name in wide}
    every = set(source.params)
    edges: list[tuple[str, list[str]]] = []
    targets: list[str] = []
    for statement in source.statements:
        operands, head = statement.operands, statement.parts[0]
        if head == "ld" and "param" in statement.parts:
            if operands[0] in origin:
                origin[operands[0]].add(operands[1].strip("[]").split("+")[0].strip())
        elif head in ("st", "red"):
            targets.append(operands[0])
        elif head == "atom":
            targets.append(operands[1])
        elif head in ("ld",):
            for name in operands[0].strip("{}").split(","):
                if name.strip() in origin:
                    origin[name.strip()] |= every  # a pointer loaded from memory may be any of them
        elif operands and operands[0].strip() in origin:
            names = [n.strip("{} ") for operand in operands[1:] for n in operand.split(",")]
            edges.append((operands[0], [n for n in names if n in origin]))
    changed = True
    while changed:
        changed = False
        for name, sources in edges:
            merged = origin[name].union(*(origin[s] for s in sources))
            changed |= merged != origin[name]
            origin[name] = merged
    stored: set[str] = set()
    for target in targets:
        base = target.strip("[]").split("+")[0].strip()
        stored |= origin.get(base, set())
    return stored
