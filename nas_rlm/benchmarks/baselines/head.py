"""The regression head that the paper holds its decoder against: the encoder's mean state, a squared error.

Source: section 6.1 of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas_rlm.model.batching import pad
from nas_rlm.model.network import Network, has_bfloat16
from nas_rlm.rlm import RLM
from nas_rlm.training.recipe import Recipe, TableRecipe
from nas_rlm.training.optimizers import make_optimizers

FEW = Recipe(
    (TableRecipe(""),),
    epochs=40,
    batch_size=16,
    optimizer="muon",
    learning_rate=5e-4,
    precision="bfloat16" if has_bfloat16() else "float32",
)


def head(
    rlm: RLM, texts: Sequence[str], known: np.ndarray, values: np.ndarray, recipe: Recipe = FEW
) -> np.ndarray:
    """Predictions of a model's encoder with a perceptron on the mean of its states, trained together.

    Args:
        rlm: whose encoder it starts from; it is left as it is.
        texts: N texts.
        known: positions of M of them, int [M].
        values: what to learn of those, on the scale on which errors are squared, float64 [M].
        recipe: epochs, batches, optimizer, rate, precision and seed.

    Returns:
        float64 [N].
    """
    wanted = torch.from_numpy(values).float()
    ids = [rlm.token_ids(text) for text in texts]
    torch.manual_seed(recipe.seed)
    model = _Pooled(rlm.network).train()
    learning = make_optimizers(model, recipe)
    steps = recipe.epochs * -(-len(known) // recipe.batch_size)
    drawn = (torch.randperm(len(known)).split(recipe.batch_size) for _ in range(recipe.epochs))
    for step, rows in enumerate(batch for epoch in drawn for batch in epoch):
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.precision == "bfloat16"):
            told = model(torch.from_numpy(pad([ids[known[i]] for i in rows])))
        loss = F.mse_loss(told.float(), wanted[rows])
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for optimizer in learning:
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
            optimizer.step()
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found = np.empty(len(ids))
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            part = order[start : start + 64]
            found[part] = model(torch.from_numpy(pad([ids[i] for i in part]))).double().numpy()
    return found


class _Pooled(nn.Module):
    """An encoder, the mean of its states, and a perceptron of one hidden layer."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = deepcopy(network)
        del self.network.decoder, self.network.tokens, self.network.digits, self.network.norm_out
        width = network.config.width
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, ids: Tensor) -> Tensor:
        states, padding = self.network.states(ids)
        seen = (padding[:, 0, 0] == 0).unsqueeze(2)
        y: Tensor = self.out((states * seen).sum(1) / seen.sum(1))[:, 0]
        return y
