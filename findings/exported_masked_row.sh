#!/usr/bin/env bash
# torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 on the CPU.
# Guess: scaled_dot_product_attention gives zeros to a query whose keys are all masked. Exported at opset 18, which has
# no operator for attention, it is MatMul and Softmax, and such a row is NaN, be the mask bool or a float of -inf.
# Behaviour: It depends on the mask's type. At opset 18 a float mask gives NaN, as guessed, but the row of a bool mask
# becomes the mean of all values, so padded queries look like ordinary numbers, although the graph holds an IsNaN node.
# At opset 23 both are zeros, as in torch. No warning tells of it.
# Output seen:
#   torch: bool zeros, float zeros
#   opset 18: bool mean, float NaN
#   opset 23: bool zeros, float zeros
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 onnxscript==0.7.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import numpy
import onnxruntime
import torch


class Attention(torch.nn.Module):
    def forward(self, query, key, value, mask):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)


torch.manual_seed(0)
query, key, value = (torch.randn(1, 1, 4, 8) for _ in range(3))
seen = torch.ones(4, 4, dtype=torch.bool).tril()
seen[0] = False
masks = {"bool": seen, "float": torch.zeros(4, 4).masked_fill(~seen, -torch.inf)}


def told(result):
    row = numpy.asarray(result)[0, 0, 0]
    assert numpy.isfinite(numpy.asarray(result)[0, 0, 1:]).all()
    if numpy.isnan(row).all():
        return "NaN"
    return "zeros" if not row.any() else "mean" if numpy.allclose(row, value.mean(2), atol=1e-6) else "other"


def by_runtime(mask, opset):
    given = (query, key, value, mask)
    model = torch.onnx.export(Attention().eval(), given, dynamo=True, opset_version=opset, verbose=False).model_proto
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {tensor.name: array.numpy() for tensor, array in zip(session.get_inputs(), given)})[0]


print("torch:", ", ".join(f"{name} {told(Attention()(query, key, value, mask))}" for name, mask in masks.items()))
for opset in (18, 23):
    print(f"opset {opset}:", ", ".join(f"{name} {told(by_runtime(mask, opset))}" for name, mask in masks.items()))
PYTHON
venv/bin/python check.py 2> errors | grep -E '^(torch|opset)' | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
torch: bool zeros, float zeros
opset 18: bool mean, float NaN
opset 23: bool zeros, float zeros
SEEN
