"""Steps are those of torch's optimisers under its one-cycle schedule, and importing a compiler is not one of them."""

import subprocess
import sys

import pytest
import torch

from geogp.field.steps import Group, Steps


def problem():
    g = torch.Generator().manual_seed(0)
    A = torch.randn(6, 4, generator=g, dtype=torch.float64)
    x = torch.randn(4, generator=g, dtype=torch.float64).requires_grad_()
    b = torch.randn((), generator=g, dtype=torch.float64).requires_grad_()
    return x, b, lambda: ((A @ x).square().sum() + (b - 2.0) ** 4) / 10


@pytest.mark.parametrize(
    ("total", "rise", "beta2"), [(40, 0.2, 0.98), (33, 0.15, 0.999), (6, 0.2, 0.98), (None, 0.2, 0.999)]
)
def test_steps_are_those_of_torch(total, rise, beta2):
    x, b, loss = problem()
    steps = Steps([Group([x], 0.1, 0.3), Group([b], 0.2)], total=total, rise=rise, beta2=beta2)
    for _ in range(total or 20):
        steps.down(loss())
    mine = [p.detach().clone() for p in (x, b)]
    x, b, loss = problem()
    groups = [
        {"params": [x], "lr": 0.1, "weight_decay": 0.3},
        {"params": [b], "lr": 0.2, "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, beta2))
    cycle = None
    if total is not None:
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, [0.1, 0.2], total_steps=total, pct_start=rise)
    for _ in range(total or 20):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
        if cycle is not None:
            cycle.step()
    for p, q in zip(mine, (x, b)):
        torch.testing.assert_close(p, q.detach(), rtol=0, atol=1e-12)


def test_nothing_said_a_fifth_of_the_cycle_rises():
    found = []
    for said in ({}, {"rise": 0.2, "beta2": 0.999}, {"rise": 0.4}):
        x, b, loss = problem()
        steps = Steps([Group([x, b], 0.1)], total=30, **said)
        for _ in range(30):
            steps.down(loss())
        found.append(x.detach().clone())
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_a_cycle_whose_rise_is_one_step_starts_at_its_highest_rate():
    x = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    steps = Steps([Group([x], 0.1)], total=5, rise=0.2)
    steps.down(x.square().sum())
    assert x.item() == pytest.approx(2.9, abs=1e-6)  # Adam's first step is as long as the rate


def test_a_parameter_without_gradient_stays():
    x, b, _ = problem()
    before = b.detach().clone()
    Steps([Group([x, b], 0.1)], total=None).down(x.square().sum())
    assert torch.equal(b.detach(), before) and b.grad is None


def test_a_fit_of_the_default_imports_no_compiler():
    code = (
        "import sys, numpy as np, geogp\n"
        "X = np.random.default_rng(0).uniform(size=(120, 2))\n"
        "geogp.GPRegressor().fit(X, X[:, 0])\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
