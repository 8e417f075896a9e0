"""Measurements stay valid when words change, and not when code does."""

from __future__ import annotations

import ast
import inspect

import pytest

from kernels import VERSIONS
from kernels.runtime import identity


@pytest.fixture
def hash_after(monkeypatch):
    """`hash_after(module, old, new)["id"]`: the version's hash with `old` replaced in the module's source."""
    original = inspect.getsource

    def forget() -> None:
        for cached in (identity._definitions, identity._code, identity._digest):
            cached.cache_clear()

    def edited(module: str, old: str, new: str) -> dict[str, str]:
        def getsource(thing):
            text = original(thing)
            if getattr(thing, "__name__", "") == module:
                assert old in text
                return text.replace(old, new)
            return text

        monkeypatch.setattr(inspect, "getsource", getsource)
        forget()
        return {name: identity.source_hash(version) for name, version in VERSIONS.items()}

    yield edited
    forget()


def test_words_do_not_change_a_hash(hash_after) -> None:
    today = {name: identity.source_hash(version) for name, version in VERSIONS.items()}
    assert hash_after("kernels.rope.v7_hybrid", "RoPE V7, hybrid", "Another title") == today
    assert hash_after("kernels.rope.v7_hybrid", 'title="Hybrid', 'title="The hybrid') == today
    assert hash_after("kernels.rope.v7_hybrid", "    row_max = NEG", "    # a comment\n    row_max = NEG") == today


def test_code_changes_the_hashes_of_the_versions_that_use_it(hash_after) -> None:
    today = {name: identity.source_hash(version) for name, version in VERSIONS.items()}

    def changed(*edit: str) -> set[str]:
        return {name for name, value in hash_after(*edit).items() if value != today[name]}

    assert changed("kernels.rope.v7_hybrid", "uint32(2) * tid", "uint32(4) * tid") == {"rope_v7"}
    through_separate = changed("kernels.rope.separate", "POSITIONS = 64", "POSITIONS = 32")
    assert {name for name in through_separate if not VERSIONS[name].ablation} == {"rope_separate", "rope_v7"}
    assert "rope_v7_fused_k" in through_separate and "rope_separate_one_sync" not in through_separate
    shuffles = changed("kernels.device.reduce", "(16, 8, 4, 2, 1)", "(16, 8, 4, 2)")
    assert {"attention_baseline", "rope_v7", "sinusoidal_v5"} <= shuffles
    assert not any(VERSIONS[name].is_peer for name in shuffles)
    assert "rope_v1a" not in changed("kernels.device.trig", "[0]", "[1]")

    cores = {"rope_v8", "rope_hybrid_v8", "rope_separate_v8", "attention_v8", "sinusoidal_v6", "alibi_v1", "learned_v1"}
    assert changed("kernels.v8.wgmma_shape", "TILE_COST = 24", "TILE_COST = 25") == cores
    assert changed("kernels.v8.mma_shape", "ALONE = 7", "ALONE = 8") == cores | {"rope_v8_mma"}
    assert changed("kernels.v8.portable_shape", "ENOUGH = 128", "ENOUGH = 64") == {"rope_v8_portable"}

    def peers(*prefixes: str) -> set[str]:
        return {name for name in VERSIONS if name.startswith(prefixes)}

    compiled = peers("torch_rope_", "flex_rope")
    assert changed("kernels.peers", "f(turn) for turn", "f(-turn) for turn") == compiled | peers("triton_rope")
    compiled |= peers("torch_sinusoidal_", "torch_learned_")
    assert changed("kernels.peers", "dynamic=False", "dynamic=True") == compiled
    assert {"torch_sdpa", "torch_rope_sdpa"} <= changed(
        "kernels.peers", '"is_causal": problem', '"is_causal": not problem'
    )


def test_every_version_has_a_hash_of_its_own() -> None:
    hashes = [identity.source_hash(version) for version in VERSIONS.values()]
    assert len(set(hashes)) == len(hashes)


def test_a_hash_is_the_same_from_every_python() -> None:
    """The text that is hashed, spelled out: newer Pythons dump more fields, or leave empty ones out."""
    tree = ast.parse("def f(a, *, b=None):\n    return [-a, 'x', b]")
    assert identity._canonical(tree.body[0]) == (
        "FunctionDef(name='f', args=arguments(posonlyargs=[], args=[arg(arg='a')], kwonlyargs=[arg(arg='b')], "
        "kw_defaults=[Constant(value=None)], defaults=[]), body=[Return(value=List(elts=["
        "UnaryOp(op=USub(), operand=Name(id='a', ctx=Load())), Constant(value='x'), Name(id='b', ctx=Load())], "
        "ctx=Load()))], decorator_list=[], type_params=[])"
    )
