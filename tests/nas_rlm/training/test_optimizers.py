import copy

import numpy as np
import pytest
import torch
from torch.optim import Muon

from nas_rlm.model.network import Config, Network
from nas_rlm.training import optimizers
from nas_rlm.training.optimizers import Float32Muon, make_optimizers
from nas_rlm.training.recipe import Recipe, TableRecipe

RECIPE = Recipe((TableRecipe("t"),), optimizer="muon", learning_rate=1e-3, weight_decay=0.1)


def network():
    torch.manual_seed(0)
    return Network(Config(30, ("accuracy",), 1), np.zeros(30))


@pytest.mark.parametrize(("has_bfloat16", "expected"), [(True, Muon), (False, Float32Muon)])
def test_muon_is_in_float32_on_a_cpu_without_instructions_for_bfloat16(monkeypatch, has_bfloat16, expected):
    monkeypatch.setattr(optimizers, "has_bfloat16", lambda: has_bfloat16)
    assert type(make_optimizers(network(), RECIPE)[0]) is expected


def test_muon_in_float32_takes_the_steps_of_muon(monkeypatch):
    first, last = network(), []
    for has_bfloat16 in (True, False):
        monkeypatch.setattr(optimizers, "has_bfloat16", lambda has=has_bfloat16: has)
        trained = copy.deepcopy(first)
        muon, _ = make_optimizers(trained, RECIPE)
        matrices = [p for group in muon.param_groups for p in group["params"]]
        assert {p.shape[0] > p.shape[1] for p in matrices} == {True, False}
        rng = torch.Generator().manual_seed(1)
        for _ in range(3):
            for p in matrices[1:]:
                p.grad = torch.randn(p.shape, generator=rng)
            muon.step()
        assert {*muon.state[matrices[1]]} == {"momentum_buffer"}
        last.append(dict(trained.named_parameters()))
    for name, start in first.named_parameters():
        moved, expected = (parameters[name] - start for parameters in reversed(last))
        assert (moved - expected).norm() <= 0.03 * expected.norm(), name


def test_muon_in_float32_returns_the_loss_of_a_closure():
    p = torch.nn.Parameter(torch.eye(2))
    muon = Float32Muon([p], lr=0.1, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")

    def closure():
        loss = (p**2).sum()
        loss.backward()
        return loss.item()

    assert muon.step(closure) == 2.0
    assert torch.linalg.matrix_norm(p.detach() - torch.eye(2)) > 0.01
