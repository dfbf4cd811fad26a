"""On a GPU every method says what it says on the CPU; where there is none, on a device that is pretended (`tests/elsewhere.py`)."""

import threading
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from geogp.basis.build import Shape, Size, build
from geogp.basis.expansions import EXPANSIONS, expansion_named
from geogp.basis.initialise import warm_start
from geogp.basis.objectives import Weights
from geogp.basis.recorded import FIRST, RecordedSteps
from geogp.basis.schedule import Schedule
from geogp.basis.train import Training, Watch, minibatch, train
from geogp.data import Data
from geogp.engines import lowrank
from geogp.errors import ImpossibleCombination, NumericalFailure
from geogp.estimator import GPRegressor
from geogp.field.options import SMOOTH_FROM
from geogp.field.predict import moments
from geogp.methods import METHODS, method
from geogp.update import knowing, refresh, summarise, way
from tests import elsewhere

#: Of a local field: enough that each part of it is fitted.
FEW = {"steps": 4, "n_targets": 150, "epochs": 2, "metric": False, "neighbours": 12}
#: A GPU records the fourth step.
SMALL = {
    "time": 2,
    "epochs": 6 if torch.cuda.is_available() else 3,
    "rank": 32,
    "hidden": 16,
    "random_state": 0,
    "fourier_scales": (1.0,),
}
#: Of which there is one kind only that is not carried by tensors.
ON_THE_CPU = ("gp-averaged",)


@pytest.fixture(autouse=True)
def device() -> Iterator[str]:
    with elsewhere.device() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield name


