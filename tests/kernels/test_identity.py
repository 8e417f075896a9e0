"""Measurements stay valid when words change, or where code lies, and not when code does."""

from dataclasses import replace

import pytest

from kernels import VERSIONS, Problem
from kernels.runtime.definitions import Code, UnresolvedName
from kernels.runtime.identity import kernel_identity, source_hash
from kernels.version import Kernel


def test_every_version_has_a_hash_of_its_own() -> None:
    assert len({source_hash(version) for version in VERSIONS.values()}) == len(VERSIONS)


def test_kernel_is_the_same_while_its_code_and_constants_are() -> None:
    def kernel_of(name: str, seq: int, fast_math: bool = False) -> Kernel:
        problem = Problem("rope", heads=2, seq_q=seq, hdim=256, rotary_dim=64)
        return replace(VERSIONS[name](problem).launches[-1].kernel, fast_math=fast_math)

    names = [kernel_identity(kernel_of(*of)) for of in (("rope_v7", 16), ("rope_v8", 16), ("rope_v8", 128))]
    names.append(kernel_identity(kernel_of("rope_v7", 16, fast_math=True)))
    assert len(set(names)) == 4
    assert names[:2] == [kernel_identity(kernel_of(name, 16)) for name in ("rope_v7", "rope_v8")]
    assert not any("kernels" in name or "0x" in name for name in names), "it would differ elsewhere"


# ---------------------------------------------------------------- what a name stands for


def small(plan: str, **others: str) -> Code:
    """A package of a few lines: `plan` in package.plan, other modules beside it, `init` for the package itself."""
    sources = {"package": (others.pop("init", ""), True), "package.plan": (plan, False)}
    sources |= {f"package.{name}": (text, False) for name, text in others.items()}
    return Code("package", sources.get)


def digest(plan: str, **others: str) -> str:
    return small(plan, **others).digest("package.plan", "plan")


CONTRACT = "class Unsupported(ValueError): ...\ndef register(**words): ...\nclass Plan: ..."
KERNEL = """
from .constants import TILE
from .reduce import total
@register(title="A tile of keys")
def plan(problem):
    '''Words.'''
    return total(problem.size // TILE)  # of keys
"""
CONSTANTS = "'''Of tiles.'''\nTILE = 24\nOTHER = 7"
REDUCE = "STEPS = 16, 8, 4, 2, 1\ndef total(x):\n    '''A sum.'''\n    return sum(x >> step for step in STEPS)"
REGISTER = "from .version import register\n"


def kernel(old: str = "", new: str = "") -> str:
    """The hash of a kernel that uses a constant and a function of other modules, one of which may have other text."""
    sources = {"plan": REGISTER + KERNEL, "constants": CONSTANTS, "reduce": REDUCE, "version": CONTRACT}
    assert not old or sum(old in text for text in sources.values()) == 1
    return digest(**{name: text.replace(old, new) if old else text for name, text in sources.items()})


