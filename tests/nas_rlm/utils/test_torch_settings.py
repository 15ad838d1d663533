import pytest
import torch

from nas_rlm.utils import torch_settings


def change_settings():
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(torch.get_num_threads() + 1)


@pytest.fixture(autouse=True)
def defaults():
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


def test_settings_are_restored_also_after_an_error():
    num_threads = torch.get_num_threads()
    with pytest.raises(KeyError), torch_settings.restored():
        change_settings()
        raise KeyError
    assert torch.get_num_threads() == num_threads
    assert torch.is_grad_enabled() and torch.ones(1).dtype == torch.float32
    assert torch.ones(1).device.type == "cpu"


def test_standard_settings_hold_within_the_block_alone():
    change_settings()
    with torch.inference_mode(), torch_settings.standard():
        weight = torch.ones(1, requires_grad=True)
        assert weight.dtype == torch.float32 and weight.device.type == "cpu"
        (2 * weight).backward()
        assert weight.grad.item() == 2
    assert not torch.is_grad_enabled()
    assert torch.ones(1).device.type == "meta" and torch.ones(1).dtype == torch.float64
