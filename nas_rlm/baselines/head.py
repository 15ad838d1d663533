"""The regression head that the paper holds its decoder against: the encoder's mean state, a squared error.

Source: section 5.4 of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas_rlm.model import Network
from nas_rlm.rlm import RLM, pad
from nas_rlm.text.tokenizer import PAD

EPOCHS, BATCH, RATE, DECAY, CLIP = 40, 16, 5e-4, 0.05, 1.0


def head(
    rlm: RLM, texts: Sequence[str], known: np.ndarray, values: np.ndarray, normalised: bool, seed: int = 0
) -> np.ndarray:
    """Predictions of a model's encoder with a perceptron on the mean of its states, trained together.

    Args:
        rlm: whose encoder it starts from; it is left as it is.
        texts: N texts.
        known: positions of M of them, int [M].
        values: what was measured of those, float64 [M].
        normalised: learn (value - mean) / deviation instead of the value.
        seed: of the perceptron and the batches.

    Returns:
        float64 [N].
    """
    mean, deviation = (values.mean(), values.std() or 1.0) if normalised else (0.0, 1.0)
    wanted = torch.from_numpy((values - mean) / deviation).float()
    ids = [rlm.token_ids(text) for text in texts]
    torch.manual_seed(seed)
    model = _Pooled(rlm.network).train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY)
    steps = EPOCHS * -(-len(known) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(known)).split(BATCH):
            loss = F.mse_loss(model(pad([ids[known[i]] for i in rows])), wanted[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found = np.empty(len(ids))
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            found[rows] = model(pad([ids[i] for i in rows])).double().numpy()
    return found * deviation + mean


class _Pooled(nn.Module):
    """An encoder, the mean of its states, and a perceptron of one hidden layer."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = deepcopy(network)
        width = network.config.width
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.network.states(ids)
        seen = (ids != PAD).unsqueeze(2)
        y: Tensor = self.out((states * seen).sum(1) / seen.sum(1))[:, 0]
        return y
