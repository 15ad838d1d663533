"""Optimizers and learning rates of recipes, and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Adafactor, AdamW, Muon, Optimizer

from nas_rlm.model.network import Network, has_bfloat16
from nas_rlm.training.recipe import Recipe

ADAM_BETAS = (0.9, 0.98)


def make_optimizers(network: nn.Module, recipe: Recipe) -> list[Optimizer]:
    """Return the optimizers of a recipe for the parameters of a network.

    Weight decay applies to the matrices of encoder and decoder layers only. Muon is used for these matrices
    only, with AdamW for all other parameters.

    Args:
        network: a module whose layers are in `encoder` and `decoder`.
        recipe: recipe with optimizer, learning rate and weight decay.
    """
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, p in network.named_parameters():
        is_matrix = p.ndim == 2 and ("encoder." in name or "decoder." in name)
        (matrices if is_matrix else others).append(p)
    rate, decay = recipe.learning_rate, recipe.weight_decay
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    if recipe.optimizer == "adamw":
        return [AdamW(groups, lr=rate, betas=ADAM_BETAS)]
    if recipe.optimizer == "adafactor":
        return [Adafactor(groups, lr=rate)]
    is_slow = matrices[0].device.type == "cpu" and not has_bfloat16()
    muon_type = Float32Muon if is_slow else Muon
    muon = muon_type(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return [muon, AdamW(others, lr=rate, betas=ADAM_BETAS, weight_decay=0.0)]


class Float32Muon(Muon):
    """Muon whose updates are orthogonalised in float32, not in bfloat16.

    On a CPU without instructions for bfloat16 a step takes a small part of the time. Arguments and state are
    those of Muon; learning rates are adjusted as for `match_rms_adamw`.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters that have gradients.

        Args:
            closure: computes the gradients and returns the loss.

        Returns:
            The loss, if there is a closure.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                average = self.state[p]["momentum_buffer"].lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(average, group["momentum"])
                update = _orthogonalise(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-0.2 * math.sqrt(max(p.shape)) * group["lr"])
        return loss


def _orthogonalise(matrix: Tensor, coefficients: Sequence[float], steps: int, eps: float) -> Tensor:
    """Bring the singular values of a matrix close to 1, by the Newton-Schulz iterations of Muon."""
    a, b, c = coefficients
    is_tall = len(matrix) > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def learning_rate(recipe: Recipe, step: int, total_steps: int) -> float:
    """Return the learning rate of a step: linear warm-up, then the recipe's schedule.

    Args:
        recipe: recipe with learning rate, warm-up and schedule.
        step: number of the step, from 0.
        total_steps: number of steps of the training.
    """
    rate = recipe.learning_rate * min(1.0, (step + 1) / max(1, recipe.warmup))
    if recipe.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * step / total_steps))
    return rate


class AveragedWeights:
    """Exponential moving average of a network's parameters.

    Args:
        network: the network.
        decay: decay of the average per step; it is smaller in the first steps.

    Attributes:
        tensors: averaged parameters by name.
    """

    def __init__(self, network: Network, decay: float) -> None:
        self.network, self.decay = network, decay
        self.tensors = {n: p.detach().clone() for n, p in network.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the network's present parameters.

        Args:
            step: number of the step after which it is called, from 0.
        """
        decay = min(self.decay, (step + 1) / (step + 10))
        torch._foreach_lerp_(list(self.tensors.values()), list(self.network.parameters()), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the context, give the network the averaged weights, on the CPU and in evaluation mode."""
        device = self.network.pieces.weight.device
        own = {n: p.detach().clone() for n, p in self.network.named_parameters()}
        self.network.load_state_dict(self.tensors, strict=False)
        self.network.to("cpu").eval()
        try:
            yield
        finally:
            self.network.to(device)
            self.network.load_state_dict(own, strict=False)
            self.network.train()
