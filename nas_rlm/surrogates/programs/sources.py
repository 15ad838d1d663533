"""Choice of the surrogates of other tables that predict programs of a new one, and what they add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from nas_rlm.surrogates.programs.blocks import standardised
from nas_rlm.surrogates.programs.features import structure_matrix
from nas_rlm.surrogates.programs.prior import ProgramPrior
from nas_rlm.surrogates.programs.surrogate import ProgramSurrogate

MAX_LABELS = 400  # of a space; more of its own say as much of new problems, and more of known ones


@dataclass(frozen=True)
class ProgramPriors:
    """The priors of one objective in the spaces of a table.

    Args:
        by_space: prior by the index of its space; spaces without sources, and those with more than
            `MAX_LABELS` labels, are left out.
        spaces: index of the space of each of M labelled programs, int [M].
        scores: what the prior of its space says of each, float64 [M]; 0 without a prior.
    """

    by_space: Mapping[int, ProgramPrior]
    spaces: np.ndarray
    scores: np.ndarray

    @classmethod
    def find(
        cls,
        existing: Mapping[str, Sequence[object]],
        names: Sequence[str],
        objective: str,
        programs: Sequence[str],
        spaces: np.ndarray,
        is_for_known: bool,
    ) -> Self:
        """Return the priors of labelled programs.

        Args:
            existing: surrogates of any kind by space.
            names: names of the spaces.
            objective: the objective.
            programs: sources of M labelled programs.
            spaces: index of the space of each, int [M].
            is_for_known: see `ProgramPrior`.
        """
        by_space, scores = {}, np.zeros(len(programs))
        for k in np.unique(spaces).tolist() if existing else ():
            rows = np.flatnonzero(spaces == k)
            if len(rows) > MAX_LABELS:
                continue
            own = [programs[i] for i in rows.tolist()]
            sources = program_sources(existing, names[k], objective, own)
            if found := ProgramPrior.of_sources(sources, own, is_for_known):
                by_space[k], scores[rows] = found
        return cls(by_space, spaces, scores)

    def fit(
        self, rows: np.ndarray, true: np.ndarray, own: np.ndarray, new: np.ndarray
    ) -> tuple[dict[int, ProgramPrior], np.ndarray]:
        """Fit the weights of each prior.

        Args:
            rows: indices of N left-out programs, which may repeat, int [N].
            true: their normal scores, float64 [N].
            own: what the table's own surrogate predicts without each program or its problem, float64 [N].
            new: probability that it is unlike the labelled ones, float64 [N].

        Returns:
            The priors, and what surrogate and prior predict together, float64 [N].
        """
        fitted, combined = {}, own.copy()
        for k, prior in self.by_space.items():
            part = np.flatnonzero(self.spaces[rows] == k)
            if len(part):
                others = self.scores[rows[part]]
                fitted[k] = prior.with_fitted_weights(true[part], own[part], others, new[part])
                combined[part] = fitted[k].combined(own[part], others, new[part])
        return fitted, combined


def program_sources(
    existing: Mapping[str, Sequence[object]], space: str, objective: str, programs: Sequence[str]
) -> list[ProgramSurrogate]:
    """Return one surrogate of each other table that has an objective of the same kind.

    Of a table in several languages it is that of the programs' language, which the space names, as in
    `mine/Python`; else that of the language whose programs have the most similar structure.

    Args:
        existing: surrogates of any kind by space.
        space: space of the programs.
        objective: what is predicted, such as `memory` or `memory/mine`; sources have it, or `memory`.
        programs: labelled programs of the space.

    Returns:
        The surrogates, each with the one objective.
    """
    table, _, language = space.partition("/")
    of_tables: dict[str, dict[str, ProgramSurrogate]] = {}
    for other, surrogates in existing.items():
        other_table, _, other_language = other.partition("/")
        for surrogate in surrogates:
            if other_table != table and isinstance(surrogate, ProgramSurrogate):
                source = _with_objective(surrogate, objective)
                if source is not None:
                    of_tables.setdefault(other_table, {})[other_language] = source
    structure = structure_matrix(programs)
    return [
        by_language[language]
        if language in by_language
        else _most_similar([*by_language.values()], structure)
        for by_language in of_tables.values()
    ]


def _with_objective(surrogate: ProgramSurrogate, objective: str) -> ProgramSurrogate | None:
    """Return a surrogate with the one objective of the same kind and no sources, or None if it has none."""
    for name in (objective, objective.partition("/")[0]):
        if name in surrogate.objectives:
            return replace(
                surrogate,
                objectives=(name,),
                label_quantiles={name: surrogate.label_quantiles[name]},
                error_factors={name: surrogate.error_factors[name]},
                temperatures={},
                network_temperatures={},
                held_out={},
                priors={},
            )
    return None


def _most_similar(surrogates: Sequence[ProgramSurrogate], structure: np.ndarray) -> ProgramSurrogate:
    """Return the surrogate of the language in whose structure programs deviate least from the mean."""
    deviations = [(standardised(structure, s.structure_scaling) ** 2).mean() for s in surrogates]
    return surrogates[int(np.argmin(deviations))]
