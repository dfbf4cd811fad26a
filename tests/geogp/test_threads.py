"""Pieces of work side by side: the same answers in the same order, errors passed on, threads given back."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from geogp.data import Moments
from geogp.engines.pieces import in_pieces
from geogp.field import FieldOptions, LocalField
from geogp.linalg.threads import AHEAD, MOST, Stopped, go_on, one_thread_each, side_by_side


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


@pytest.mark.parametrize("threads", [2], indirect=True)
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_long_piece_ends_where_nobody_waits_for_it(threads, error):
    ended, began = [], threading.Event()

    def long(i):
        if i == 0:
            began.wait(30)
            raise error
        began.set()
        try:
            for _ in range(3000):
                go_on()
                time.sleep(0.01)
        except Stopped:
            ended.append(i)

    with pytest.raises(error):
        list(side_by_side(long, range(2)))
    assert ended == [1]
    go_on()  # outside nothing has ended


def test_a_piece_starts_no_threads_of_its_own(threads):
    def outer(i):
        inner = list(side_by_side(lambda j: (i * j, threading.get_ident()), range(4)))
        assert {thread for _, thread in inner} == {threading.get_ident()}
        return sum(product for product, _ in inner)

    assert list(side_by_side(outer, range(9))) == [6 * i for i in range(9)]


def blas():
    """Threads of each BLAS that numpy and scipy have loaded."""
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_two_inside_at_once_give_back_what_there_was(threads):
    first, second = one_thread_each(), one_thread_each()
    with threadpool_limits(3, user_api="blas"):
        before = blas()
        assert first.__enter__() == second.__enter__() == threads
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1 and set(blas()) == {1}
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == threads
        assert before and blas() == before


def counted(part, n=10):
    """Moments of a part of n places that tell which they are of."""
    places = torch.arange(float(n))[part]
    return Moments(places, places + 0.5, 2 * places, 3 * places)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(
    ("n", "size", "starts"),
    [
        (10, 3, [0, 3, 6, 9]),
        (9, 3, [0, 3, 6]),
        (3, 3, [0]),
        (2, 1, [0, 1]),
        (1, 1, [0]),
        (0, 3, [0]),
        (0, 1, [0]),
    ],
)
def test_places_in_pieces_are_told_once_each_in_order(threads, device, wide, n, size, starts):
    told = []

    def tell(part):
        told.append((part.start, threading.current_thread(), torch.is_grad_enabled()))
        return counted(part, n)

    whole = in_pieces(tell, n, size, torch.device(device), wide=wide)
    expected = counted(slice(None), n)
    for name in ("mean", "latent_variance", "noise_variance", "prior_variance"):
        assert torch.equal(getattr(whole, name), getattr(expected, name))
    begun, by, gradients = zip(*sorted(told, key=lambda piece: piece[0]))
    assert list(begun) == starts and not any(gradients)
    # Only a processor's cores take a piece each; what another device computes is queued by this thread.
    assert (threading.current_thread() in by) == (device != "cpu" or threads == 1)


@pytest.mark.parametrize(("wide", "most"), [(True, 64), (False, MOST)])
def test_more_threads_take_pieces_where_each_is_long(wide, most):
    alive, at_once, lock, full = 0, 0, threading.Lock(), threading.Event()

    def tell(part):
        nonlocal alive, at_once
        with lock:
            alive += 1
            at_once = max(at_once, alive)
            if alive == most:
                full.set()
        full.wait(5.0)
        time.sleep(0.02)  # for one too many
        with lock:
            alive -= 1
        return counted(part, 200)

    before = torch.get_num_threads()
    torch.set_num_threads(70)
    try:
        in_pieces(tell, 200, 2, torch.device("cpu"), wide=wide)
    finally:
        torch.set_num_threads(before)
    assert at_once == most


def test_predictions_and_draws_do_not_depend_on_the_threads(kernels_in_parts):
    rng = torch.Generator().manual_seed(0)
    X = 1e4 * torch.rand(500, 2, generator=rng).double()
    options = FieldOptions(neighbours=16, steps=10, metric=False)
    field = LocalField.fit(X, torch.sin(X[:, 0] / 3e3), None, options=options)
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


@pytest.mark.parametrize(
    ("policy", "spins", "expected"),
    [("", "", "1000"), ("", "7", "7"), ("ACTIVE", "", "None"), ("PASSIVE", "", "None")],
)
def test_threads_wait_briefly_unless_somebody_said_how_they_wait(policy, spins, expected):
    said = {"OMP_WAIT_POLICY": policy, "GOMP_SPINCOUNT": spins}
    environment = {k: v for k, v in os.environ.items() if k not in said} | {
        k: v for k, v in said.items() if v
    }
    code = 'import os, geogp; print(os.environ["OMP_WAIT_POLICY"], os.environ.get("GOMP_SPINCOUNT"))'
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [policy or "PASSIVE", expected]
