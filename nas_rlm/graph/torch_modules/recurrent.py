"""Translation of recurrent layers: LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from nas_rlm.graph.torch_modules.registry import Operation, Translate


class ResetFirstGRU(nn.GRU):
    """A GRU of one layer whose reset gate scales the state before its product with the weights.

    It scales the product after it in `torch.nn.GRU`. Parameters, inputs and outputs are the same. This is the
    GRU of ONNX with `linear_before_reset` 0, and of Keras with `reset_after=False`.

    Source: Cho et al. 2014, Learning Phrase Representations using RNN Encoder-Decoder, equation 8.
    """

    def forward(  # type: ignore[override]
        self, input: torch.Tensor, hx: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states of all steps and the last ones.

        Args:
            input: float [steps, batch, features].
            hx: initial states, float [directions, batch, hidden]; zeros by default.

        Returns:
            float [steps, batch, directions * hidden] and float [directions, batch, hidden].
        """
        directions = 2 if self.bidirectional else 1
        if hx is None:
            hx = input.new_zeros(directions, input.shape[1], self.hidden_size)
        of_directions, last = [], []
        for direction, suffix in enumerate(("_l0", "_l0_reverse")[:directions]):
            states = self._run(input.flip(0) if direction else input, hx[direction], suffix)
            of_directions.append(states.flip(0) if direction else states)
            last.append(states[-1])
        return torch.cat(of_directions, 2), torch.stack(last)

    def _run(self, x: torch.Tensor, state: torch.Tensor, suffix: str) -> torch.Tensor:
        """Return the states of one direction, float [steps, batch, hidden]."""
        weight, bias_of_state = getattr(self, f"weight_hh{suffix}"), getattr(self, f"bias_hh{suffix}", None)
        of_inputs = functional.linear(
            x, getattr(self, f"weight_ih{suffix}"), getattr(self, f"bias_ih{suffix}", None)
        )
        size, states = self.hidden_size, []
        gate_bias, new_bias = (
            (None, None) if bias_of_state is None else bias_of_state.tensor_split([2 * size])
        )
        for of_input in of_inputs:
            gates = of_input[:, : 2 * size] + functional.linear(state, weight[: 2 * size], gate_bias)
            reset, update = torch.sigmoid(gates).chunk(2, 1)
            new = of_input[:, 2 * size :] + functional.linear(reset * state, weight[2 * size :], new_bias)
            state = (1 - update) * torch.tanh(new) + update * state
            states.append(state)
        return torch.stack(states)


def _recurrent(module_type: Callable[..., nn.RNNBase], gates: Sequence[int]) -> Translate:
    """Return the translation of a recurrent layer.

    Args:
        module_type: its module in torch.
        gates: positions in ONNX of torch's gates.
    """

    def translate(operation: Operation) -> Any:
        _check_recurrent(operation, len(gates))
        is_gru = operation.kind == "GRU"
        make = ResetFirstGRU if is_gru and not operation.attribute("linear_before_reset", 0) else module_type
        weights = {name: operation.array(i) for i, name in ((1, "weight_ih"), (2, "weight_hh"))}
        directions, hidden = weights["weight_hh"].shape[0], weights["weight_hh"].shape[2]
        if operation.has(3):
            weights["bias_ih"], weights["bias_hh"] = np.split(operation.array(3), 2, axis=1)
        layer = make(
            weights["weight_ih"].shape[2], hidden, bias=operation.has(3), bidirectional=directions == 2
        )
        for name, array in weights.items():
            for direction, suffix in zip(array, ("_l0", "_l0_reverse"), strict=False):
                blocks = np.split(direction, len(gates))
                values = np.concatenate([blocks[i] for i in gates])
                setattr(layer, name + suffix, nn.Parameter(torch.from_numpy(values)))
        x = operation.tensor()
        is_reverse = operation.attribute("direction", "forward") == "reverse"
        x = operation.call(torch.flip, x, [0]) if is_reverse else x
        states = [operation.optional(i) for i in ((5, 6) if module_type is nn.LSTM else (5,))]
        if module_type is nn.LSTM and states[0] is not states[1] and None in states:
            raise ValueError("LSTM has one initial state: expected both or none")
        state = tuple(states) if len(states) == 2 else states[0]
        result = operation.layer(layer, x, *([] if states[0] is None else [state]))
        y = operation.call(_by_direction, operation.item(result, 0), directions)
        y = operation.call(torch.flip, y, [0]) if is_reverse else y
        last = operation.item(result, 1)
        if module_type is nn.LSTM:
            return [y, operation.item(last, 0), operation.item(last, 1)]
        return [y, last]

    return translate


def _check_recurrent(operation: Operation, num_gates: int) -> None:
    """Check that torch has the attributes of a recurrent layer.

    Raises:
        ValueError: it has not.
    """
    activations = {1: [b"Tanh"], 3: [b"Sigmoid", b"Tanh"], 4: [b"Sigmoid", b"Tanh", b"Tanh"]}[num_gates]
    expected = activations * (2 if operation.attribute("direction") == "bidirectional" else 1)
    operation.require("activations", None, activations, expected)
    operation.require("clip", None)
    operation.require("layout", 0)
    operation.require("input_forget", 0)
    operation.require_absent(4, "sequence_lens")
    operation.require_absent(7, "P")
    if operation.kind == "GRU":
        operation.require("linear_before_reset", 0, 1)


def _by_direction(y: torch.Tensor, directions: int) -> torch.Tensor:
    """Return the outputs of torch with an axis of directions after the time, as in ONNX."""
    return y.unflatten(2, (directions, -1)).transpose(1, 2)


OPERATORS: dict[str, Translate] = {
    "GRU": _recurrent(nn.GRU, (1, 0, 2)),
    "LSTM": _recurrent(nn.LSTM, (0, 2, 3, 1)),
    "RNN": _recurrent(nn.RNN, (0,)),
}
