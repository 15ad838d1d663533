"""State of a training run: network, optimizers, averaged weights and step; saved so that a run can resume."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from nas_rlm.files import atomic_write
from nas_rlm.model.network import Network, has_bfloat16
from nas_rlm.training import distributed
from nas_rlm.training.dataset import IGNORED
from nas_rlm.training.optimizers import AveragedWeights, learning_rate, make_optimizers
from nas_rlm.training.recipe import Recipe

STATE_FILE = "state.safetensors"
MAX_ATTENTION_SCORES = 2**25  # of a layer in one forward pass; a step needs some 40 bytes for each


class TrainingState:
    """Everything that changes during training.

    Args:
        network: the network, on the device of the training.
        recipe: recipe of the training.

    Attributes:
        step: number of finished steps.
        best: highest mean Spearman correlation of a validation.
        validations_since_best: number of validations after the best one.
        averaged: averaged weights of the network.
    """

    def __init__(self, network: Network, recipe: Recipe) -> None:
        self.network, self.recipe = network.train(), recipe
        self.optimizers = make_optimizers(network, recipe)
        self.averaged = AveragedWeights(network, recipe.ema)
        self.step, self.best, self.validations_since_best = 0, -math.inf, 0

    @torch.enable_grad()
    def advance(
        self, ids: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor, total_steps: int
    ) -> float:
        """Take one step and return its loss.

        Gradients are accumulated over parts of the batch that fit into memory.

        Args:
            ids: text ids [B, T].
            inputs: decoder inputs [B * n, t], see `nas_rlm.training.dataset.collate`.
            targets: target tokens [B * n, t].
            weights: loss weights [B * n, t].
            total_steps: number of steps of the training, for the learning rate.
        """
        rate = learning_rate(self.recipe, self.step, total_steps)
        weights = weights * (targets != IGNORED)
        rows, row_weight = distributed.local_rows(len(ids))
        device = self.network.pieces.weight.device
        total_weight, loss = weights.sum().to(device), torch.zeros((), device=device)
        sequences = torch.arange(len(inputs)).view(len(ids), -1)  # of each text
        self.network.zero_grad()
        max_texts = max(1, MAX_ATTENTION_SCORES // (self.network.config.size * ids.shape[1] ** 2))
        for part in rows.split(max_texts):
            part_tensors = (t[sequences[part].flatten()].to(device) for t in (inputs, targets, weights))
            part_loss = row_weight * self._loss(ids[part].to(device), *part_tensors) / total_weight
            part_loss.backward()
            loss += part_loss.detach()
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        distributed.all_reduce([loss, *gradients])
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        self.averaged.update(self.step)
        self.step += 1
        return float(loss.item())

    def _loss(self, ids: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of the cross-entropies of the target tokens."""
        is_fast = ids.device.type != "cpu" or has_bfloat16()
        use_bfloat16 = self.recipe.precision == "bfloat16" and is_fast
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=use_bfloat16):
            logits = self.network(ids, inputs)
        losses = F.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return (losses * weights.flatten()).sum()

    def save(self, directory: Path) -> None:
        """Write the state into a run directory."""
        tensors = {f"model.{n}": p.detach() for n, p in self.network.named_parameters()}
        tensors |= {f"ema.{n}": p for n, p in self.averaged.tensors.items()}
        for prefix, optimizer, p in self._optimized_parameters():
            tensors |= {f"{prefix}{k}": v for k, v in optimizer.state.get(p, {}).items()}
        metadata = {
            "step": str(self.step),
            "best": repr(self.best),
            "since": str(self.validations_since_best),
        }
        with atomic_write(directory / STATE_FILE) as temporary:
            save_file(tensors, temporary, metadata=metadata)

    def load(self, directory: Path) -> None:
        """Read the state from a run directory.

        Raises:
            ValueError: the file is damaged or of another network.
        """
        path = directory / STATE_FILE
        try:
            tensors = load_file(path)
            with safe_open(path, "pt") as file:
                metadata = file.metadata()
            self.step, self.best = int(metadata["step"]), float(metadata["best"])
            self.validations_since_best = int(metadata["since"])
            with torch.no_grad():
                for name, p in self.network.named_parameters():
                    p.copy_(tensors[f"model.{name}"])
                    self.averaged.tensors[name].copy_(tensors[f"ema.{name}"])
        except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise ValueError(
                f"{path} is damaged or of another version ({error}): train again in another directory"
            ) from None
        for prefix, optimizer, weight in self._optimized_parameters():
            optimizer.state[weight] = {
                k.removeprefix(prefix): v.to(weight.device)
                for k, v in tensors.items()
                if k.startswith(prefix)
            }

    def _optimized_parameters(self) -> list[tuple[str, Optimizer, Tensor]]:
        """Return each parameter with its optimizer and the prefix of its optimizer state in the file."""
        names = {p: n for n, p in self.network.named_parameters()}
        return [
            (f"optimizer.{names[p]}:", optimizer, p)
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for p in group["params"]
        ]
