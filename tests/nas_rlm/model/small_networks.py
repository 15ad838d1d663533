"""A small network, and which tokens its special heads attend to."""

import numpy as np
import torch

from nas_rlm.model.attention import AttentionMask
from nas_rlm.model.config import Config
from nas_rlm.model.network import Network
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER

KINDS = np.array(
    [0, 0, 0, 0, IDENTIFIER, IDENTIFIER, ENDS_STATEMENT, ENDS_SCOPE | ENDS_STATEMENT], dtype=np.uint8
)


def network(size: int = 4, **changes: object) -> Network:
    torch.manual_seed(0)
    return Network(
        Config(vocab_size=8, objectives=("accuracy", "latency/a"), size=size, **changes), KINDS
    ).eval()


def special_head_mask(ids, head):
    """bool [T, T]: which tokens each token attends to in a statement head (0) or reference head (1)."""
    mask = AttentionMask.from_tokens(torch.tensor([ids]), torch.from_numpy(KINDS), 1, torch.float32)
    attends = np.eye(len(ids), dtype=bool)
    for token_sets, padding_mask, _, _ in mask.groups:
        for row, is_padding in zip(token_sets.numpy(), padding_mask[:, 0, 0].numpy() < 0, strict=True):
            tokens = row[~is_padding]
            if tokens[0] % 2 == head:
                attends[np.ix_(tokens // 2, tokens // 2)] = True
    return attends
