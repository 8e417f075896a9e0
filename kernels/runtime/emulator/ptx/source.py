"""PTX text to statements: declarations, labels and instructions with their operands."""

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ..report import UnknownInstruction

WIDTHS = {
    "pred": 0, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8,
}  # fmt: skip
_KINDS = {"b": "u", "u": "u", "s": "i", "f": "f"}
SM_REGISTERS = 65_536
CARRY = "%carry"  # the condition code register, which no PTX text names


@cache
def numpy_type(ptx_type: str) -> np.dtype:
    """The dtype that holds a PTX type; packed and unusual floats are stored as their bits."""
    if ptx_type == "pred":
        return np.dtype(bool)
    if ptx_type in ("bf16", "f16x2", "bf16x2", "tf32"):
        return np.dtype(f"u{WIDTHS[ptx_type]}")
    return np.dtype(f"{_KINDS[ptx_type[0]]}{WIDTHS[ptx_type]}")


@dataclass
class Statement:
    """One instruction: `guard` is a predicate register (with `negated`), operands are texts."""

    text: str
    opcode: str
    operands: list[str]
    guard: str = ""
    negated: bool = False

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")


@dataclass
class PtxKernel:
    """A parsed kernel. `registers` maps each name, made unique by its scope, to its width in bytes (0: predicate)."""

    entry: str
    params: dict[str, str] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=lambda: {CARRY: WIDTHS["pred"]})
    statements: list[Statement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    shared_sizes: dict[str, int] = field(default_factory=dict)
    dynamic_shared: set[str] = field(default_factory=set)
    static_bytes: int = 0
    entry_registers: int = 0  # of a thread of a kernel with .maxntid that changes them
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    constants: dict[str, np.ndarray] = field(default_factory=dict)


_VARIABLE = re.compile(
    r"(?:\.(?P<linkage>extern|visible|weak|common)\s+)?\.(?P<space>shared|global|const|local)\s+(?:\.align\s+(?P<align>\d+)\s+)?"
    r"\.(?P<type>\w+)\s+(?P<name>[\w$]+)\s*(?:\[(?P<count>\d*)\])?\s*(?:=\s*(?P<value>\{[^}]*\}|[^;{}]+))?$"
)


_LABEL = re.compile(r"([$%\w]+)\s*:(?!:)")


_OPERAND = re.compile(r"(?:[^,{\[]|\{[^}]*\}|\[(?:[^\]{]|\{[^}]*\})*\])+")


def split_operands(text: str) -> list[str]:
    """Split at commas outside of braces and brackets."""
    return [part.strip() for part in _OPERAND.findall(text) if part.strip()]


def parse_number(text: str) -> int | float | None:
    """An immediate; 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX are floats given by their bits. None for other texts."""
    sign = -1 if text.startswith("-") else 1
    body = text.lstrip("-")
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", body):
        return sign * struct.unpack(">f", bytes.fromhex(body[2:]))[0]
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", body):
        return sign * struct.unpack(">d", bytes.fromhex(body[2:]))[0]
    if re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)U?", body):
        return sign * int(body.rstrip("U"), 0)
    if re.fullmatch(r"\d*\.\d+([eE][-+]?\d+)?", body):
        return sign * float(body)
    return None


