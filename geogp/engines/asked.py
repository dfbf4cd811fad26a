"""From what a caller asks of `GPRegressor` to the plan of a fit."""

import math
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.basis.build import Shape, Size
from geogp.basis.capacity import BATCH, STEPS, Capacity, choose_capacity
from geogp.basis.objectives import Weights
from geogp.basis.residuals import RESIDUALS
from geogp.basis.schedule import Schedule
from geogp.data import Data, quarter_to_years
from geogp.engines.base import Engine
from geogp.engines.check import check, engine_of
from geogp.engines.columns import numbered
from geogp.engines.plan import Plan
from geogp.errors import (
    FarAhead,
    ImpossibleCombination,
    InvalidInput,
    NotDistanceAware,
    NotMeasured,
    check_settings,
    seed_of,
)
from geogp.holdout import kinds_asked, rows_for_the_epoch
from geogp.linalg.precision import PRECISIONS
from geogp.methods import Method, method

#: Fourier scales are chosen where the fit sees so many times the rows of one trial; there are four, mostly.
TRIALS_WORTH = 25
#: Parameters that replace a choice of the row.
CHANGES = ("backbone", "expansion", "residual", "noise", "objective", "posterior", "spread")
#: Engines that have been asked about times far ahead or long before.
_WARNED: "weakref.WeakSet[Engine]" = weakref.WeakSet()
#: Quarters in which nobody measured and of which somebody was told.
_OF_QUARTERS: "weakref.WeakKeyDictionary[Engine, set[str]]" = weakref.WeakKeyDictionary()
_TOLD: set[tuple[str, str]] = set()


def plan_of(
    asked: Mapping[str, Any],
    n_inputs: int,
    has_counts: bool,
    n_rows: int,
    names: Sequence[str] | None = None,
    *,
    stored: str | None = None,
) -> Plan:
    """The plan of a fit to n_rows rows of n_inputs columns. Two columns, and those beside a time if they are two or one, are
    a position; so is the only column for a method that needs one.

    Parameters
    ----------
    asked : the parameters of `GPRegressor`, by name
    names : of the columns, by which `spatial` and `time` may call them
    stored : of a fit that was stored, which says of every position that it is one, but for two columns without a time: the
        row that stands in where there is none, "" where it does not say

    Raises
    ------
    ImpossibleCombination, InvalidInput
        choices that cannot go together; columns or scales that are none.
    """
    check_settings(asked)
    asked = numbered(asked, n_inputs, names)
    spatial = asked["spatial"]
    if spatial is None and n_inputs == 2 and asked["time"] is None:
        spatial = (0, 1)
    if spatial is None and stored is None and asked["time"] is not None and n_inputs in (2, 3):
        spatial = tuple(d for d in range(n_inputs) if d != asked["time"])
    if spatial is None and stored is None and asked["time"] is None and n_inputs == 1:
        spatial = (0,) if engine_of(row_of(asked)).needs_position else None
    named = method(asked["method"])
    instead = None if spatial is not None else stand_in(named, n_rows, stored)
    row = row_of(asked, instead=instead, placed=spatial is not None, stored=stored is not None)
    position = None if spatial is None else tuple(int(d) for d in spatial)
    return Plan(
        row=row,
        shape=Shape(n_inputs, position, asked["time"], has_counts),
        size=_size(asked, row, n_rows),
        schedule=_schedule(asked, row, stored=stored is not None),
        weights=_weights(asked),
        seed=int(asked["random_state"] or 0) if stored is not None else seed_of(asked["random_state"]),
        device=device_named(asked["device"]),
        options={**_own_settings(asked, row), **(asked["options"] or {})},
    )


def _own_settings(asked: Mapping[str, Any], row: Method) -> dict[str, Any]:
    """Settings that an engine takes as options of its own, where they were asked for.

    Raises
    ------
    ImpossibleCombination
        regions of what has none.
    """
    own = engine_of(row).own_settings(row)
    if asked["region_rows"] is not None and "region_rows" not in own:
        who = row.without_position or row.name
        raise ImpossibleCombination(
            f"region_rows cuts the places of a local field into regions, and method {who!r} has none; leave it out, or take "
            "residual 'local' and columns that are places."
        )
    return {name: asked[name] for name in own if asked[name] is not None}


def row_of(
    asked: Mapping[str, Any], *, instead: Method | None = None, placed: bool = True, stored: bool = False
) -> Method:
    """The row that is asked for, its choices replaced by those named beside it; or what stands in for it, which takes none.

    placed : columns have a position; else the residual is `residual_of_features` where none is named

    Raises
    ------
    ImpossibleCombination
    """
    row = method(asked["method"])
    changes = {name: asked[name] for name in CHANGES if asked[name] is not None}
    if instead is not None:
        return _instead(row, instead, {} if stored else changes)
    if not placed and row.residual_of_features:
        changes = {"residual": row.residual_of_features, **changes}
    row = replace(row, **changes)
    check(row, stored=stored)
    if "residual" in changes or "expansion" in changes:
        residual = RESIDUALS[row.residual]
        # A residual that completes a basis to its base kernel reverts where the row did; the others by themselves.
        own = row.reverts_to_prior if residual.needs_base_kernel else residual.reverts_to_prior
        row = replace(row, reverts_to_prior=own)
    return row


