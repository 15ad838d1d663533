import torch

from nas_rlm.surrogates.adam import adam


def test_it_takes_the_steps_of_torch():
    centre = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64)
    expected = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([expected], lr=0.15)
    for _ in range(40):
        optimizer.zero_grad()
        (expected - centre).square().sum().backward()
        optimizer.step()
    found = adam(lambda x: 2 * (x - centre), torch.zeros(3, dtype=torch.float64), 40, 0.15)
    torch.testing.assert_close(found, expected.detach())
