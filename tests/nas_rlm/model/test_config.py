import pytest

from nas_rlm.model.config import Config
from tests.nas_rlm.model.small_networks import network


@pytest.mark.parametrize(("name", "value"), [("size", 0), ("vocab_size", "8"), ("mantissa_digits", -1)])
def test_an_invalid_config_is_rejected(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}: expected an integer"):
        Config(**{"vocab_size": 8, "objectives": ("accuracy",), name: value})


@pytest.mark.parametrize(
    "changes", [{"statement_layers": -1}, {"statement_layers": 1, "encoder": "minilm", "encoder_width": 8}]
)
def test_an_invalid_number_of_statement_layers_is_rejected(changes):
    with pytest.raises(ValueError, match="statement_layers is"):
        network(**changes)
