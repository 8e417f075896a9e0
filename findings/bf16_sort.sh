#!/usr/bin/env bash
# ml_dtypes 0.6.0, numpy 2.4.6.
# Guess: Arrays of bfloat16 work in NumPy as those of float16 do. np.sort puts NaN last, np.median and np.percentile of
# data with a NaN are NaN, and sum and mean are accurate to the last digit of the type.
# Behaviour: np.sort orders nothing across a NaN: numbers before and after it are as if each were alone. np.median and
# np.percentile rely on a NaN in the last place, so they give a number, which depends on the order of the data. np.max
# and np.argmax do see the NaN. A sum is added up one by one in bfloat16: that of 1000 ones is 256, and their mean 0.256
# (known: jax-ml/ml_dtypes#63). float8 is no different. It matters to whoever computes references or errors of kernels
# in half precision by NumPy: cast to float32 first.
# Output seen:
#   float16: sort [0.0, 1.0, 2.0, 3.0, nan], median nan, 90th percentile nan, sum of 1000 ones 1000.0, mean 1.0000
#   bfloat16: sort [3.0, nan, 0.0, 1.0, 2.0], median 0.0, 90th percentile 1.6000, sum of 1000 ones 256.0, mean 0.2559
#   float8_e5m2: sort [3.0, nan, 0.0, 1.0, 2.0], median 0.0, 90th percentile 1.6000, sum of 1000 ones 8.0, mean 0.0078
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ml_dtypes==0.6.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import ml_dtypes
import numpy as np

for name in ("float16", "bfloat16", "float8_e5m2"):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    given = np.array([3, np.nan, 1, 2, 0], dtype)
    ones = np.ones(1000, dtype)
    print(f"{name}: sort {np.sort(given).astype(float).tolist()}, median {float(np.median(given))}, 90th percentile",
          f"{float(np.percentile(given, 90)):.4f}, sum of 1000 ones {float(ones.sum())}, mean {float(ones.mean()):.4f}")
PYTHON
venv/bin/python -W ignore check.py | tee output
diff output - <<'SEEN'
float16: sort [0.0, 1.0, 2.0, 3.0, nan], median nan, 90th percentile nan, sum of 1000 ones 1000.0, mean 1.0000
bfloat16: sort [3.0, nan, 0.0, 1.0, 2.0], median 0.0, 90th percentile 1.6000, sum of 1000 ones 256.0, mean 0.2559
float8_e5m2: sort [3.0, nan, 0.0, 1.0, 2.0], median 0.0, 90th percentile 1.6000, sum of 1000 ones 8.0, mean 0.0078
SEEN
