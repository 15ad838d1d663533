"""The paper's regression head: a perceptron on the mean of the encoder's states, with a squared error.

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
from nas_rlm.training.optimizers import make_optimizers
from nas_rlm.training.recipe import Recipe, TableRecipe

PREDICTION_BATCH_SIZE = 64
FEW_LABELS_RECIPE = Recipe(
    (TableRecipe(""),),
    epochs=40,
    batch_size=16,
    optimizer="muon",
    learning_rate=5e-4,
    precision="bfloat16" if has_bfloat16() else "float32",
)


def regression_head(
    rlm: RLM,
    texts: Sequence[str],
    train_indices: np.ndarray,
    labels: np.ndarray,
    recipe: Recipe = FEW_LABELS_RECIPE,
) -> np.ndarray:
    """Train a copy of a model's encoder with a regression head, and predict all texts.

    Args:
        rlm: the model; it is not changed.
        texts: N texts.
        train_indices: indices of the M labelled texts, int [M].
        labels: their labels [M], on the scale of the squared error.
        recipe: epochs, batch size, optimizer, learning rate, precision and seed.

    Returns:
        Predictions [N].
    """
    targets = torch.from_numpy(labels).float()
    ids = [rlm.token_ids(text) for text in texts]
    torch.manual_seed(recipe.seed)
    model = _EncoderWithHead(rlm.network).train()
    optimizers = make_optimizers(model, recipe)
    num_train = len(train_indices)
    total_steps = recipe.epochs * -(-num_train // recipe.batch_size)
    epochs = (torch.randperm(num_train).split(recipe.batch_size) for _ in range(recipe.epochs))
    for step, rows in enumerate(batch for epoch in epochs for batch in epoch):
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.precision == "bfloat16"):
            predicted = model(torch.from_numpy(pad([ids[train_indices[i]] for i in rows])))
        loss = F.mse_loss(predicted.float(), targets[rows])
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / total_steps))
            optimizer.step()
    return _predict(model, ids)


def _predict(model: nn.Module, ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Predictions of all texts, in batches of similar length."""
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    predictions = np.empty(len(ids))
    with torch.inference_mode():
        for start in range(0, len(order), PREDICTION_BATCH_SIZE):
            batch = order[start : start + PREDICTION_BATCH_SIZE]
            output = model(torch.from_numpy(pad([ids[i] for i in batch])))
            predictions[batch] = output.double().numpy()
    return predictions


class _EncoderWithHead(nn.Module):
    """An encoder, and a perceptron with one hidden layer on the mean of its states."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = deepcopy(network)
        del self.network.decoder, self.network.tokens, self.network.digits, self.network.norm_out
        width = network.config.width
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, ids: Tensor) -> Tensor:
        states, padding = self.network.states(ids)
        is_token = (padding[:, 0, 0] == 0).unsqueeze(2)
        y: Tensor = self.out((states * is_token).sum(1) / is_token.sum(1))[:, 0]
        return y
