#!/usr/bin/env bash
# onnxruntime 1.32.0 on the CPU, onnx 1.23.2.
# Guess: com.microsoft's MultiHeadAttention with unidirectional=1 is causal. With fewer queries than keys it aligns them
# at the end (bottom right, as in a decode step), or at the beginning, as the Attention operator of opset 23 does.
# Behaviour: It does neither. All queries but the last are aligned at the beginning: query 0 sees key 0 alone. The last
# query sees every key. If the earlier keys come as past_key, the mask is the one at the end, as one expects.
# Output seen (a row for each query, 1 where it sees the key):
#   3 queries, 5 keys: 10000 11000 11111
#   2 queries, 5 keys: 10000 11111
#   2 queries, 3 keys past and 2 new: 11110 11111
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$folder"
cat > check.py <<'PYTHON'
import numpy
import onnxruntime
from onnx import TensorProto, helper

DIM = 8  # the one-hot values below tell which keys a query sees


def seen(queries, keys, past=0):
    values = numpy.eye(past + keys, DIM, dtype=numpy.float32)
    feed = {"query": numpy.zeros((1, queries, DIM)), "key": numpy.zeros((1, keys, DIM)), "value": values[None, past:]}
    places, outputs = list(feed), ["out"]
    if past:
        feed |= {"past_key": numpy.zeros((1, 1, past, DIM)), "past_value": values[None, None, :past]}
        places += ["", "", "", "past_key", "past_value"]
        outputs += ["present_key", "present_value"]
    feed = {name: array.astype(numpy.float32) for name, array in feed.items()}
    attributes = dict(domain="com.microsoft", num_heads=1, unidirectional=1)
    node = helper.make_node("MultiHeadAttention", places, outputs, **attributes)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feed.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "attend", inputs, results), opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    weights = session.run(None, feed)[0][0, :, : past + keys]
    return " ".join("".join(str(int(weight > 0)) for weight in row) for row in weights)


print("3 queries, 5 keys:", seen(3, 5))
print("2 queries, 5 keys:", seen(2, 5))
print("2 queries, 3 keys past and 2 new:", seen(2, 2, past=3))
PYTHON
venv/bin/python check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
3 queries, 5 keys: 10000 11000 11111
2 queries, 5 keys: 10000 11111
2 queries, 3 keys past and 2 new: 11110 11111
SEEN