def _instead(row: Method, instead: Method, changes: Mapping[str, Any]) -> Method:
    """What stands in for a row, under the row's name; it has no choices of its own.

    Raises
    ------
    ImpossibleCombination
    """
    if changes:
        kind, value = next(iter(changes.items()))
        raise ImpossibleCombination(
            f"{kind} {value!r} cannot go with method {row.name!r} here: no two columns are named as a position, so that "
            f"{instead.name!r} takes its place as it is; name them with spatial=(i, j), or ask for "
            f"method={instead.name!r} and what goes with it."
        )
    nothing = dict.fromkeys(CHANGES)
    carried = row_of({"method": instead.name, **nothing}, placed=False)
    return replace(carried, name=row.name, without_position=instead.name)


def stand_in(row: Method, n_rows: int, stored: str | None = None) -> Method | None:
    """What carries n_rows rows of generic features, which have no neighbours in space, in place of a row that needs a
    position; None for any other row.

    stored : the one of a stored fit; those that do not say, "", had `without_position_once`

    Examples
    --------
    >>> [stand_in(method("geogp"), n).engine for n in (50, 50_000)]
    ['averaged', 'lowrank']
    """
    if not row.without_position:
        return None
    if stored is not None:
        return method(stored or row.without_position_once)
    instead = method(row.without_position)
    while instead.most_rows is not None and n_rows > instead.most_rows:
        instead = method(instead.beyond)
    return instead