def parse_source(text: str) -> PtxKernel:
    """The one kernel (`.entry`) of a PTX text."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^\s*\.(loc|file|section|version|target|address_size)\b[^\n;]*;?$", "", text, flags=re.M)
    entry = re.search(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?", text)
    if entry is None:
        raise ValueError("the PTX has no .entry")
    source = PtxKernel(entry[1])
    for param in re.finditer(
        r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s+[^,]*?)?([\w$]+)(\[\d+\])?\s*(?:,|$)", entry[2] or ""
    ):
        if param[3]:
            raise UnknownInstruction(f".param {param[2]}{param[3]}: parameters by value are not supported")
        source.params[param[2]] = param[1]
    start = text.index("{", entry.end())
    source.entry_registers = _entry_registers(text[entry.end() : start])
    body, rest = _body(text, start)
    for declaration in (text[: entry.start()] + rest).split(";"):
        declaration = re.sub(r"\.(visible|weak)\s*$", "", declaration).strip()
        if re.search(r"\.(shared|global|const|local)\b", declaration):
            _variable(source, declaration)
        elif ".func" in declaration:
            raise UnknownInstruction(
                f"call: the PTX holds a function that was not inlined: {declaration.split('{')[0].strip()}"
            )
    _statements(source, body)
    source.static_bytes = -(-source.static_bytes // 16) * 16
    for name in source.dynamic_shared:
        source.shared[name] = source.static_bytes
    return source


def _entry_registers(directives: str) -> int:
    """Registers that ptxas gives each thread of a kernel with setmaxnreg: an even share of an SM's, a multiple of 8."""
    sizes = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", directives)
    if sizes is None:
        return 0
    blocks = re.search(r"\.minnctapersm\s+(\d+)", directives)
    threads = math.prod(int(size or 1) for size in sizes.groups()) * int(blocks[1] if blocks else 1)
    return min(SM_REGISTERS // threads // 8 * 8, 256)


def _body(text: str, start: int) -> tuple[str, str]:
    depth = 0
    for brace in re.finditer("[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            stop = start + brace.start()
            return text[start + 1 : stop], text[stop + 1 :]
    raise ValueError("the kernel's braces are not balanced")


def _variable(source: PtxKernel, declaration: str) -> None:
    match = _VARIABLE.search(declaration)
    if match is None:
        raise UnknownInstruction(f"declaration {declaration!r}")
    name, width, alignment = match["name"], WIDTHS[match["type"]], int(match["align"] or WIDTHS[match["type"]])
    size = width * int(match["count"] or 1)
    if match["space"] == "shared":
        if match["linkage"] == "extern":
            source.dynamic_shared.add(name)
            return
        source.shared[name] = -(-source.static_bytes // alignment) * alignment
        source.shared_sizes[name] = size
        source.static_bytes = source.shared[name] + size
    elif match["space"] == "local":
        source.local[name] = -(-source.local_bytes // alignment) * alignment
        source.local_bytes = source.local[name] + size
    else:
        values = [parse_number(v.strip()) for v in (match["value"] or "").strip("{} ").split(",") if v.strip()]
        if None not in values:  # initialisers with symbols belong to Numba's environment and are never read
            content = np.zeros(size // width, numpy_type(match["type"]))
            content[: len(values)] = values
            source.constants[name] = content


def _statements(source: PtxKernel, body: str) -> None:
    """Walk the body: braces at the start of a statement open and close scopes of register names."""
    scopes: list[dict[str, str]] = [{}]
    opened = 0
    position, end = 0, len(body)

    def resolve(text: str) -> str:
        def unique(match: re.Match[str]) -> str:
            for scope in reversed(scopes):
                if match[0] in scope:
                    return scope[match[0]]
            return match[0]

        return re.sub(r"[%$A-Za-z_][\w$.]*", unique, text)

    while position < end:
        char = body[position]
        if char.isspace() or char == ";":
            position += 1
            continue
        if char in "{}":
            if char == "{":
                scopes.append({})
                opened += 1
            else:
                scopes.pop()
            position += 1
            continue
        label = _LABEL.match(body, position)
        if label:
            source.labels[label[1]] = len(source.statements)
            position = label.end()
            continue
        stop = body.find(";", position)
        statement = " ".join(body[position : stop if stop >= 0 else end].split())
        position = stop + 1 if stop >= 0 else end
        if statement.startswith(".reg"):
            _registers(source, statement, scopes[-1], opened if len(scopes) > 1 else 0)
        elif re.match(r"(\.extern\s+)?\.(shared|local)\b", statement):
            _variable(source, statement)
        elif statement.startswith("."):
            if not statement.startswith((".pragma", ".loc")):
                raise UnknownInstruction(f"directive {statement.split()[0]}")
        else:
            source.statements.append(_instruction(statement, resolve))


def _registers(source: PtxKernel, statement: str, scope: dict[str, str], number: int) -> None:
    match = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", statement)
    if match is None or match[1] not in WIDTHS:
        raise UnknownInstruction(f"declaration {statement!r}")
    for name in split_operands(match[2]):
        many = re.fullmatch(r"([%\w$]+)<(\d+)>", name)
        for each in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
            scope[each] = f"{each}@{number}" if number else each
            source.registers[scope[each]] = WIDTHS[match[1]]


def _instruction(text: str, resolve: Callable[[str], str]) -> Statement:
    guard = re.match(r"@(!?)([%\w$]+)\s+", text)
    plain = text[guard.end() :] if guard else text
    opcode, _, rest = plain.partition(" ")
    return Statement(
        text,
        opcode,
        [resolve(operand) for operand in split_operands(rest)],
        resolve(guard[2]) if guard else "",
        bool(guard and guard[1]),
    )
