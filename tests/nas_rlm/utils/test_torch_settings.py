import pytest
import torch

from nas_rlm.utils import torch_settings


def test_settings_are_restored_also_after_an_error(change_torch):
    num_threads = torch.get_num_threads()
    with pytest.raises(KeyError), torch_settings.restored():
        change_torch()
        raise KeyError
    assert torch.get_num_threads() == num_threads
    assert torch.is_grad_enabled() and torch.ones(1).dtype == torch.float32
    assert torch.ones(1).device.type == "cpu"


def test_standard_settings_hold_within_the_block_alone(change_torch):
    change_torch()
    with torch.inference_mode(), torch_settings.standard():
        weight = torch.ones(1, requires_grad=True)
        assert weight.dtype == torch.float32 and weight.device.type == "cpu"
        (2 * weight).backward()
        assert weight.grad.item() == 2
    assert not torch.is_grad_enabled()
    assert torch.ones(1).device.type == "meta" and torch.ones(1).dtype == torch.float64
