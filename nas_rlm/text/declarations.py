"""What the first lines of a canonical text declare: the inputs and outputs of a network, with their sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAIN = re.compile(r"<ir_version:10,opset_import:\[\"\":(\d+)[^\n]*\]>\nmain\(([^\n]*)\)=>\(([^\n]*)\)\n")
DECLARED = re.compile(r"((?:seq|map|optional)\([^ ]*\)|\w+)(\[[^\]]*\])? (\w+)(?:,|$)")
VARIABLE_NAME = re.compile(r"[xvd]\d+")  # of an input other than a weight
_FIRST_SIZE = re.compile(r"(\w+\[)\d+(?=,[^\]]*\] [xvd]\d+[,)])")  # of several sizes
_FIRST_SIZES = re.compile(r"\[(\w+),[^\]]*\] [xvd]\d+,")  # the same, of all inputs
_FIRST_INPUT = re.compile(r"[^\n]*\nmain\(\w+\[(\w+),")
_FIRST_OUTPUT = re.compile(r"\w+\[(\w+)")
IMAGE_RANK = 4

Sizes = tuple[str, ...]


def is_network_text(text: str) -> bool:
    """Return True for canonical text, as `from_onnx` writes it."""
    return MAIN.match(text) is not None and text.rstrip().endswith("}")


def reads_tokens(text: str) -> bool:
    """Return whether a network reads token ids: an input of integers, and no images.

    Args:
        text: text of a network.
    """
    return not reads_images(text) and any(element in ("int32", "int64") for element, _ in _inputs(text))


def reads_images(text: str) -> bool:
    """Return whether a network reads a batch of images, or other floats of four axes.

    Args:
        text: text of a network.
    """
    return any(_is_image(*declared) for declared in _inputs(text))


def input_batch(text: str) -> int | None:
    r"""Return the number of inputs that a network reads at once, the first size of its inputs and outputs.

    Examples:
        >>> head = '<ir_version:10,opset_import:["":21]>\nmain(float[8,3,32,32] v0)=>(float[8,10] v1)\n'
        >>> input_batch(head), input_batch(head.replace("[8,10]", "[10]"))
        (8, None)

    Args:
        text: text of a network.

    Returns:
        The number, or None where the inputs and the first output do not agree on it.
    """
    inputs, _, outputs = text[: text.find("\n{")].partition(")=>(")
    output = _FIRST_OUTPUT.match(outputs)
    first = {*_FIRST_SIZES.findall(inputs + ",")}
    return int(output[1]) if output and first == {output[1]} and output[1].isdigit() else None


def has_other_batch(text: str, size: int) -> bool:
    """Return whether a network reads another number of inputs at once, as far as it is known.

    Args:
        text: text of a network.
        size: a number of inputs.
    """
    first = _FIRST_INPUT.match(text)  # faster than `input_batch`, which decides the rest
    return not (first and first[1] == str(size)) and input_batch(text) not in (None, size)


def with_input_batch(text: str, size: int) -> str:
    """Return a text that declares another number of inputs; sizes within the network stay as they are.

    Args:
        text: text of a network.
        size: the number of inputs that the network reads at once.

    Returns:
        The text; unchanged where the number is not known, see `input_batch`.
    """
    if not has_other_batch(text, size):
        return text
    version, main, rest = text.split("\n", 2)
    return "\n".join([version, _FIRST_SIZE.sub(rf"\g<1>{size}", main), rest])


def image_size(text: str) -> tuple[int, int] | None:
    """Return height and width of the images that a network reads; None where it reads none, or any size.

    Args:
        text: text of a network.
    """
    sizes = next((sizes[2:] for element, sizes in _inputs(text) if _is_image(element, sizes)), ())
    return (int(sizes[0]), int(sizes[1])) if sizes and all(map(str.isdigit, sizes)) else None


def num_classes(text: str) -> int | None:
    """Return the number of classes of a classifier: the last size of an output [batch, classes].

    Args:
        text: text of a network.

    Returns:
        The number; None for a network with another first output.
    """
    outputs = _outputs(text)
    is_classifier = bool(outputs) and len(outputs[0]) == 2 and outputs[0][1].isdigit()
    return int(outputs[0][1]) if is_classifier else None


def _inputs(text: str) -> list[tuple[str, Sizes]]:
    """Return the element type and the sizes of each input other than a weight."""
    main = MAIN.match(text)
    declared = DECLARED.findall(main[2]) if main else []
    return [(element, _sizes(shape)) for element, shape, name in declared if VARIABLE_NAME.fullmatch(name)]


def _outputs(text: str) -> list[Sizes]:
    """Return the sizes of each output."""
    main = MAIN.match(text)
    return [_sizes(shape) for _, shape, _ in DECLARED.findall(main[3])] if main else []


def _sizes(shape: str) -> Sizes:
    """Return the sizes in brackets, as text."""
    return tuple(shape.strip("[]").split(","))


def _is_image(element: str, sizes: Sequence[str]) -> bool:
    """Return whether an input is a batch of images."""
    return element.startswith("float") and len(sizes) == IMAGE_RANK
