#!/usr/bin/env bash
# onnxruntime 1.32.0 on the CPU, onnx 1.23.2.
# Guess: The attribute `scale` of com.microsoft's RotaryEmbedding does something. Its description says that a custom
# scale will be used if specified, 1.0 by default; the likely reading is position interpolation, or a scaled output.
# Behaviour: The attribute is accepted and ignored. With a scale of 0.5, 2 or 8 the output is that of 1.0, bit by bit,
# whether the positions come as one offset or as a table.
# Output seen:
#   offset: scale 0.5 equal, scale 2.0 equal, scale 8.0 equal
#   table: scale 0.5 equal, scale 2.0 equal, scale 8.0 equal
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

generator = numpy.random.default_rng(0)
rows = generator.standard_normal((2, 3, 5, 8)).astype(numpy.float32)
angles = numpy.arange(16)[:, None] * 10000.0 ** (-numpy.arange(4) / 4)
tables = numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)


def rotated(positions, **attributes):
    feed = dict(zip(("rows", "positions", "cosines", "sines"), (rows, positions, *tables)))
    node = helper.make_node("RotaryEmbedding", list(feed), ["out"], domain="com.microsoft", **attributes)
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in feed.items()]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, rows.shape)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "rope", inputs, [out]), opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


for name, positions in (("offset", numpy.array([3])), ("table", numpy.tile(numpy.arange(3, 8), (2, 1)))):
    plain = rotated(positions)
    assert not numpy.array_equal(plain, rows)
    same = {scale: numpy.array_equal(rotated(positions, scale=scale), plain) for scale in (0.5, 2.0, 8.0)}
    print(f"{name}:", ", ".join(f"scale {scale} {'equal' if same[scale] else 'different'}" for scale in same))
PYTHON
venv/bin/python check.py 2> errors | tee output || { cat errors; exit 1; }
diff output - <<'SEEN'
offset: scale 0.5 equal, scale 2.0 equal, scale 8.0 equal
table: scale 0.5 equal, scale 2.0 equal, scale 8.0 equal
SEEN
