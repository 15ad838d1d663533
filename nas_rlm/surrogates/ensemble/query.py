"""Queries: texts of networks of one space, and the objectives to predict for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nas_rlm.data.genome import Genome
from nas_rlm.surrogates.given_numbers import rows_by_given
from nas_rlm.surrogates.graphs.features import other_batch


@dataclass(frozen=True, eq=False)
class TextQuery:
    """Texts of one space, the objectives to predict for them, and what else is known of the networks.

    Args:
        texts: N texts.
        objectives: K distinct names.
        space: name of the space; empty for networks without a space.
        given: measured numbers by name, float64 [N], NaN where one is missing.
        genomes: genomes of the N networks; if empty, surrogates do without them.
    """

    texts: Sequence[str]
    objectives: Sequence[str]
    space: str = ""
    given: Mapping[str, np.ndarray] = field(default_factory=dict)
    genomes: Sequence[Genome] = ()

    @cached_property
    def training_batch(self) -> int | None:
        """Number of inputs that objectives of training were learnt with, if a network reads another one.

        See `nas_rlm.surrogates.graphs.features.other_batch`.
        """
        return other_batch(self.space, self.texts, self.objectives)

    def genome_by_text(self) -> dict[str, Genome]:
        """Return the genome of each text of a part; empty where genomes are not used."""
        return dict(zip(self.texts, self.genomes, strict=bool(self.genomes)))

    def parts(self) -> Iterator[tuple[list[int], TextQuery]]:
        """Yield queries of which the same numbers are given for all texts, with the indices of their rows.

        A text has one genome within a part; where numbers are given, the texts of a part are distinct.
        """
        for rows, names in rows_by_given(self.texts, self.given, self.genomes):
            yield (
                rows,
                replace(
                    self,
                    texts=[self.texts[i] for i in rows],
                    given={name: self.given[name][rows] for name in names},
                    genomes=[self.genomes[i] for i in rows] if self.genomes else (),
                ),
            )


def join_parts(parts: Iterable[tuple[Sequence[int], np.ndarray]]) -> np.ndarray:
    """Return the predictions for a query from those for its parts.

    Args:
        parts: indices of the rows of each part, and its predictions [M, …].

    Returns:
        [N, …].
    """
    rows, values = zip(*parts, strict=True)
    joined: np.ndarray = np.concatenate(values)[np.argsort(np.concatenate(rows))]
    return joined
