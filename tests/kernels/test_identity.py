"""Measurements stay valid when words change, or where code lies, and not when code does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernels import VERSIONS, Problem
from kernels.runtime import identity
from kernels.runtime.definitions import Code, UnresolvedName
from kernels.runtime.identity import CODE, kernel_identity, source_hash, source_of

TODAY = {name: source_hash(version) for name, version in VERSIONS.items()}
BEYOND = {"rope_v8", "rope_hybrid_v8", "rope_separate_v8", "attention_v8", "sinusoidal_v6", "alibi_v1", "learned_v1"}


def edited(module: str, old: str, new: str) -> Code:
    """The package with `old` replaced in a module, which does not change what it imports."""

    def source(name: str) -> tuple[str, bool] | None:
        text, is_package = source_of(name) or ("", False)
        if name == module:
            assert old in text
            text = text.replace(old, new)
        return text, is_package

    code = Code("kernels", source)
    code._modules = {name: bindings for name, bindings in CODE._modules.items() if name != module}
    code._parts = {definition: parts for definition, parts in CODE._parts.items() if definition.module != module}
    return code


def changed(*edit: str) -> set[str]:
    """The versions whose hash an edit changes."""
    code = edited(*edit)
    return {name for name, version in VERSIONS.items() if source_hash(version, code) != TODAY[name]}


def test_words_do_not_change_a_hash() -> None:
    assert not changed("kernels.rope.v7_hybrid", "RoPE V7, hybrid", "Another title")
    assert not changed("kernels.rope.v7_hybrid", 'title="Hybrid', 'title="The hybrid')
    assert not changed("kernels.rope.v7_hybrid", "    row_max = NEG", "    # a comment\n    row_max = NEG")
    assert not changed("kernels.peers.pytorch", "PyTorch SDPA, math", "SDPA")
    assert not changed("kernels.v8.embedding", "What happens to rows", "What is done to rows")


def test_what_only_refuses_a_problem_does_not_change_a_hash() -> None:
    assert not changed("kernels.constants", "if not condition:", "if not condition and template:")
    assert not changed("kernels.constants", "layout.nbytes <= limit", "layout.nbytes < limit")
    assert not changed("kernels.v8.embedding", "problem.hdim % 4 == 0", "problem.hdim % 8 == 0")
    assert not changed(
        "kernels.rope.v7_hybrid", "    require_log_problem(", "    require_shared(1)\n    require_log_problem("
    )
    assert not changed("kernels.peers.pytorch", "{needed} cannot be imported", "There is no {needed}")


def test_code_changes_the_hashes_of_the_versions_that_use_it() -> None:
    assert changed("kernels.rope.v7_hybrid", "2 * pair", "4 * pair") == {
        "rope_v7",
        "control_rope_v7",
        "control_rope_v7_no_break",
    }
    of_ints = changed("kernels.device.cint", "builder.sdiv(a, b)", "builder.udiv(a, b)")
    assert of_ints == changed("kernels.device.cint", "inbounds=True", "inbounds=False")
    assert {"attention_baseline", "rope_v7", "control_rope_v7", "rope_v3_64_queries"} <= of_ints
    assert "rope_v8" not in of_ints
    through_separate = changed("kernels.rope.separate", "POSITIONS = 64", "POSITIONS = 32")
    log = {name for name in through_separate if not (VERSIONS[name].ablation or VERSIONS[name].control_of)}
    assert log == {"rope_separate", "rope_v7"}
    assert "rope_v7_fused_k" in through_separate and "rope_separate_one_sync" not in through_separate
    shuffles = changed("kernels.device.reduce", "(16, 8, 4, 2, 1)", "(16, 8, 4, 2)")
    assert {"attention_baseline", "rope_v7", "sinusoidal_v5"} <= shuffles
    assert not any(VERSIONS[name].is_peer for name in shuffles)
    assert "rope_v1a" not in changed("kernels.device.trig", "[0]", "[1]")

    assert changed("kernels.v8.wgmma_shape", "TILE_COST = 24", "TILE_COST = 25") == BEYOND
    assert changed("kernels.v8.mma_shape", "ALONE = 7", "ALONE = 8") == BEYOND | {"rope_v8_mma"}
    assert changed("kernels.v8.portable_shape", "ENOUGH = 128", "ENOUGH = 64") == BEYOND | {"rope_v8_portable"}

    def peers(*prefixes: str) -> set[str]:
        return {name for name in VERSIONS if name.startswith(prefixes)}

    compiled = peers("torch_rope_", "flex_rope")
    assert changed("kernels.peers.pytorch", "f(turn) for turn", "f(-turn) for turn") == compiled | peers("triton_rope")
    compiled |= peers("torch_sinusoidal_", "torch_learned_")
    whole = {name for name in compiled if "one_graph" in name} | {"torch_rope_cache_sdpa"}
    assert changed("kernels.peers.pytorch", "dynamic=False", "dynamic=True") == compiled - whole
    assert changed("kernels.peers.one_graph", "dynamic=False", "dynamic=True") == whole
    assert {"torch_sdpa", "torch_rope_sdpa"} <= changed(
        "kernels.peers.pytorch", '"is_causal": problem', '"is_causal": not problem'
    )


def test_handed_on_unpacked_and_annotated_names_change_hashes() -> None:
    every_core = BEYOND | {"rope_v8_mma", "rope_v8_portable"}
    assert changed("kernels.v8.embedding", "keys: bool = True", "keys: bool = False") == every_core
    assert changed("kernels.v8", "and takes(problem)", "and not takes(problem)") == BEYOND
    integers = changed("kernels.device.asm", "ir.IntType(32), ir.VoidType()", "ir.IntType(64), ir.VoidType()")
    assert BEYOND | {"attention_async_double_buffer"} <= integers and "rope_v7" not in integers
    assert changed("kernels.learned.table", "), HALVES, ", "), FLOATS, ") == {"learned_v1", "sinusoidal_v6"}
    assert changed("kernels.peers.triton_kernels", "triton = tl = None", "triton = None") == {
        "triton_rope",
        "triton_rope_ieee",
        "triton_rope_sliced",
    }


def test_every_version_has_a_hash_of_its_own() -> None:
    assert len(set(TODAY.values())) == len(TODAY)


def test_a_kernel_is_the_same_while_its_code_and_constants_are() -> None:
    def kernel_of(name: str, problem: Problem):
        return VERSIONS[name](problem).launches[-1].kernel

    small, large = (Problem("rope", heads=2, seq_q=seq, hdim=256, rotary_dim=64) for seq in (16, 128))
    hybrid, cluster, wide = kernel_of("rope_v7", small), kernel_of("rope_v8", small), kernel_of("rope_v8", large)
    assert kernel_identity(cluster) != kernel_identity(wide)
    words = edited("kernels.device.reduce", "Reductions over", "More about reductions over")
    shuffles = edited("kernels.device.reduce", "(16, 8, 4, 2, 1)", "(16, 8, 4, 2)")
    for kernel in (hybrid, cluster):
        assert kernel_identity(kernel, words) == kernel_identity(kernel)
        assert "kernels" not in kernel_identity(kernel) and "0x" not in kernel_identity(kernel)
    assert kernel_identity(hybrid, shuffles) != kernel_identity(hybrid)


# ---------------------------------------------------------------- a house of its own

MOVED = {
    "kernels.constants": "house.constants",
    "kernels.checking.reference": "house.checking.reference",
    "kernels.peers.pytorch": "house.peers.torch",
    "kernels.peers.triton": "house.peers.triton",
    "kernels.peers.triton_kernels": "house.peers.triton_kernels",
    "kernels.peers.embeddings": "house.peers.embeddings",
    "kernels.device.vector": "house.device.memory.vector",
    "kernels.v8.embedding": "house.v8.shared.embedding",
    "kernels.v8.launch": "house.v8.shared.launch",
    "kernels.rope.separate": "house.rope.v0_separate",
}


def moved_to(module: str) -> str:
    return MOVED.get(module, "house" + module.removeprefix("kernels"))


class Moved(ast.NodeTransformer):
    """A module with the imports that it needs behind the move: absolute ones, of the new places."""

    def __init__(self, module: str, is_package: bool) -> None:
        self.module, self.is_package = module, is_package

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if not node.level:
            return node
        package = self.module.split(".")[: (self.is_package - node.level) or None]
        origin = ".".join([*package, *filter(None, [node.module])])
        imports: list[ast.stmt] = []
        for alias in node.names:
            inner = f"{origin}.{alias.name}"
            if inner in CODE._modules and CODE._modules[inner] and alias.name not in CODE._modules[origin].statements:
                module, _, name = moved_to(inner).rpartition(".")
            else:
                module, name = moved_to(origin), alias.name
            imports.append(ast.ImportFrom(module, [ast.alias(name, alias.asname or alias.name)], 0))
        return ast.copy_location(ast.If(ast.Constant(True), imports, []), node) if len(imports) > 1 else imports[0]


def test_a_move_changes_no_hash() -> None:
    """Another name of the package, modules in other places and under other names, other imports, other spacing."""
    house: dict[str, tuple[str, bool]] = {"house.checking": ("", True), "house.peers": ("", True)}
    house |= {"house.device.memory": ("from .vector import *", True), "house.v8.shared": ("", True)}
    for module, bindings in list(CODE._modules.items()):
        if bindings is not None:
            text, is_package = source_of(module) or ("", False)
            tree = ast.fix_missing_locations(Moved(module, is_package).visit(ast.parse(text)))
            house[moved_to(module)] = (ast.unparse(tree), is_package)
    assert set(map(moved_to, MOVED)) <= set(house)
    code = Code("house", house.get)
    for version in VERSIONS.values():
        module, root = version.plan.__module__, version.plan.__code__.co_qualname.split(".")[0]
        assert code.digest(moved_to(module), root) == CODE.digest(module, root), version.id


# ---------------------------------------------------------------- what a name stands for


def small(plan: str, **others: str) -> Code:
    """A package of a few lines: `plan` in package.plan, other modules beside it, `init` for the package itself."""
    sources = {"package": (others.pop("init", ""), True), "package.plan": (plan, False)}
    sources |= {f"package.{name}": (text, False) for name, text in others.items()}
    return Code("package", sources.get)


def digest(plan: str, **others: str) -> str:
    return small(plan, **others).digest("package.plan", "plan")


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
    "match 1:\n    case [x, *_]:\n        pass",
    "class x:\n    y = 1",
    "class x:\n    def y(self):\n        return 1",
    "def x():\n    return 1",
    "y = 1\ndef x():\n    return y",
    "y = 1\ndef x(z=y):\n    return z",
    "y = 1\nx = [y for z in 'ab' if z]",
    "y = 1\nx = [y for y in [y]]",
]
WAYS = {
    "beside it": ("{binding}\ndef plan():\n    return x", {}),
    "from": ("from .other import x\ndef plan():\n    return x", {"other": "{binding}"}),
    "as": ("from package.other import x as z\ndef plan():\n    return z", {"other": "{binding}"}),
    "module": ("from . import other\ndef plan():\n    return other.x", {"other": "{binding}"}),
    "dotted": ("import package.other\ndef plan():\n    return package.other.x", {"other": "{binding}"}),
    "inside": ("def plan():\n    from .other import x\n    return x", {"other": "{binding}"}),
    "handed on": (
        "from . import z\ndef plan():\n    return z",
        {"init": "from .other import x as z", "other": "{binding}"},
    ),
}


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_name_is_followed_to_whatever_binds_it(binding: str) -> None:
    def digests(binding: str) -> list[str]:
        return [
            digest(
                plan.format(binding=binding), **{name: text.format(binding=binding) for name, text in others.items()}
            )
            for plan, others in WAYS.values()
        ]

    before, after = set(digests(binding)), set(digests(binding.replace("1", "3")))
    assert len(before) == len(after) == 1 and before != after


@pytest.mark.parametrize(
    "plan",
    [
        "def plan(x):\n    return x",
        "def plan():\n    x = 2\n    return x",
        "def plan():\n    for x in 'ab':\n        print(x)",
        "def plan():\n    return [x for x in 'ab']",
        "def plan():\n    def inner(x):\n        return x\n    return inner",
        "def plan():\n    import numpy as x\n    return x.x",
        "def plan():\n    return 'x'.x",
    ],
)
def test_a_local_variable_is_not_what_bears_its_name_elsewhere(plan: str) -> None:
    assert digest(f"x = 1\n{plan}") == digest(f"x = 3\n{plan}") == digest(plan)


def test_what_a_class_binds_its_functions_do_not_see() -> None:
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


CONTRACT = "class Unsupported(ValueError): ...\ndef register(**words): ...\nclass Plan: ..."
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


def test_what_refuses_and_what_the_contract_holds_does_not_count() -> None:
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
    ],
)
def test_a_name_that_does_not_resolve_is_an_error(plan: str, message: str) -> None:
    with pytest.raises(UnresolvedName, match=message):
        digest(plan, other="x = 1")


def test_an_ablation_is_read_like_a_file() -> None:
    text, is_package = source_of(VERSIONS["rope_v7_fused_k"].module) or ("", True)
    assert "def rope_v7_fused_k" in text and not is_package
    assert source_of("kernels.rope") == (
        Path(identity.__file__).parents[1].joinpath("rope/__init__.py").read_text(),
        True,
    )


def test_a_hash_is_the_same_from_every_python() -> None:
    """The text that is hashed, spelled out: newer Pythons dump more fields, or leave empty ones out."""
    code = small("import numpy as np\nK = 2\ndef plan(a, *, b=None):\n    return [-a, 'x', b, K, np.pi, plan]")
    assert code.text("package.plan", "plan") == (
        "[FunctionDef(name='plan', args=arguments(posonlyargs=[], args=[arg(arg='a', ), ], "
        "kwonlyargs=[arg(arg='b', ), ], kw_defaults=[Constant(value=None, ), ], defaults=[], ), "
        "body=[Return(value=List(elts=[UnaryOp(op=USub(), operand=Name(id='a', ctx=Load(), ), ), "
        "Constant(value='x', ), Name(id='b', ctx=Load(), ), @1.K Load, numpy.pi Load, @0.plan Load, ], "
        "ctx=Load(), ), ), ], decorator_list=[], type_params=[], ), ]\n"
        "[Assign(targets=[@1.K Store, ], value=Constant(value=2, ), ), ]\n"
    )
