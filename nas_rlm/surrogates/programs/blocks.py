"""Features of programs as matrices: counted blocks, structure, and projections to compare programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nas_rlm.surrogates.programs.features import CACHED_PROGRAMS, function_names, identifier_words
from nas_rlm.surrogates.programs.ngrams import tf_idf, token_ngrams, word_counts
from nas_rlm.surrogates.programs.python_constructs import constructs
from nas_rlm.surrogates.programs.similarity import project

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix  # imported where it is used: networks need no scipy

NGRAMS, NAMES, FUNCTIONS, CONSTRUCTS = "ngrams", "names", "functions", "constructs"
COMPARED_BLOCKS = (NGRAMS, NAMES, FUNCTIONS)  # that similarity is computed of
BLOCKS = (*COMPARED_BLOCKS, CONSTRUCTS)  # of features that are counted
NUM_BUCKETS = {NGRAMS: 1 << 16, NAMES: 1 << 15, FUNCTIONS: 1 << 15, CONSTRUCTS: 1 << 13}
MAX_STANDARDISED = 3.0  # larger structure is cut
STEPS = 127  # of a byte on either side of 0
NO_SCORES: Mapping[str, np.ndarray] = MappingProxyType({})


class ProgramFeatures(NamedTuple):
    """Features of N programs.

    Args:
        blocks: counted features by block, sparse [N, NUM_BUCKETS[block]], rows of unit length.
        sizes: standardised base-2 logarithms of input sizes, float32 [N].
        structure: standardised structure, float32 [N, len(STRUCTURE)].
        constructs: logarithms of the counts of common constructs, float32 [N, K].
        projections: see `nas_rlm.surrogates.programs.similarity`, int8 [N, DIMENSION].
        others: what surrogates of other tables say, see `nas_rlm.surrogates.programs.prior`, by objective,
            float64 [N].
    """

    blocks: dict[str, csr_matrix]
    sizes: np.ndarray
    structure: np.ndarray
    constructs: np.ndarray
    projections: np.ndarray
    others: Mapping[str, np.ndarray] = NO_SCORES

    def select(self, rows: np.ndarray) -> ProgramFeatures:
        """Return the features of some of the programs."""
        blocks = {name: block[rows] for name, block in self.blocks.items()}
        return ProgramFeatures(
            blocks,
            self.sizes[rows],
            self.structure[rows],
            self.constructs[rows],
            self.projections[rows],
            {name: scores[rows] for name, scores in self.others.items()},
        )


@dataclass(frozen=True)
class FeatureScales:
    """Scales of features, which all languages of a table share.

    Args:
        idf: inverse document frequencies by block, float16 [NUM_BUCKETS[block]].
        log_size_scaling: mean and standard deviation of the base-2 logarithms of input sizes.
        common_constructs: buckets of K constructs that many programs have, int32 [K].
    """

    idf: Mapping[str, np.ndarray]
    log_size_scaling: tuple[float, float]
    common_constructs: np.ndarray


def counted_features(programs: Sequence[str]) -> dict[str, csr_matrix]:
    """Count the features of each block, sparse [N, NUM_BUCKETS[block]].

    Args:
        programs: sources of N programs.
    """
    from scipy.sparse import vstack

    counted = [_counted_program(program) for program in programs]
    empty = _counted_program("")
    return {
        block: vstack([counts[block] for counts in counted] or [empty[block][:0]], format="csr")
        for block in BLOCKS
    }


@lru_cache(maxsize=CACHED_PROGRAMS)
def _counted_program(program: str) -> dict[str, csr_matrix]:
    """Count the features of a program, each sparse [1, NUM_BUCKETS[block]]."""
    read = {
        **{NGRAMS: token_ngrams, NAMES: identifier_words},
        **{FUNCTIONS: function_names, CONSTRUCTS: constructs},
    }
    return {block: word_counts([read[block](program)], NUM_BUCKETS[block]) for block in BLOCKS}


def program_features(
    counted: Mapping[str, csr_matrix], sizes: np.ndarray, structure: np.ndarray, scales: FeatureScales
) -> ProgramFeatures:
    """Return the features of N programs.

    Args:
        counted: see `counted_features`.
        sizes: base-2 logarithms of input sizes, float32 [N].
        structure: standardised structure, float32 [N, len(STRUCTURE)].
        scales: scales of the features.
    """
    from scipy.sparse import csr_matrix, hstack

    blocks = {name: tf_idf(counts, scales.idf[name].astype(np.float32)) for name, counts in counted.items()}
    mean, std = scales.log_size_scaling
    projections = project(csr_matrix(hstack([blocks[name] for name in COMPARED_BLOCKS])))
    common = np.log1p(counted[CONSTRUCTS][:, scales.common_constructs].toarray())
    return ProgramFeatures(blocks, ((sizes - mean) / std).astype(np.float32), structure, common, projections)


def standardised(structure: np.ndarray, scaling: np.ndarray) -> np.ndarray:
    """Return structure in standard deviations of a language, cut at `MAX_STANDARDISED`.

    Args:
        structure: see `nas_rlm.surrogates.programs.features.structure_matrix`, float32 [N, len(STRUCTURE)].
        scaling: mean and standard deviation, float32 [2, len(STRUCTURE)].
    """
    mean, std = scaling
    scaled: np.ndarray = ((structure - mean) / std).clip(-MAX_STANDARDISED, MAX_STANDARDISED)
    return scaled


def packed(structure: np.ndarray) -> np.ndarray:
    """Return standardised structure in steps of a byte, int8 [N, len(STRUCTURE)]."""
    steps: np.ndarray = np.rint(structure * (STEPS / MAX_STANDARDISED)).astype(np.int8)
    return steps


def unpacked(steps: np.ndarray) -> np.ndarray:
    """Return standardised structure from `packed`, float32 [N, len(STRUCTURE)]."""
    structure: np.ndarray = steps.astype(np.float32) * np.float32(MAX_STANDARDISED / STEPS)
    return structure


def structure_kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return a Gaussian kernel of the structures of N and M programs, float32 [N, M].

    Args:
        left: standardised structure, float32 [N, len(STRUCTURE)].
        right: standardised structure, float32 [M, len(STRUCTURE)].
    """
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    kernel: np.ndarray = np.exp(-0.5 / left.shape[1] * squares.clip(0)).astype(np.float32)
    return kernel
