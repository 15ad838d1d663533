"""The encoder of single statements, with a cache of their states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from nas_rlm.model.attention import AttentionMask, matmul_dtype
from nas_rlm.model.layers import EncoderLayer
from nas_rlm.text.statements import group_by_length, order_after_grouping, pad_statements
from nas_rlm.text.tokenizer import PAD

MAX_CACHED_STATEMENTS = 2**16
STATEMENT_POOLING_SCALE = 0.5  # of the sum over a statement's tokens, which are few
STATEMENT_BATCH_SIZE = 64  # statements encoded at once when their states are cached


def weight_versions(weights: Iterable[Tensor]) -> tuple[tuple[int, int], ...]:
    """Return a key that changes when a weight is replaced or changed in place."""
    return tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights)


class StatementEncoder(nn.Module):
    """Encodes each statement by itself, and caches the states when no gradients are needed.

    The cache is emptied when a weight changes or `MAX_CACHED_STATEMENTS` is exceeded.

    Args:
        width: width of the states.
        layers: number of encoder layers, which attend within a statement.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(width) for _ in range(layers))
        self._rows: dict[bytes, int] = {}
        self._states = torch.empty(0, width)
        self._versions: tuple[tuple[int, int], ...] = ()

    def forward(self, statements: list[bytes], embedding: nn.Module, kinds: Tensor) -> Tensor:
        """Return the states [S, width] of statements.

        Args:
            statements: S distinct statements, each as the bytes of its int64 token ids.
            embedding: token embedding.
            kinds: uint8 [vocab_size], see `Tokenizer.kinds`.
        """
        if torch.is_grad_enabled():
            return self._encode_uncached(statements, embedding, kinds)
        weights = [*embedding.parameters(), *self.parameters()]
        versions = weight_versions(weights)
        if versions != self._versions or len(self._rows) + len(statements) > MAX_CACHED_STATEMENTS:
            self._rows, self._versions = {}, versions
            # Outside inference mode, so that the buffer can be written to inside and outside of it later.
            with torch.inference_mode(False):
                num_rows = max(MAX_CACHED_STATEMENTS, len(statements))
                self._states = weights[0].new_empty(num_rows, weights[0].shape[1])
        new = [statement for statement in statements if statement not in self._rows]
        # Batches have a fixed size, so that states do not depend on what is in the cache.
        for length, members in group_by_length(new).items():
            for start in range(0, len(members), STATEMENT_BATCH_SIZE):
                batch = [new[i] for i in members[start : start + STATEMENT_BATCH_SIZE]]
                first = len(self._rows)
                self._states[first : first + len(batch)] = self._encode_batch(
                    batch, length, embedding, kinds, STATEMENT_BATCH_SIZE
                )
                self._rows.update((statement, first + i) for i, statement in enumerate(batch))
        return self._states[torch.tensor([self._rows[statement] for statement in statements])]

    def _encode_uncached(self, statements: list[bytes], embedding: nn.Module, kinds: Tensor) -> Tensor:
        """States [S, width] computed with gradients; arguments as for `forward`."""
        groups = group_by_length(statements)
        states = torch.cat(
            [
                self._encode_batch([statements[i] for i in members], length, embedding, kinds)
                for length, members in groups.items()
            ]
        )
        return states[torch.from_numpy(order_after_grouping(groups)).to(states.device)]

    def _encode_batch(
        self, statements: Sequence[bytes], length: int, embedding: nn.Module, kinds: Tensor, num_rows: int = 0
    ) -> Tensor:
        """States of statements of at most `length` tokens, in a batch padded to at least `num_rows` rows."""
        tokens = torch.from_numpy(pad_statements(statements, length, num_rows)).to(kinds.device)
        x = embedding(tokens)
        mask = AttentionMask.from_tokens(tokens, kinds, 0, matmul_dtype(x))
        for layer in self.layers:
            x = layer(x, mask)
        pooled: Tensor = STATEMENT_POOLING_SCALE * (x * (tokens != PAD).unsqueeze(2)).sum(1)
        return pooled[: len(statements)]
