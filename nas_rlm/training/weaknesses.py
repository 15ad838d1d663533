"""Warnings of objectives that labels explain badly."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nas_rlm.surrogates.configurations.surrogate import ConfigurationSurrogate
from nas_rlm.surrogates.graphs.evidence import MIN_SPEARMAN
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.latency.device_transfer import FewLabelLatency
from nas_rlm.surrogates.programs.surrogate import ProgramSurrogate
from nas_rlm.surrogates.registry import Surrogate


def warn_if_weak(fitted: Mapping[str, Sequence[Surrogate]]) -> None:
    """Warn of objectives whose labels explain them badly, where `fine_tune` was called.

    Args:
        fitted: fitted surrogates by space.
    """
    for space, surrogates in fitted.items():
        for surrogate in surrogates:
            if isinstance(surrogate, GraphSurrogate):
                for message in surrogate.weaknesses:
                    warnings.warn(message, stacklevel=5)
            if isinstance(surrogate, ProgramSurrogate | ConfigurationSurrogate):
                for message in _weaknesses_of_programs(space, surrogate):
                    warnings.warn(message, stacklevel=5)
            if isinstance(surrogate, FewLabelLatency) and surrogate.evidence.is_weak:
                evidence = surrogate.evidence
                warnings.warn(
                    f"{evidence.labels} networks explain {surrogate.objective} badly ({evidence}; the median"
                    f" for each would have an error of {evidence.spread:.1%}): measure more networks",
                    stacklevel=5,
                )


def _weaknesses_of_programs(
    space: str, surrogate: ProgramSurrogate | ConfigurationSurrogate
) -> Iterator[str]:
    """Yield messages on objectives that labelled programs explain badly."""
    for name, found in surrogate.held_out.items():
        programs = f"the {found.programs} labelled programs of {space}"
        spearman = found.new if found.known is None else found.known
        if np.ptp(surrogate.label_quantiles[name]) == 0:
            yield f"{programs} have equal values of {name}: predictions rank nothing"
        elif spearman is not None and not spearman >= MIN_SPEARMAN:
            yield f"{programs} explain {name} badly ({found}): label more programs"
