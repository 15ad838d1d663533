"""Small graphs in exactly the form of nn-Meter's dataset, with the mistakes of its shapes and paddings."""

from typing import Any


class Graph:
    """A graph that is built node by node.

    Args:
        shape: shape of the input, with channels last.
    """

    def __init__(self, *shape: int) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.add("input_im_0", "Placeholder", [], [list(shape)], shape=list(shape))

    def add(
        self, name: str, kind: str, inbounds: list[str], shapes: list[list[int]], **attributes: Any
    ) -> str:
        """Add a node and return its name."""
        self.nodes[name] = {
            "inbounds": inbounds,
            "attr": {
                "name": name,
                "type": kind,
                "output_shape": shapes,
                "attr": attributes,
                "input_shape": [],
            },
            "outbounds": [],
        }
        for source in inbounds:
            if source in self.nodes:
                self.nodes[source]["outbounds"].append(name)
        return name

    def conv(
        self, name: str, source: str, kernel: int, cin: int, cout: int, stride: int = 1, padding: str = "SAME"
    ) -> str:
        """Add a convolution, or a depthwise one if `cout` is 0; its stated pads are always zero."""
        kind, suffix = ("Conv2D", "Conv2D") if cout else ("DepthwiseConv2dNative", "depthwise")
        attributes = {
            **{"padding": padding, "strides": [stride] * 2, "dilations": [1, 1], "data_format": "NHWC"},
            **{"kernel_shape": [kernel] * 2, "weight_shape": [kernel, kernel, cin, cout or 1]},
            "pads": [0, 0, 0, 0],
        }
        return self.add(f"{name}/{suffix}", kind, [source], [[1, 99, 99, cout or cin]], **attributes)

    def batch_norm(self, name: str, source: str) -> str:
        """Add a batch normalization, one of whose inputs is a weight that is not part of the graph."""
        inbounds = [source, f"{name}/moving_variance/read"]
        return self.add(f"{name}/FusedBatchNormV3", "FusedBatchNorm", inbounds, [[1, 99, 99, 1]])

    def unary(self, name: str, kind: str, source: str, **attributes: Any) -> str:
        """Add a node with one input and a wrong shape."""
        return self.add(name, kind, [source], [[1, 99]], **attributes)

    def pool(self, name: str, kind: str, source: str, kernel: int, stride: int, padding: str) -> str:
        """Add a pool; its stated pads are in another order than those of ONNX."""
        attributes = {
            "ksize": [kernel] * 2,
            "strides": [stride] * 2,
            "padding": padding,
            "pads": [0, 1, 0, 1],
        }
        return self.unary(name, kind, source, **attributes)

    def constant(self, name: str, *values: Any) -> str:
        """Add a constant."""
        return self.add(name, "Const", [], [[]], tensor_shape=[], constant=list(values))

    def with_number(self, name: str, kind: str, source: str, number: float) -> str:
        """Add a sum or product with a number."""
        return self.add(name, kind, [source, self.constant(f"{name}/y", number)], [[1, 99]])

    def hard_sigmoid(self, name: str, source: str) -> str:
        """Add relu6(x + 3) times a rounded sixth."""
        clipped = self.unary(f"{name}/Relu6", "Relu6", self.with_number(f"{name}/add", "Add", source, 3.0))
        return self.with_number(f"{name}/mul", "Mul", clipped, 0.16666999459266663)

    def packed_reshape(self, name: str, source: str, *sizes: int) -> str:
        """Add a reshape to a shape whose batch is computed."""
        batch = self.add(f"{name}/strided_slice", "StridedSlice", [], [[0, 0, 0, 0]])
        pack = self.add(f"{name}/shape", "Pack", [batch], [[0] * 4], constant=[[size] for size in sizes])
        return self.add(name, "Reshape", [source, pack], [[1, *sizes]])

    def channel_shuffle(self, name: str, source: str, height: int, width: int, channels: int) -> str:
        """Add a channel shuffle of two groups."""
        groups = self.packed_reshape(f"{name}/Reshape", source, height, width, 2, channels // 2)
        order = self.constant(f"{name}/perm", 0, 1, 2, 4, 3)
        turned = self.add(f"{name}/transpose", "Transpose", [groups, order], [[1, height, width, 1, 2]])
        return self.packed_reshape(f"{name}/Reshape_1", turned, height, width, channels)

    def linear(self, name: str, source: str, features: int) -> str:
        """Add a linear layer without a bias; the graph has its number of outputs alone."""
        return self.add(f"{name}/MatMul", "MatMul", [source], [[-1, features]])

    def classifier(self, source: str, channels: int, classes: int = 10) -> str:
        """Add a mean, a reshape and a linear layer. The mean changes the stated shape of its input."""
        mean = self.unary("Mean", "Mean", source, reduction_indices=[1, 2])
        self.nodes[source]["attr"]["output_shape"] = [[1, channels]]
        flat = self.add("Reshape", "Reshape", [mean], [[-1, channels]], shape=[-1, channels])
        return self.linear("fc", flat, classes)


def small_network(size: int = 15) -> Graph:
    """Return a convolution, a depthwise one, and a classifier."""
    graph = Graph(1, size, size, 3)
    x = graph.unary("relu", "Relu", graph.batch_norm("bn", graph.conv("conv1", "input_im_0", 3, 3, 8, 2)))
    graph.classifier(graph.conv("conv2", x, 5, 8, 0), 8)
    return graph
