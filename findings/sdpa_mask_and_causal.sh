#!/usr/bin/env bash
# torch 2.13.0 on the CPU.
# Guess: scaled_dot_product_attention refuses attn_mask together with is_causal=True. Its documentation says that an
# error is thrown if both are set, and its reference code asserts it.
# Behaviour: Whether it does depends on which kernel takes the call. The flash kernel for CPUs takes both and combines
# them, in float32 and bfloat16, with and without a gradient of the query, and under torch.compile. The same call is
# refused with dropout, with three dimensions, with values of another width than the keys, and with a mask that needs a
# gradient: these go to the math kernel. A model with dropout that was tried in eval mode raises in its first step of
# training.
# Output seen:
#   float32: combined, bfloat16: combined, query needs a gradient: combined, compiled: combined
#   dropout: refused, three dimensions: refused, narrow values: refused, mask needs a gradient: refused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import torch

mask = torch.ones(4, 4)
mask[:, 0] = 0  # no query may see key 0
both = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0], [0, 1 / 2, 1 / 2, 0], [0, 1 / 3, 1 / 3, 1 / 3]])
rows, values = torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None]


def attend(query, key, value, mask, **options):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, is_causal=True, **options)


def told(query=rows, key=rows, value=values, mask=mask > 0, call=attend, **options):
    try:
        got = call(query, key, value, mask, **options)
    except RuntimeError as refusal:
        assert "attn_mask should not be set when is_causal=True" in str(refusal), refusal
        return "refused"
    return "combined" if torch.allclose(got[0, 0].float(), both, atol=1e-2) else "otherwise"


halves = [tensor.bfloat16() for tensor in (rows, rows, values)]
print(f"float32: {told()}, bfloat16: {told(*halves)},", end=" ")
print(f"query needs a gradient: {told(rows.clone().requires_grad_())},", end=" ")
print(f"compiled: {told(call=torch.compile(attend, backend='aot_eager'))}")
print(f"dropout: {told(dropout_p=0.1)}, three dimensions: {told(rows[0], rows[0], values[0])},", end=" ")
print(f"narrow values: {told(value=values[..., :2])},", end=" ")
print(f"mask needs a gradient: {told(mask=mask.log().requires_grad_())}")
PYTHON
venv/bin/python -W ignore check.py | tee output
diff output - <<'SEEN'
float32: combined, bfloat16: combined, query needs a gradient: combined, compiled: combined
dropout: refused, three dimensions: refused, narrow values: refused, mask needs a gradient: refused
SEEN