@cache
def rows(n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 2e4, (n // 2, 2)).repeat(2, 0)
    X = np.column_stack([places, np.tile([0.0, 0.25], n // 2)])
    counts = rng.integers(1, 60, n).astype(float)
    return X, np.sin(X[:, 0] / 4e3) + 0.3 * rng.standard_normal(n) / np.sqrt(counts / 5), counts


def fitted(name: str, on: str, **asked: object) -> GPRegressor:
    X, y, counts = rows()
    y = np.log10(1 + counts) if name == "cox" else y
    options = FEW if method(name).engine == "local" or asked.get("residual") == "local" else None
    more = {"rank": 216} if "ski" in (name, asked.get("expansion")) else {}
    held = slice(200, None) if "validated" in asked else slice(0, 0)
    asked = {k: v for k, v in asked.items() if k != "validated"}
    model = GPRegressor(
        name, device=on, target_transform="identity", options=options, **{**SMALL, **more, **asked}
    )
    told = (X[held], y[held], counts[held]) if len(X[held]) else None
    return model.fit(X[:200], y[:200], counts[:200], validation=told)


def said(model: GPRegressor) -> dict[str, np.ndarray]:
    """All that a model says, by name."""
    X = rows()[0]
    new = X[:25] + np.array([100.0, 50.0, 0.0])
    one, surface = model.moments(new, 10), model.moments(new)
    out = {
        "mean": one.mean, "latent": one.latent_variance, "noise": one.noise_variance, "prior": one.prior_variance,
        "surface": surface.mean, "exceedance": model.exceedance(new, 0.5), "interval": np.stack(model.interval(new, 0.9)),
        "draws": model.sample_y(new, 2, random_state=0),
    }  # fmt: skip
    for name, ask in {
        "slice": lambda: model.kernel_slice(X[:30], X[0]),
        "covariance": lambda: model.predict(new, return_cov=True)[1],
    }.items():
        try:
            out[name] = ask()
        except (ImpossibleCombination, NotImplementedError) as error:  # of some there is none: on both
            out[name] = np.frombuffer(str(error).encode(), np.uint8)
    return {name: np.asarray(value, float) for name, value in out.items()}


def same(here: dict[str, np.ndarray], there: dict[str, np.ndarray], tolerance: float) -> None:
    for name in here:
        size = np.abs(here[name]).max() + 1e-12
        np.testing.assert_allclose(
            there[name], here[name], rtol=0, atol=tolerance * size, equal_nan=True, err_msg=name
        )


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ON_THE_CPU])
def test_a_method_says_and_learns_there_what_it_does_here(name: str, device: str) -> None:
    here = fitted(name, "cpu", validated=True)
    moved, there = GPRegressor.from_state(*here.state(), device=device), fitted(name, device, validated=True)
    same(said(here), said(moved), 2e-4)
    learned_alike(said(here), said(there))
    tensors, _ = there.state()
    assert all(t.device.type == "cpu" for t in tensors.values())  # so that any machine reads a run


def learned_alike(here: dict[str, np.ndarray], there: dict[str, np.ndarray]) -> None:
    """On a GPU steps round differently, and a network's path parts from that of the CPU."""
    if torch.cuda.is_available():
        assert all(np.isfinite(value).all() for value in there.values())
    else:
        same(here, there, 1e-3)  # learning rates there are of float32


@pytest.mark.parametrize(
    ("base", "choice"),
    [
        ("dbk-silu", {"residual": "unit"}), ("dbk-silu", {"residual": "distance"}), ("dbk-silu", {"residual": "local"}),
        ("dbk-rbf", {"residual": "nystrom"}), ("dbk-silu", {"spread": "student"}), ("sv-rbf", {"spread": "student"}),
        ("sv-rbf", {"posterior": "lowrank"}), ("dbk-silu", {"expansion": "rbf+fourier"}), ("softki", {"expansion": "ski"}),
        ("dbk-silu", {"expansion": "hermite"}), ("dbk-silu", {"noise": "constant"}), ("dbk-silu", {"precision": "bfloat16"}),
        ("geogp", {"region_rows": 2000}), ("dbk-silu", {"trace_weight": None}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(f"{k}={v}" for k, v in value.items()),
)  # fmt: skip
def test_any_choice_may_be_made_there(base: str, choice: dict[str, object], device: str) -> None:
    learned_alike(
        said(fitted(base, "cpu", validated=True, **choice)),
        said(fitted(base, device, validated=True, **choice)),
    )


@pytest.mark.parametrize("name", ["dbk-silu", "sgpr", "geogp"])
def test_new_rows_are_taken_in_there(name: str, device: str) -> None:
    X, y, counts = rows()
    here = fitted(name, "cpu")
    there = GPRegressor.from_state(*here.state(), device=device)

    def newer(model: GPRegressor) -> GPRegressor:
        if way(model) != "statistics":
            return knowing(model, X, y, counts)
        return refresh(model, list(summarise(model, X, y, counts).values()))

    same(said(newer(here)), said(newer(there)), 2e-4)


# -- steps ----------------------------------------------------------------------------------------------


def training(name: str, device: str, n: int = 600, **schedule: object) -> Training:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(6.0 * X[:, 0]).float()
    data = Data(X, y, torch.ones(n))
    model = build(method(name), Shape(2, (0, 1), None, True), Size(hidden=16, rank=16), seed=0)
    model.encoder.fit_scaling(X)
    model.to(torch.device(device))
    data = data.to(torch.device(device))
    warm_start(model, data.X, data.y, data.counts, seed=0)
    loss = minibatch(model, method(name).objective, Weights(), n)
    return Training(model, data, loss, Schedule(**{"epochs": 6, "batch_size": 100, **schedule}), 0)


@pytest.mark.parametrize("name", ["dbk-silu", "sv-rbf"])
def test_epochs_there_learn_what_epochs_here_do(name: str, device: str) -> None:
    here, there = training(name, "cpu"), training(name, device)
    losses = [(here.run_epoch(), there.run_epoch()) for _ in range(3)]
    for at, told in losses:
        assert told == pytest.approx(at, rel=1e-2 if torch.cuda.is_available() else 1e-3)
    assert all(b < a for (a, _), (b, _) in pairwise(losses))


TRAINED = [name for name, row in METHODS.items() if row.engine in ("lowrank", "network")]


@pytest.mark.parametrize("name", ["dbk-silu", "dbk-rbf", *sorted({*TRAINED} - {"dbk-silu", "dbk-rbf"})])
def test_a_step_that_may_be_recorded_waits_for_nothing(name: str, device: str) -> None:
    """Of an epoch the order of the rows goes there, and the mean loss comes back. One that factorises a matrix looks at it."""
    running = training(name, device)
    if torch.cuda.is_available():
        plain, batches = training(name, device), []
        plain.moved = plain._move
        for _ in range(3):
            assert running.run_epoch() == pytest.approx(plain.run_epoch(), rel=1e-3, abs=1e-4)
        batches = list(running.data.shuffled(100, torch.Generator().manual_seed(0)))
        assert isinstance(running.moved, RecordedSteps) == running.loss.repeats
        if isinstance(running.moved, RecordedSteps):
            assert list(running.moved._tapes) == [100]
            torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in batches:
                running._step(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return
    running.moved = running._move  # nothing here can be recorded, which would be looked at
    running.run_epoch()
    elsewhere.COUNTED.clear()
    running.run_epoch()
    if running.loss.repeats:
        assert elsewhere.COUNTED == {"brought": 1, "waits": 1}
    else:
        assert elsewhere.COUNTED["waits"] > 1


@pytest.mark.parametrize("name", [name for name, kind in EXPANSIONS.items() if kind.is_basis])
def test_a_basis_says_whether_it_waits(name: str, device: str) -> None:
    if torch.cuda.is_available():
        return  # what waits is counted where a device is pretended
    basis = expansion_named(name)(2, 216).double().to(torch.device(device))
    if not list(basis.parameters()):
        return
    h = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(
        torch.device(device)
    )
    basis.initialise(h)
    elsewhere.COUNTED.clear()
    basis(h).square().sum().backward()
    assert (elsewhere.COUNTED["waits"] > 0) == basis.factorises and not elsewhere.COUNTED["brought"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no recording fails where there is none")
def test_what_cannot_be_recorded_goes_on_as_it_was(device: str) -> None:
    plain, forced = training("sv-rbf", device), training("sv-rbf", device)
    forced.moved = RecordedSteps(forced._move)
    for _ in range(4):
        assert forced.run_epoch() == pytest.approx(plain.run_epoch(), rel=1e-2, abs=1e-2)
    assert not forced.moved._tapes


def test_training_goes_on_there_from_where_it_stood_here(device: str) -> None:
    whole, first = training("dbk-silu", "cpu"), training("dbk-silu", "cpu")
    for _ in range(2):
        whole.run_epoch(), whole.note(0.0, None)
        first.run_epoch(), first.note(0.0, None)
    state = first.state()
    assert all(isinstance(group["lr"], float) for group in state["optimiser"]["param_groups"])
    there = training("dbk-silu", device)
    there.go_on_from(state)
    assert there.run_epoch() == pytest.approx(whole.run_epoch(), rel=1e-4)
    back = there.state()
    assert all(isinstance(group["lr"], float) for group in back["optimiser"]["param_groups"])
    again = training("dbk-silu", "cpu")
    again.go_on_from({**back, "model": {k: v.cpu() for k, v in back["model"].items()}})
    assert np.isfinite(again.run_epoch())


def test_a_loss_that_runs_away_is_said_there_too(device: str) -> None:
    running = training("dbk-silu", device, learning_rate=1e12)
    with pytest.raises(NumericalFailure, match="lower the learning rate"):
        for _ in range(4):
            running.run_epoch()


def recorder(tapes: list[str], refuses: bool = False):
    """Records by keeping what to do."""

    def record(work):
        if refuses:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        out = torch.zeros(())

        def replay() -> None:
            tapes.append("played")
            out.copy_(work())

        return SimpleNamespace(replay=replay), out

    return record


@pytest.mark.parametrize("refuses", [False, True])
def test_recorded_steps_are_the_steps(refuses: bool) -> None:
    """Sizes of batch have tapes of their own; what cannot be recorded is done as it was."""
    plain, recorded, tapes = training("dbk-silu", "cpu", n=560), training("dbk-silu", "cpu", n=560), []
    recorded.moved = RecordedSteps(recorded._move, recorder(tapes, refuses))
    assert [len(b) for b in plain.data.shuffled(100, torch.Generator())] == [100] * 5 + [60]
    for _ in range(5):
        assert recorded.run_epoch() == plain.run_epoch()
    same_weights = zip(plain.model.parameters(), recorded.model.parameters())
    assert all(torch.equal(a, b) for a, b in same_weights)
    assert len(tapes) == (0 if refuses else (5 * 5 - FIRST) + (5 - FIRST))


def test_what_draws_or_asks_is_never_recorded(device: str) -> None:
    """A loss says itself that it repeats; of all rows at once and of L-BFGS none is."""
    running = training("dbk-silu", device)
    assert isinstance(running.moved, RecordedSteps) and running.loss.repeats
    drawing = SimpleNamespace(name="draws", backward=running.loss.backward, repeats=False)
    assert not isinstance(
        Training(running.model, running.data, drawing, running.schedule, 0).moved, RecordedSteps
    )
    assert not isinstance(training("dbk-silu", "cpu").moved, RecordedSteps)


def test_a_whole_training_there_keeps_its_best_epoch(device: str) -> None:
    here, there = training("dbk-silu", "cpu"), training("dbk-silu", device)
    found = [
        train(t.model, t.data, t.loss, schedule=t.schedule, watch=Watch(t.data.rows(torch.arange(50))))
        for t in (here, there)
    ]  # fmt: skip
    assert found[0].best_epoch == found[1].best_epoch
    assert found[0].best_score == pytest.approx(found[1].best_score, rel=1e-2)


def test_places_at_once_do_not_change_what_is_said(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = GPRegressor.from_state(*fitted("dbk-silu", "cpu").state(), device=device)
    X = np.random.default_rng(0).uniform(0, 2e4, (9000, 3)) * [1, 1, 0]
    whole = model.moments(X)
    monkeypatch.setattr(lowrank, "ON_DEVICE", 1)
    pieces = model.moments(X)
    np.testing.assert_allclose(pieces.mean, whole.mean, atol=1e-5)
    np.testing.assert_allclose(pieces.latent_variance, whole.latent_variance, rtol=1e-4)


def test_pieces_side_by_side_say_what_one_after_another_do(
    device: str, monkeypatch: pytest.MonkeyPatch, kernels_in_parts: None
) -> None:
    """While a device solves some the CPU looks for the neighbours of others; the noise's networks lie there, too."""
    X, y, counts = rows(SMOOTH_FROM)
    here = GPRegressor("geogp", time=2, device="cpu", options=FEW, random_state=0).fit(X, y, counts)
    there = GPRegressor.from_state(*here.state(), device=device)
    assert there.engine_.field._noise_on_device.center.device.type == torch.device(device).type
    assert there.engine_.field.noise.center.device.type == "cpu"
    X = X[:200] + [30.0, 40.0, 0.0]
    expected, ran = here.moments(X), set()
    monkeypatch.setattr(moments, "PLACES_AT_ONCE", 40)
    honest = moments.moments_of

    def noted(*asked):
        ran.add(threading.current_thread().name)
        return honest(*asked)

    monkeypatch.setattr("geogp.field.predict.averaged.moments_of", noted)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = there.moments(X)
    finally:
        torch.set_num_threads(before)
    assert len(ran) == 3 and threading.main_thread().name not in ran
    for name in ("mean", "latent_variance", "noise_variance", "prior_variance"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5, atol=1e-6)
