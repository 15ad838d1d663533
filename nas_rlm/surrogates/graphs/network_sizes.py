"""Image sizes and numbers of classes of labelled networks that need not be of one space.

An accuracy belongs to a data set. Networks that read other images, or that classify others, have none on it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from nas_rlm.text.declarations import image_size, num_classes, reads_images
from nas_rlm.utils.validation import is_whole_number

MIN_SHARE = 0.05  # of the labelled networks that have a number of classes, else it is a mistake of the table
MAX_NAMED = 3  # networks in a warning


@dataclass(frozen=True)
class NetworkSizes:
    """What the labelled networks of a surrogate read and return.

    Args:
        min_side: shortest side of their images in pixels; 0 where some read none.
        max_side: longest side of their images in pixels; 0 where they read none.
        classes: numbers of classes that they have; empty where they are no classifiers.
    """

    min_side: int = 0
    max_side: int = 0
    classes: tuple[int, ...] = ()

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> Self:
        """Return the sizes of networks.

        Args:
            texts: texts of the networks.
        """
        sides = [side for text in texts for side in image_size(text) or ()]
        if not all(map(reads_images, texts)):
            sides.append(0)
        counts = Counter(map(num_classes, texts))
        classes = [n for n, count in counts.items() if n and count >= MIN_SHARE * len(texts)]
        return cls(min(sides, default=0), max(sides, default=0), tuple(sorted(classes)))

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> Self:
        """Make sizes from their `description`.

        Raises:
            ValueError: a size is not a whole number.
        """
        numbers = [*saved["sides"], *saved["classes"]]
        if len(saved["sides"]) != 2 or not all(is_whole_number(n) and n >= 0 for n in numbers):
            raise ValueError(f"sizes of networks are {dict(saved)}: expected whole numbers")
        return cls(saved["sides"][0], saved["sides"][1], tuple(saved["classes"]))

    def description(self) -> dict[str, Any]:
        """Return the sizes as they are saved in JSON."""
        return {"sides": [self.min_side, self.max_side], "classes": list(self.classes)}

    def differences(self, text: str) -> list[str]:
        r"""Return in what a network differs from the labelled ones.

        Examples:
            >>> head = '<ir_version:10,opset_import:["":21]>\nmain(float[1,3,32,32] v0)=>(float[1,10] v1)\n{'
            >>> NetworkSizes(106, 600, (1000,)).differences(head)
            ['images of 32x32 pixels instead of 106 to 600', '10 classes instead of 1,000']

        Args:
            text: text of the network.
        """
        found = []
        size, classes = image_size(text), num_classes(text)
        sides = f"{self.min_side} to {self.max_side}" if self.min_side < self.max_side else self.max_side
        if self.min_side and size is None:
            found.append(f"no images of a known size instead of {sides} pixels")
        elif self.max_side and size and not self.min_side <= min(size) <= max(size) <= self.max_side:
            found.append(f"images of {size[0]}x{size[1]} pixels instead of {sides}")
        if self.classes and classes not in self.classes:
            known = " or ".join(f"{n:,}" for n in self.classes)
            found.append(f"{'no' if classes is None else f'{classes:,}'} classes instead of {known}")
        return found


def warn_of_other_sizes(
    sizes: Mapping[str, NetworkSizes], texts: Sequence[str], names: Sequence[str]
) -> None:
    """Warn of networks that read other images, or have other classes, than the labelled ones.

    Args:
        sizes: sizes of the labelled networks of each objective.
        texts: texts of N networks.
        names: names of the networks.

    Warns:
        UserWarning: a network differs from the labelled ones.
    """
    for objective, of_labelled in sizes.items():
        unlike: dict[str, list[str]] = {}
        for text, name in zip(texts, names, strict=True):
            if differences := of_labelled.differences(text):
                unlike.setdefault(", ".join(differences), []).append(name)
        for difference, networks in unlike.items():
            others = f" and {len(networks) - MAX_NAMED:,} more" if len(networks) > MAX_NAMED else ""
            warnings.warn(
                f"{objective} of {', '.join(networks[:MAX_NAMED])}{others} is unreliable: it was learnt from"
                f" other networks ({difference})",
                stacklevel=4,
            )
