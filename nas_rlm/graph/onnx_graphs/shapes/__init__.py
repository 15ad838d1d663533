"""Shape inference in Python: types and shapes of the outputs of operators, known sizes and small constants.

No content of a file reaches native code here, so that no file can end the process.
"""

from nas_rlm.graph.onnx_graphs.shapes import (  # noqa: F401  (they fill the table)
    arrays,
    attention,
    convolutions,
    elementwise,
    indexing,
    layers,
    machine_learning,
    products,
    signals,
)
from nas_rlm.graph.onnx_graphs.shapes.registry import SHAPE_FUNCTIONS, OperatorCall

__all__ = ["SHAPE_FUNCTIONS", "OperatorCall"]
