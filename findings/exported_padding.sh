#!/usr/bin/env bash
# torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 on the CPU.
# Guess: A padding mask of shape (batch, 1, 1, keys) broadcasts over heads and queries wherever attention runs. Exported
# at opset 23, a call of scaled_dot_product_attention is one Attention node, and ONNX Runtime computes it.
# Behaviour: The exporter keeps the mask as it is, which the operator's definition allows, and onnx's own evaluator
# gives torch's result. ONNX Runtime builds the session, and refuses the mask only when the model runs: it wants the
# number of queries in the mask's third place. At opset 18 the same call becomes MatMul and Softmax, and runs.
# Output seen:
#   opset 18, mask (2, 1, 1, 7): evaluator equal, runtime equal
#   opset 23, mask (2, 1, 1, 7): evaluator equal, runtime refused
#   opset 23, mask (2, 1, 5, 7): evaluator equal, runtime equal
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
from onnx.reference import ReferenceEvaluator


class Attention(torch.nn.Module):
    def forward(self, query, key, value, mask):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)


def runtime(model, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    try:
        return session.run(None, feed)[0]
    except Exception as refusal:
        assert "attention_helper" in str(refusal), refusal
        return None


torch.manual_seed(0)
query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
padding = (torch.arange(7) < torch.tensor([[7], [4]]))[:, None, None]
for opset, mask in ((18, padding), (23, padding), (23, padding.expand(2, 1, 5, 7).contiguous())):
    given = (query, key, value, mask)
    model = torch.onnx.export(Attention().eval(), given, dynamo=True, opset_version=opset, verbose=False).model_proto
    feed = {tensor.name: array.numpy() for tensor, array in zip(model.graph.input, given)}
    told = []
    for got in (ReferenceEvaluator(model).run(None, feed)[0], runtime(model, feed)):
        if got is None:
            told.append("refused")
        else:
            told.append("equal" if numpy.allclose(got, Attention()(*given), atol=1e-5) else "different")
    print(f"opset {opset}, mask {tuple(mask.shape)}: evaluator {told[0]}, runtime {told[1]}")
PYTHON
venv/bin/python check.py 2> errors | grep '^opset' | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
opset 18, mask (2, 1, 1, 7): evaluator equal, runtime equal
opset 23, mask (2, 1, 1, 7): evaluator equal, runtime refused
opset 23, mask (2, 1, 5, 7): evaluator equal, runtime equal
SEEN
