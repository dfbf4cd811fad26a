"""What changed at a place between two moments, from the joint posterior of both; and what differs between two runs.

The surface at one place in two quarters is one Gaussian pair: what neighbours, drift and level say of both is the same
doubt, so that a difference is known better than two maps side by side suggest (or worse, far ahead of the data).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from odc.geo.geobox import GeoBox
from pyproj import Transformer
from scipy.special import ndtri

from geogp.blocks import Blocks, LazyPlane, Mapped, Plane, Where, grid_coordinates, moments_of
from geogp.errors import InvalidInput, check_level, check_metres
from geogp.estimator import GPRegressor
from geogp.transforms import Transform

Array = NDArray[np.float64]

#: Fibonacci lattice for two Gaussian variables, and rows of it at once: distribution functions to about .005.
NODES, GENERATOR, ROWS = 1597, 987, 1024


@dataclass(frozen=True, eq=False)
class Pairs:
    """The surface at N places at two moments, Gaussian on the working scale u; y = transform.inverse(u).

    mean, sd : (2, N) before and after; correlation : (N,)
    second : transform of what comes after, where it is of another model
    """

    mean: Float[np.ndarray, "2 N"]
    sd: Float[np.ndarray, "2 N"]
    correlation: Float[np.ndarray, " N"]
    transform: Transform
    second: Transform | None = None

    def differences(
        self,
        function: Callable[[Array], Array],
        level: float,
        at_least: Sequence[float] = (),
        *,
        sign: float = 1.0,
    ) -> Float[np.ndarray, "K N"]:
        """median, lower, upper of function(y after) - function(y before), and for each of `at_least` the probability
        that sign times this difference is at least so much: (3 + len(at_least), N).

        Notes
        -----
        By a lattice of 1,597 nodes; probabilities and levels are off by some thousandths. O(1597 N).
        """
        i = np.arange(NODES)
        z = ndtri((i + 0.5) / NODES), ndtri(((i * GENERATOR) % NODES + 0.5) / NODES)
        out = np.empty((3 + len(at_least), self.mean.shape[1]))
        tails = (0.5, 0.5 * (1 - level), 0.5 * (1 + level))
        for start in range(0, self.mean.shape[1], ROWS):
            part = slice(start, start + ROWS)
            r = self.correlation[part, None]
            second = r * z[0] + np.sqrt(np.maximum(1.0 - r**2, 0.0)) * z[1]
            before = self.mean[0, part, None] + self.sd[0, part, None] * z[0]
            after = self.mean[1, part, None] + self.sd[1, part, None] * second
            d = function((self.second or self.transform).inverse(after)) - function(
                self.transform.inverse(before)
            )
            out[:3, part] = np.quantile(d, tails, axis=1)
            for k, x in enumerate(at_least):
                out[3 + k, part] = (sign * d >= x).mean(axis=1)
        return out


def pairs_at(
    model: GPRegressor,
    before: ArrayLike,
    after: ArrayLike,
    *,
    counts: float | None = None,
) -> Pairs:
    """The joint posterior of the surface at inputs `before` and `after` (N, D), pair by pair.

    Parameters
    ----------
    counts : measurements behind the averages whose level the surface is; default `reference_count_`

    Raises
    ------
    InvalidInput
        inputs of different shapes.

    Notes
    -----
    Two predictions, and for a local field at the same places about one more; else the joint posterior of 128 pairs at a
    time (`geogp.engines.joint`). Memory does not grow with N beyond the result.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.uniform(0, 9, (200, 2)), rng.integers(0, 4, 200)])
    >>> y = X[:, 0] + X[:, 2] + 0.1 * rng.standard_normal(200)
    >>> model = GPRegressor("local-gp", spatial=(0, 1), time=2, options={"steps": 20}).fit(X, y)
    >>> pairs = pairs_at(model, np.array([[4.0, 4.0, 0.0]]), np.array([[4.0, 4.0, 3.0]]))
    >>> median, lower, upper, p = pairs.differences(lambda y: y, 0.95, [0.0])[:, 0]
    >>> bool(lower < 3 < upper and p > 0.99)
    True
    """
    before, after = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if before.shape != after.shape:
        raise InvalidInput(f"before and after must have one shape; got {before.shape} and {after.shape}.")
    named = model.reference_count_ if counts is None else counts
    moments = [moments_of(model, X, named) for X in (before, after)]
    laws = [model.distribution(m, latent=True) for m in moments]
    correlation = model.engine_.correlation(
        torch.as_tensor(before), torch.as_tensor(after), torch.stack([m.latent_variance for m in moments])
    )
    mean, sd = np.stack([law.location for law in laws]), np.stack([law.scale for law in laws])
    return Pairs(mean, sd, correlation, model.transform_)


def change_map(
    run: Mapped,
    geobox: GeoBox,
    start: str,
    end: str,
    *,
    level: float = 0.95,
    at_least: Sequence[float] = (0.0,),
    where: Where | None = None,
    max_distance_m: float | None = None,
) -> xr.Dataset:
    """What changed between two quarters on a grid, computed as it is read.

    Parameters
    ----------
    run : from `geogp.load`
    geobox : grid in any CRS
    start, end : quarters such as "2019Q4"
    level : of the credible interval of the difference
    at_least : x of P(improved by at least x), in the target's unit: risen, or fallen where lower is better
    where, max_distance_m : as for `geogp.predict`

    Returns
    -------
    Dataset with dims (y, x): `change` (median), `change_lower`, `change_upper` of the surface's difference, end less
    start, in the target's unit; `improved` (dim `threshold`)

    Raises
    ------
    InvalidInput
        a run without time, one quarter twice, a malformed quarter, level or `at_least`.

    Notes
    -----
    A pixel costs about three predictions at each quarter.
    """
    check_times(run, start, end)
    check_level(level)
    check_metres(max_distance_m, "max_distance_m")
    chosen = tuple(float(v) for v in at_least)
    if not chosen or not np.isfinite(chosen).all():
        raise InvalidInput(
            f"at_least takes numbers in the target's unit, such as 0 or 10; got {list(at_least)}."
        )
    column = run.model.engine_.plan.shape.time
    assert column is not None  # `check_times` has refused it
    time = run.inputs(np.zeros((1, 2)), end, gaps=True)[0, column]
    sign = 1.0 if run.target.lowest_first else -1.0

    def planes(X: Array) -> Plane:
        later = X.copy()
        later[:, column] = time
        found = pairs_at(run.model, X, later).differences(run.target.from_score, level, chosen, sign=sign)
        return found.astype(np.float32)

    words = f"of the surface's change from {start} to {end}"
    more = f"probability that the surface has {run.target.improved} by at least so much, {start} to {end}"
    out = _dataset(run, geobox, planes, start, chosen, words, more, level, where, max_distance_m)
    return out.assign_attrs(
        title=f"Change of {run.target.words} from {start} to {end}", quarter=f"{start} to {end}"
    )


def difference_map(
    run: Mapped,
    other: Mapped,
    geobox: GeoBox,
    *,
    correlation: float,
    names: tuple[str, str],
    quarter: str | None = None,
    level: float = 0.95,
    at_least: Sequence[float] = (0.0,),
    where: Where | None = None,
    max_distance_m: float | None = None,
) -> xr.Dataset:
    """What differs between two runs of one target on a grid, the other less the first: as `change_map` of two quarters.

    Parameters
    ----------
    correlation : of the two surfaces' errors at a place, see `geogp.areas.cross_correlation`
    names : what the runs are of, such as ("fixed", "mobile")
    quarter : of both; default the first run's last

    Raises
    ------
    InvalidInput
        runs of two targets, or as `change_map`.

    Notes
    -----
    A pixel costs a prediction of each run.
    """
    check_one_target(run, other)
    check_level(level)
    check_metres(max_distance_m, "max_distance_m")
    chosen = tuple(float(v) for v in at_least)
    sign = 1.0 if run.target.lowest_first else -1.0
    when = run.quarter(quarter)

    def planes(X: Array) -> Plane:
        inputs = X, other.inputs(carried(run, other, X[:, :2]), when)
        laws = [
            r.model.distribution(moments_of(r.model, P, r.model.reference_count_), latent=True)
            for r, P in zip((run, other), inputs)
        ]
        pairs = Pairs(
            np.stack([law.location for law in laws]),
            np.stack([law.scale for law in laws]),
            np.full(len(X), correlation),
            laws[0].transform,
            laws[1].transform,
        )
        return pairs.differences(run.target.from_score, level, chosen, sign=sign).astype(np.float32)

    words = f"of what the surface of {names[1]} has more than that of {names[0]}"
    than = "better" if run.target.better else "higher"
    more = f"probability that {names[1]} is {than} than {names[0]} by at least so much"
    out = _dataset(run, geobox, planes, when, chosen, words, more, level, where, max_distance_m)
    title = f"{run.target.heading}: {names[1]} less {names[0]}"
    return out.assign_attrs(title=title, quarter=when or "", other_method=other.model.method)


def check_one_target(run: Mapped, other: Mapped) -> None:
    """Refuse a difference of two targets.

    Raises
    ------
    InvalidInput
    """
    if (run.target.name, run.unit) != (other.target.name, other.unit):
        raise InvalidInput(
            f"a difference is of one target; the runs are of {run.target.name} and {other.target.name}."
        )


def carried(run: Mapped, other: Mapped, xy: Array) -> Array:
    """Places (n, 2) in the plane of a run as the plane of another has them."""
    if run.crs == other.crs:
        return xy
    to_other = Transformer.from_crs(run.crs, other.crs, always_xy=True)
    return np.stack(to_other.transform(xy[:, 0], xy[:, 1]), axis=1)


def _dataset(
    run: Mapped,
    geobox: GeoBox,
    planes: Callable[[Array], Plane],
    quarter: str | None,
    chosen: tuple[float, ...],
    words: str,
    more: str,
    level: float,
    where: Where | None,
    max_distance_m: float | None,
) -> xr.Dataset:
    """The lazy Dataset of planes median, lower, upper and one for each of `chosen`."""
    blocks = Blocks(
        run, geobox, planes, 3 + len(chosen), quarter=quarter, where=where, max_distance_m=max_distance_m
    )

    def plane(i: int) -> Callable[[Plane, float | None], Plane]:
        return lambda values, _: values[i]

    named = {
        "change": f"median {words}",
        "change_lower": f"lower end of the credible interval {words}",
        "change_upper": f"upper end of the credible interval {words}",
    }
    variables = {
        name: LazyPlane(blocks, plane(i)).variable(
            ("y", "x"), {"units": run.unit, "long_name": f"{run.target.words}: {said}"}
        )
        for i, (name, said) in enumerate(named.items())
    }
    for name in ("change_lower", "change_upper"):
        variables[name].attrs["level"] = level
    variables["improved"] = LazyPlane(
        blocks, lambda values, x: values[3 + chosen.index(float(x or 0.0))], chosen
    ).variable(
        ("threshold", "y", "x"),
        {"units": "1", "long_name": f"{run.target.words}: {more}"},
    )
    coords = grid_coordinates(geobox)
    coords["threshold"] = xr.DataArray(
        np.asarray(chosen),
        dims="threshold",
        attrs={"units": run.unit, "long_name": f"{run.target.words} {run.target.improved} by at least"},
    )
    out = xr.Dataset(variables, coords=coords)
    reference = run.model.reference_count_
    out.attrs = {
        "Conventions": "CF-1.8",
        "institution": "made with GeoGP",
        "source": f"GeoGP method {run.model.method}",
        "method": run.model.method,
        **run.target.attributes(run.unit),
        **({} if reference is None else {"reference_count": reference}),
        "level": level,
    }
    return out


def check_times(run: Mapped, start: str, end: str) -> None:
    """Refuse two quarters between which there is no change to speak of.

    Raises
    ------
    InvalidInput
    """
    if not run.model.has_time:
        raise InvalidInput(
            "this run knows no time, so nothing changes in it; fit a table with several quarters."
        )
    if run.quarter(start) == run.quarter(end):
        raise InvalidInput(f"a change is between two quarters; got {start} twice.")