WORDS = [
    ("A tile of keys", "Another title"), ("Words.", "Other words."), ("# of keys", "# of values"),
    ("Of tiles.", "About tiles."), ("A sum.", "A total."), ("OTHER = 7", "OTHER = 8"), ("// TILE", "//  TILE"),
]  # fmt: skip
CODE = [
    ("TILE = 24", "TILE = 25"), ("TILE = 24", "TILE = 24.0"), ("2, 1\n", "2\n"), ("x >> step", "x << step"),
    ("problem.size //", "problem.size %"), ("import total", "import total as sum_\ntotal = max"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [*WORDS, *CODE])
def test_code_and_constants_change_a_hash_and_words_do_not(old: str, new: str) -> None:
    assert (kernel(old, new) == kernel()) == ((old, new) in WORDS)


BINDINGS = [
    "x = 1",
    "x, y = 1, 2",
    "(y, [*x]) = 1, 2",
    "y = x = 1",
    "x: int = 1",
    "x = 0\nx += 1",
    "x = {}\nx['key'] = 1",
    "x = []\nx.append(1)",
    "print(x := 1)",
    "if True:\n    x = 1",
    "for x in [1]:\n    pass",
    "with open(1) as x:\n    pass",
    "try:\n    x = 1\nexcept OSError:\n    x = 0",
    "try:\n    import numpy as x\nexcept ImportError:\n    x = 1",
    "class x:\n    y = 1",
    "class x:\n    def y(self):\n        return 1",
    "def x():\n    return 1",
    "y = 1\ndef x():\n    return y",
    "y = 1\ndef x(z=y):\n    return z",
    "y = 1\nx = [y for z in 'ab' if z]",
    "y = 1\nx = [y for y in [y]]",
]
WAYS = [
    {"plan": "{binding}\ndef plan():\n    return x"},
    {"plan": "from .other import x\ndef plan():\n    return x", "other": "{binding}"},
    {"plan": "from package.other import x as z\ndef plan():\n    return z", "other": "{binding}"},
    {"plan": "from . import other\ndef plan():\n    return other.x", "other": "{binding}"},
    {"plan": "import package.other\ndef plan():\n    return package.other.x", "other": "{binding}"},
    {"plan": "def plan():\n    from .other import x\n    return x", "other": "{binding}"},
    {"plan": "from . import z\ndef plan():\n    return z", "init": "from .other import x as z", "other": "{binding}"},
]


@pytest.mark.parametrize("binding", BINDINGS)
def test_name_is_followed_to_whatever_binds_it(binding: str) -> None:
    def digests(binding: str) -> set[str]:
        return {digest(**{name: text.format(binding=binding) for name, text in way.items()}) for way in WAYS}

    before, after = digests(binding), digests(binding.replace("1", "3"))
    assert len(before) == len(after) == 1 and before != after


LOCAL = [
    "def plan(x):\n    return x",
    "def plan():\n    x = 2\n    return x",
    "def plan():\n    for x in 'ab':\n        print(x)",
    "def plan():\n    return [x for x in 'ab']",
    "def plan():\n    def inner(x):\n        return x\n    return inner",
    "def plan():\n    import numpy as x\n    return x.x",
    "def plan():\n    return 'x'.x",
]


@pytest.mark.parametrize("plan", LOCAL)
def test_local_variable_is_not_what_bears_its_name_elsewhere(plan: str) -> None:
    assert digest(f"x = 1\n{plan}") == digest(f"x = 3\n{plan}") == digest(plan)


def test_names_of_a_class_are_not_seen_by_its_functions() -> None:
    plan = "x = {}\nclass plan:\n    x = 2\n    def y(self):\n        return x"
    assert digest(plan.format(1)) != digest(plan.format(3))


def test_definitions_of_one_name_are_not_confused() -> None:
    first, second = "def f():\n    return 1\n", "def f():\n    return 2\n"
    plan = "from . import a, b\ndef plan():\n    return a.f() - b.f()"
    assert digest(plan, a=first, b=second) != digest(plan, a=second, b=first)
    assert digest(plan, a=first, b=second) != digest(plan.replace("b.f", "a.f"), a=first)


def test_functions_that_call_each_other_have_one_hash() -> None:
    even, odd = "def plan(n):\n    return n == 0 or odd(n - 1)\n", "def odd(n):\n    return n == 1 or plan(n - 1)\n"
    together, apart = digest(even + odd), digest(f"from .b import odd\n{even}", b=f"from .plan import plan\n{odd}")
    assert together == apart == digest(odd + even)
    assert digest(even + odd.replace("n == 1", "n == 3")) != together


VERSION = """
from .version import Plan, Unsupported, register
from .needs import require, require_some
@register(title="A")
def plan(problem):
    '''Words.'''
    require_some(problem, 1)
    if problem.size > 1:
        require(problem.odd, "1")
        raise Unsupported("1")
    try:
        return Plan(problem.size + 2)
    except ArithmeticError as error:
        raise Unsupported("1") from error
"""
NEEDS = (
    "from .version import Unsupported\ndef require(*x):\n    raise Unsupported(1)\ndef require_some(*x): require(*x)"
)


def test_refusals_and_the_contract_change_no_hash() -> None:
    before = digest(VERSION, version=CONTRACT, needs=NEEDS)
    assert digest(VERSION.replace("1", "3"), version=CONTRACT, needs=NEEDS.replace("1", "3")) == before
    assert digest(VERSION, version=CONTRACT.replace("...", "x = 1"), needs=NEEDS) == before
    assert digest(VERSION.replace('title="A"', 'title="B", wrong=True'), version=CONTRACT, needs=NEEDS) == before
    assert digest(VERSION.replace("2", "3"), version=CONTRACT, needs=NEEDS) != before
    taken, needs = VERSION.replace("require_some(problem", "size = require_some(problem"), f"{NEEDS}; return 2"
    assert digest(taken, version=CONTRACT, needs=needs) != digest(
        taken, version=CONTRACT, needs=needs.replace("2", "3")
    )


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("def plan():\n    return gone", "package.plan: gone, which plan uses"),
        ("from .other import gone\ndef plan():\n    return gone", "package.other has no gone"),
        ("from . import gone\ndef plan():\n    return gone", "package has no gone"),
        ("from .gone import x\ndef plan():\n    return x", "no module package.gone"),
        ("from . import other\ndef plan():\n    return other.gone", "package.other has no gone"),
        ("from .other import *\ndef plan():\n    return 1", "imports all names of package.other"),
        ("from . import other\ndef plan():\n    return print(other)", "uses the module package.other as a value"),
        ("from .other import x\nx = 1\ndef plan():\n    return x", "both imports and defines x"),
        ("def plan():\n    global x\n    x = 1", "plan has Global, whose names are not followed"),
        ("def plan():\n    match 1:\n        case [x, *_]:\n            return x", "plan has Match, whose names"),
        ("def plan():\n    async def x():\n        return 1", "plan has AsyncFunctionDef, whose names"),
        ("def plan():\n    return [x for y in 'ab' if (x := y)]", "plan has := in a comprehension, whose names"),
    ],
)
def test_name_that_does_not_resolve_is_an_error(plan: str, message: str) -> None:
    with pytest.raises(UnresolvedName, match=message):
        digest(plan, other="x = 1")