def _size(asked: Mapping[str, Any], row: Method, n_rows: int) -> Size:
    size = Size()
    if asked["hidden"] is not None:
        size = replace(size, hidden=asked["hidden"])
    default = min(row.rank or size.rank, max(16, n_rows // row.rows_per_function))
    size = replace(size, rank=default if asked["rank"] is None else asked["rank"])
    scales: Sequence[float] | str | None = asked["fourier_scales"]
    if isinstance(scales, str):
        if scales != "auto":
            raise InvalidInput(f"fourier_scales must be numbers, 'auto' or None; got {scales!r}.")
    elif scales is not None:
        if not all(isinstance(scale, Real) and 0.0 < scale < math.inf for scale in scales):
            raise InvalidInput(f"fourier_scales must be positive numbers, 'auto' or None; got {scales!r}.")
        size = replace(size, fourier_scales=tuple(scales))
    return size


def _schedule(asked: Mapping[str, Any], row: Method, *, stored: bool) -> Schedule:
    own = engine_of(row).own_settings(row)
    if not stored and not {"steps", "epochs"} <= {*own} and None not in (asked["steps"], asked["epochs"]):
        raise InvalidInput(f"steps say instead of epochs how long {row.name} trains; give one of them.")
    if asked["precision"] not in PRECISIONS:
        raise InvalidInput(
            f"precision must be {' or '.join(map(repr, PRECISIONS))}; got {asked['precision']!r}."
        )
    schedule = Schedule(
        epochs=asked["epochs"],
        batch_size=asked["batch_size"],
        learning_rate=asked["learning_rate"],
        precision=asked["precision"],
    )
    steps = row.steps if asked["steps"] is None else asked["steps"]
    return schedule if steps is None else replace(schedule, steps=steps)


def _weights(asked: Mapping[str, Any]) -> Weights:
    trace = asked["trace_weight"]
    return Weights(
        trace=0.01 if trace is None else trace,
        kl=asked["kl_weight"],
        crps=asked["crps_weight"],
        trace_candidates=(0.01, 0.1, 1.0) if trace is None else (),
    )


def device_named(name: str) -> str:
    """The device that a name stands for on this machine: "auto" is "cuda" where there is one.

    Raises
    ------
    InvalidInput
        no such device, here or anywhere.

    Examples
    --------
    >>> device_named("cpu")
    'cpu'
    """
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if here else "cpu"
    kind, _, number = str(name).partition(":")
    if name != "cpu" and (kind != "cuda" or (number and not number.isdecimal()) or name == "cuda:"):
        raise InvalidInput(f"there is no device {name!r}; take auto, cpu, cuda, or one of several as cuda:1.")
    if kind == "cuda" and int(number or 0) >= here:
        raise InvalidInput(
            f"device {name!r} is not here: this machine, as torch {torch.__version__} sees it, has {here} with CUDA; take "
            "cpu or auto."
        )
    return name


def with_capacity(plan: Plan, data: Data, asked: Data | None) -> tuple[Plan, Capacity | None]:
    """A plan with the Fourier scales that rows held out of the training rows choose, and that choice.

    None where there is no choice to make: no scales, or a fit so short that trials would cost more.

    Parameters
    ----------
    asked : rows to be asked for: how they lie beside the training rows weighs the kinds of missing data
    """
    spatial, time = plan.shape.spatial, plan.shape.time
    seen = plan.schedule.n_epochs(len(data)) * len(data)
    worth = engine_of(plan.row).chooses_scales and seen >= TRIALS_WORTH * STEPS * BATCH
    if plan.row.encoder != "fourier" or spatial is None or not worth:
        return plan, None

    def where_and_when(rows: Data) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        X = rows.X.numpy()
        return X[:, list(spatial)], None if time is None else X[:, time]

    chosen = choose_capacity(
        data.X.numpy(),
        data.y.double().numpy(),
        None if data.counts is None else data.counts.double().numpy(),
        spatial=spatial,
        time=time,
        asked=None if asked is None else kinds_asked(*where_and_when(data), *where_and_when(asked)),
        seed=plan.seed,
    )
    if chosen is None:
        return plan, None
    return replace(plan, size=replace(plan.size, fourier_scales=chosen.fourier_scales)), chosen


def storable(asked: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Parameters as a run folder can hold them: without a predictor in memory, columns by their numbers.

    A column's name would need the frame again, and so would the columns that are a position beside a time.
    """
    options = asked["options"]
    kept = None if options is None else {k: v for k, v in options.items() if k != "predictor"}
    known = shape.spatial is not None and (shape.time is not None or shape.n_inputs == 1)
    told = asked["spatial"] is not None or known
    spatial = list(shape.spatial or ()) if told else None
    return {**asked, "options": kept, "spatial": spatial, "time": shape.time}


def rows_held_out(row: Method, n: int) -> int:
    """Rows to hold out of n for choosing the epoch; a local field holds out what it needs itself."""
    engine = engine_of(row)
    if engine.holds_out:
        return 0
    learns = engine.trains_network or (engine.route == "variational" and row.backbone != "identity")
    return rows_for_the_epoch(n, by_heart=learns)


def is_far_off(time: float, known: tuple[float, float]) -> bool:
    """Whether a time lies farther before or after the known (first, last) than these lie apart; a year, where they are nearer. Of one
    time alone nothing tells how values change, so that any other is far."""
    first, last = known
    return max(time - last, first - time) > (max(last - first, 1.0) if last > first else 0.0)


def _off_words(time: float, known: tuple[float, float]) -> tuple[str, str]:
    """What is said of a time outside the known (first, last), and which to take instead."""
    return ("comes so late", "an earlier") if time > known[1] else ("was so early", "a later")


def warn_not_measured(engine: Engine, quarter: str, measured: Sequence[str], how: str | None = None) -> None:
    """Warn, once for an engine and a quarter, that it is none of those that were learned (in their order).

    how : why not, in words; None where nobody measured in it
    """
    if quarter in (said := _OF_QUARTERS.setdefault(engine, set())):
        return
    said.add(quarter)
    first, last = measured[0], measured[-1]
    words = f"{how or f'nobody measured in {quarter}'}: what is said of it rests on {f'{first} to {last}' if first != last else first}"
    asked, known = quarter_to_years(quarter), (quarter_to_years(first), quarter_to_years(last))
    if is_far_off(asked, known):
        _WARNED.add(engine)  # this sentence says it, too
        late, other = _off_words(asked, known)
        words += f", which says nothing of what {late}; name {other} quarter"
    warnings.warn(f"{words}.", NotMeasured, stacklevel=3)


def warn_far_off(engine: Engine, asked: tuple[float, float], known: tuple[float, float]) -> None:
    """Warn, once for an engine, of times asked for, (oldest, newest), farther from the known (first, last) than these lie
    apart."""
    first, last = known
    far = [time for time in asked if is_far_off(time, known)]
    if not far or engine in _WARNED:
        return
    _WARNED.add(engine)
    reached = far[-1]  # the newest, where both are far
    gap, when = (
        (reached - last, "after the last") if reached > last else (first - reached, "before the first")
    )
    late, other = _off_words(reached, known)
    span = f"span {last - first:.1f} years" if last > first else f"are of {last:.2f} alone"
    warnings.warn(
        f"predictions reach {reached:.2f}, {gap:.1f} years {when} measurement, and the measurements {span}: they say nothing "
        f"of what {late}; take {other} time.",
        FarAhead,
        stacklevel=5,
    )


def warn_far(row: Method) -> None:
    """Warn, where `fit` was called and once for a row, that its latent sd far from data need not return to the prior's."""
    if row.reverts_to_prior or (row.name, row.residual) in _TOLD:
        return
    _TOLD.add((row.name, row.residual))
    asked, instead = method(row.name), ""
    if asked.engine != row.engine:
        instead = f" (here {row.without_position!r}: no two columns are named as a position, spatial=(i, j))"
    warnings.warn(
        f"method {row.name!r}{instead} with residual {row.residual!r}: the latent sd far from data need not return "
        "to the prior; judge a map there by its distance to data, or take residual 'local' or a method "
        "whose row says reverts_to_prior.",
        NotDistanceAware,
        stacklevel=3,
    )
