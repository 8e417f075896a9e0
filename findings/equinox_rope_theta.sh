#!/usr/bin/env bash
# equinox 0.13.8 with jax 0.10.2 on the CPU.
# Guess: A RotaryPositionalEmbedding rotates with the theta that it was built with, as its documentation says. Two of
# them in one model, of one size and with unlike thetas, do not touch each other: local and global layers need just
# that.
# Behaviour: Tables of one size and dtype are shared by the whole process, and theta is no part of the key. The module
# that is called first decides for all. A longer sequence makes the table anew, with the theta of the module that got
# it. So a module with unlike theta is wrong, or makes the others wrong, and which it is depends on the order of the
# calls and on their lengths. Nothing warns. After eqx.clear_caches() the next module decides.
# Why it matters: A model whose layers have two thetas (one for windows, one for all keys) computes other numbers than
# its weights were trained with, if they come from elsewhere. A test that compares two thetas in one process compares
# nothing.
# Output seen:
#   first call, theta 10000, 64 positions: local rotates by 10000
#   then, theta 1000000, 64 positions: global rotates by 10000
#   then, theta 1000000, 128 positions: global rotates by 1000000
#   then, theta 10000, 64 positions: local rotates by 1000000
#   caches cleared, theta 10000, 64 positions: local rotates by 10000
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-cache-dir equinox==0.13.8 jax==0.10.2 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import equinox
import jax.numpy as jnp
import numpy as np

DIM, THETAS = 16, (10_000, 1_000_000)
local, wide = (equinox.nn.RotaryPositionalEmbedding(DIM, theta=float(theta)) for theta in THETAS)


def expected(rows, theta):
    angles = np.arange(len(rows))[:, None] * float(theta) ** (-np.arange(0, DIM, 2) / DIM)
    pairs = (rows[:, : DIM // 2] + 1j * rows[:, DIM // 2 :]) * np.exp(1j * angles)
    return np.concatenate((pairs.real, pairs.imag), axis=1)


def told(when, module, name, length):
    rows = np.random.default_rng(0).standard_normal((length, DIM)).astype(np.float32)
    rotated = np.asarray(module(jnp.asarray(rows)))
    fits = [theta for theta in THETAS if np.allclose(rotated, expected(rows, theta), atol=1e-4)]
    found = " or ".join(map(str, fits)) or "neither"
    print(f"{when}, theta {module.theta:.0f}, {length} positions: {name} rotates by {found}")


told("first call", local, "local", 64)
told("then", wide, "global", 64)
told("then", wide, "global", 128)
told("then", local, "local", 64)
equinox.clear_caches()
told("caches cleared", local, "local", 64)
PYTHON
venv/bin/python -W ignore check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
first call, theta 10000, 64 positions: local rotates by 10000
then, theta 1000000, 64 positions: global rotates by 10000
then, theta 1000000, 128 positions: global rotates by 1000000
then, theta 10000, 64 positions: local rotates by 1000000
caches cleared, theta 10000, 64 positions: local rotates by 10000
SEEN
