"""Pieces of work side by side: the same answers in the same order, errors passed on, threads given back."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from geogp.field import FieldOptions, LocalField
from geogp.linalg.threads import AHEAD, one_thread_each, side_by_side


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_answers_come_in_the_order_of_the_pieces(threads):
    def late(i):
        time.sleep(0.002 * ((7 * i) % 5))
        return i, torch.is_grad_enabled(), torch.get_num_threads()

    assert list(side_by_side(late, range(40))) == [(i, False, 1) for i in range(40)]
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_pieces_are_taken_as_they_are_needed_and_no_more_after_an_error(threads):
    taken = []

    def pieces():
        for i in range(1000):
            taken.append(i)
            yield i

    def fails(i):
        if i == 5:
            raise ZeroDivisionError("the fifth")
        return i

    with pytest.raises(ZeroDivisionError, match="the fifth"):
        list(side_by_side(fails, pieces()))
    assert len(taken) <= 6 + AHEAD * threads
    assert torch.get_num_threads() == threads


def test_a_piece_starts_no_threads_of_its_own(threads):
    def outer(i):
        inner = list(side_by_side(lambda j: (i * j, threading.get_ident()), range(4)))
        assert {thread for _, thread in inner} == {threading.get_ident()}
        return sum(product for product, _ in inner)

    assert list(side_by_side(outer, range(9))) == [6 * i for i in range(9)]


def test_two_inside_at_once_give_back_what_there_was(threads):
    first, second = one_thread_each(), one_thread_each()
    assert first.__enter__() == second.__enter__() == threads
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == threads


def test_predictions_and_draws_do_not_depend_on_the_threads():
    rng = torch.Generator().manual_seed(0)
    X = 1e4 * torch.rand(500, 2, generator=rng).double()
    field = LocalField.fit(X, torch.sin(X[:, 0] / 3e3), None, options=FieldOptions(neighbours=16, steps=10))
    new = 1e4 * torch.rand(300, 2, generator=rng).double()
    before, found = torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        moments = field.moments(new)
        joint = field.joint(new, moments.latent_variance)
        found.append((moments.location, moments.scale, torch.from_numpy(joint.draw(3, rng.manual_seed(1)))))
    torch.set_num_threads(before)
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("first", "policy", "threads"),
    [("geogp", "", 2), ("torch", "", 1), ("torch", "PASSIVE", 2)],
)
def test_torch_imported_first_fits_in_one_thread(first, policy, threads):
    """Its threads then wait actively: on a busy machine a fit took six times as long."""
    other = {"geogp": "torch", "torch": "geogp"}[first]
    code = f"import {first}, {other}, torch, geogp.linalg.threads as t\ntorch.set_num_threads(2)\nwith t.patient(): print(torch.get_num_threads())"
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": policy} if policy else {}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(threads)]
