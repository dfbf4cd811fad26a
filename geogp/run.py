"""A fitted run: the model, where it came from, and what everybody asks of it."""

import html
import logging
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from odc.geo.geobox import GeoBox
from pyproj import CRS, Transformer
from pyproj.exceptions import CRSError, ProjError
from torch import Tensor

from geogp import storage
from geogp.blocks import Mapped
from geogp.data import quarter_to_years
from geogp.engines.asked import warn_not_measured
from geogp.errors import InvalidInput
from geogp.estimator import GPRegressor
from geogp.holdout import gaps
from geogp.prediction import predict as predict_map
from geogp.rasters import Covariates, covariates_at
from geogp.targets import Target, round_middle, target

log = logging.getLogger(__name__)
Array = NDArray[np.float64]

#: A quarter farther than this from all that was measured is a slip of the keyboard.
MOST_YEARS = 10.0
#: Farther than this from every training place, a place is far from data: in scores, on maps and in words.
FAR_M = 1000.0


class Support:
    """The training places, asked how far away the nearest one is.

    Parameters
    ----------
    positions_m : (n, 2) easting and northing in the run's CRS
    """

    def __init__(self, positions_m: Float[np.ndarray, "n 2"]):
        self.positions_m = positions_m

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

        return cKDTree(self.positions_m)

    def distances_m(self, xy: Float[np.ndarray, "N 2"], most: float = math.inf) -> Float[np.ndarray, " N"]:
        """Metres from places xy (N, 2) to the nearest training place: (N,), inf beyond `most` and for places that
        are not finite."""
        out = np.full(len(xy), math.inf)
        good = np.isfinite(xy).all(axis=1)
        if good.any():
            bound = np.nextafter(most, math.inf)
            out[good] = self._tree.query(
                xy[good], distance_upper_bound=bound, workers=torch.get_num_threads()
            )[0]
        return out

    @cached_property
    def gaps_m(self) -> Float[np.ndarray, " n"]:
        """(m,) from each training place to its nearest other one, see `geogp.holdout.gaps`."""
        return gaps(self.positions_m)

    @cached_property
    def usual_gap_m(self) -> float | None:
        """The distance within which nine in ten training places have another; None with fewer than two."""
        return float(np.quantile(self.gaps_m, 0.9)) if len(self.gaps_m) else None


@dataclass(frozen=True, eq=False)
class Run:
    """A fitted model and where it came from. Make one with `load`.

    path : the run folder; facts : the content of run.json
    model : the estimator, which answers on the score scale (log10 kbit/s of a speed); `predict` and `geogp.values_at`
        answer in `unit`
    covariates : of a model that learned by some: places (N, 2) in `crs` to their values (N, k), NaN where unknown

    Examples
    --------
    >>> facts = {"target": "download", "data": {"quarters": ["2023Q3", "2023Q4"]}}
    >>> run = Run(Path("run"), facts, GPRegressor())  # as `load("run/")` makes it of a folder
    >>> run.target.words, run.unit, run.quarters[-1]
    ('download speed', 'Mbit/s', '2023Q4')
    """

    path: Path
    facts: dict[str, Any]
    model: GPRegressor
    covariates: Covariates | None = None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, method={self.model.method!r}, target={self.facts.get('target')!r})"

    # -- what it is a run of -----------------------------------------------------------------------

    @cached_property
    def target(self) -> Target:
        """What is mapped."""
        return target(self.facts.get("target", "")).called(
            self.data.get("value_name"), self.data.get("value_better")
        )

    @property
    def data(self) -> dict[str, Any]:
        """What the run keeps of the table it was fitted to: source, region, boundary, quarters, hash."""
        return self.facts.get("data") or {}

    @property
    def unit(self) -> str:
        """Of the maps: "Mbit/s"; "1" for a pure number."""
        return self.target.unit_of(self.data.get("value_unit"))

    @property
    def boundary(self) -> dict[str, Any] | None:
        """The region's polygon (GeoJSON, degrees), or None."""
        return self.data.get("boundary")

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds of exceedance where none are named, in `unit`: of the target, or the median of its values, rounded."""
        if self.target.thresholds:
            return self.target.thresholds
        known = self.model.target_quartiles_
        # A few wild values carry a mean to where no map has anything to say; older runs know no other.
        return (float(f"{self.model.target_mean_:.2g}") if known is None else round_middle(known),)

    # -- when --------------------------------------------------------------------------------------

    @property
    def has_time(self) -> bool:
        """Whether the model knows time, so that a map is one of a quarter."""
        return self.model.has_time

    @property
    def quarters(self) -> tuple[str, ...]:
        """The quarters of the rows it was fitted to, in order; empty where rows have none."""
        listed = self.data.get("quarters") or [self.data.get("last_quarter")]
        return tuple(sorted(q for q in listed if isinstance(q, str)))

    @property
    def learned(self) -> tuple[str, ...]:
        """The quarters of which it has learned rows; all of `quarters` where it does not record which."""
        known = (self.facts.get("rows") or {}).get("known") or {}
        return tuple(q for q in self.quarters if q in known) or self.quarters

    def quarter(self, named: str | None = None) -> str | None:
        """The quarter of a map: the one named, else the last one; None where there is none.

        Raises
        ------
        InvalidInput
            a malformed quarter, or none at all where the model knows time.

        Warns
        -----
        NotMeasured
            once for a model and a quarter in which nobody measured, or of which all rows were held out.
        """
        chosen = named or (self.quarters[-1] if self.quarters else None)
        if chosen is not None:
            year = quarter_to_years(chosen)
            known = [quarter_to_years(q) for q in self.quarters]
            if known and not known[0] - MOST_YEARS <= year <= known[-1] + MOST_YEARS:
                raise InvalidInput(
                    f"{chosen} lies more than {MOST_YEARS:g} years from the run's quarters, {self.quarters[0]} to "
                    f"{self.quarters[-1]}, which say nothing of it; name one nearer to them."
                )
            # A run that names no more than its last quarter does not say which others were measured.
            if self.data.get("quarters") and chosen not in (learned := self.learned):
                how = f"all rows of {chosen} were held out" if chosen in self.quarters else None
                warn_not_measured(self.model.engine_, chosen, learned, how)
        elif self.has_time:
            raise InvalidInput("this run knows time; name the quarter to map, e.g. quarter='2023Q4'.")
        return chosen

    # -- where -------------------------------------------------------------------------------------

    @cached_property
    def crs(self) -> CRS:
        """In whose metres the model works.

        Raises
        ------
        InvalidInput
            the run records none.
        """
        if not self.data.get("crs"):
            raise InvalidInput(
                f"{self.path} does not record a CRS, so it cannot be put on a map; fit it with `geogp fit`."
            )
        try:
            crs = CRS.from_user_input(self.data["crs"])
            Transformer.from_crs(crs, 4326, always_xy=True)
        except (CRSError, ProjError, TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"{self.path} records a CRS that cannot be read ({_line(error)}); fit it again."
            ) from error
        return crs

    @cached_property
    def _transformers(self) -> tuple[Transformer, Transformer]:
        """To degrees, and from them."""
        return (
            Transformer.from_crs(self.crs, 4326, always_xy=True),
            Transformer.from_crs(4326, self.crs, always_xy=True),
        )

    def to_degrees(self, xy: ArrayLike) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """Longitude (N,) and latitude (N,) of places (N, 2) in `crs`."""
        x, y = np.asarray(xy, dtype=np.float64).reshape(-1, 2).T
        lon, lat = self._transformers[0].transform(x, y)
        return np.asarray(lon), np.asarray(lat)

    def from_degrees(self, lon: ArrayLike, lat: ArrayLike) -> Float[np.ndarray, "N 2"]:
        """Places (N, 2) in `crs` of longitudes and latitudes (N,), or of one; infinite where there is none."""
        u, v = (np.atleast_1d(np.asarray(w, dtype=np.float64)) for w in (lon, lat))
        return np.stack(self._transformers[1].transform(u, v), axis=-1)

    @property
    def has_support(self) -> bool:
        """Whether it records the training places."""
        return (self.path / "support.safetensors").is_file()

    @cached_property
    def support(self) -> Support:
        """The training places.

        Raises
        ------
        InvalidInput
            the run does not record them.
        """
        if not self.has_support:
            raise InvalidInput(f"{self.path} does not record the training places; fit it with `geogp fit`.")
        return Support(self.tensors("support")["positions_m"].numpy())

    def inputs(
        self, xy: ArrayLike, quarter: str | None = None, *, gaps: bool = False
    ) -> Float[np.ndarray, "N D"]:
        """What the model takes at places xy (N, 2) in `crs`, in a quarter (default the last): (N, D).

        Raises
        ------
        InvalidInput
            as `quarter`; a model that takes something else; covariates unknown, without `gaps` at any place.
        """
        names = [str(name) for name in self.facts.get("covariates") or ()]
        if (takes := self.model.n_features_in_) != (given := 2 + self.has_time + len(names)):
            raise InvalidInput(f"{self.path} has a model of {takes} columns and says {given}; fit it again.")
        places = np.asarray(xy, dtype=np.float64).reshape(-1, 2)
        when = self.quarter(quarter)
        time = [np.full(len(places), quarter_to_years(when))] if self.has_time and when else []
        known = covariates_at(self.covariates, names, places, str(self.path), gaps=gaps)
        return np.column_stack([places, *time, known])

    # -- further -----------------------------------------------------------------------------------

    def tensors(self, name: str) -> dict[str, Tensor]:
        """A further file of tensors beside the weights, e.g. "support".

        Raises
        ------
        InvalidInput
            the file is not there, or the folder holds another run by now.
        """
        file = self.path / f"{name}.safetensors"
        told = (self.facts.get("files") or {}).get(f"{name}.safetensors")
        if told is not None and file.is_file() and storage.sha256(file) != told:
            raise InvalidInput(f"{self.path} holds another run than when it was opened; open it again.")
        return storage.read_tensors(file)

    @property
    def weights_sha256(self) -> str | None:
        """SHA-256 of the weights: what scores and maps carry, to say which model they are of."""
        return (self.facts.get("files") or {}).get(storage.WEIGHTS)

    @property
    def id(self) -> str:
        """The first eight digits of `weights_sha256`, by which logs name the run; "" of one in memory."""
        return (self.weights_sha256 or "")[:8]

    @property
    def scores(self) -> dict[str, Any] | None:
        """What `geogp evaluate` stored, if it was of these weights."""
        found = self.facts.get("scores")
        if not found or found.get("weights_sha256") not in (None, self.weights_sha256):
            return None
        return found

    def document(self, name: str) -> dict[str, Any] | None:
        """A JSON document beside the weights, such as "certificate.json"; None where there is none."""
        return storage.read_document(self.path, name)

    def predict(self, geobox: GeoBox, **options: Any) -> xr.Dataset:
        """`geogp.predict` of this run, with its options."""
        return predict_map(self, geobox, **options)

    def _repr_html_(self) -> str:
        """What a notebook shows: the facts that matter in a small table."""
        counted, quarters = self.facts.get("rows") or {}, self.quarters
        named = (self.target.words, self.target.unit_words(self.unit)) if "target" in self.facts else ()
        facts = {
            "method": self.model.method,
            "target": ", ".join(filter(None, named)),
            "where": self.data.get("region") or "",
            "quarters": " to ".join(dict.fromkeys((quarters[0], quarters[-1]))) if quarters else "",
            "rows fitted": f"{counted['fitted']:,}" if "fitted" in counted else "",
            "crs": self.data.get("crs") and self.crs.name,
        }
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(k)}</th>"
            f"<td style='text-align:left'>{html.escape(str(v))}</td></tr>"
            for k, v in facts.items()
            if v
        )
        return f"<table><caption>geogp.Run {html.escape(str(self.path))}</caption>{rows}</table>"


def load(path: str | Path, *, device: str = "cpu", predictor: Any = None) -> Run:
    """The run in a folder, its hashes checked.

    Parameters
    ----------
    predictor : of a fixed-mean GP that was fitted around a model in memory: the same again

    Raises
    ------
    InvalidInput
        no finished run there, a file missing or altered, or a newer schema.

    Examples
    --------
    >>> load("no-such-run")
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: no-such-run is not a run folder; `geogp fit ... -o no-such-run` makes one.
    """
    path = Path(path)
    tensors, facts = storage.read_folder(path)
    _check_facts(path, facts)
    try:
        model = GPRegressor.from_state(tensors, facts["model"], device=device)
        given = facts["model"]["parameters"]
        free = set(range(model.n_features_in_)) - set(given.get("spatial") or ())
        if model.has_time and int(given["time"]) not in free:
            raise InvalidInput(f"{path} cannot be read as a run (it has no column of time); fit it again.")
    except InvalidInput:
        raise
    except Exception as error:  # whatever a state of another making meets: one sentence, the cause behind it
        raise InvalidInput(
            f"{path} cannot be read as a run ({type(error).__name__}: {_line(error)}); fit it again."
        ) from error
    if predictor is not None:
        model.attach(predictor)
    run = Run(path, facts, model)
    log.info("opened a run of method %s", model.method, extra={"work": f"run {run.id}"})
    return run


def save(
    path: str | Path,
    model: GPRegressor,
    facts: dict[str, Any] | None = None,
    *,
    extra: dict[str, dict[str, Tensor]] | None = None,
    overwrite: bool = False,
    folder: Path | None = None,
) -> Run:
    """Write a run folder and return it loaded: `save("run", model)` keeps a fitted estimator.

    Parameters
    ----------
    facts : JSON-able: arguments, target, data manifest, ... ; stored in run.json beside the model's own. Default: what an
        estimator in memory knows of itself
    extra : further tensors by file name without suffix, e.g. {"statistics/2023Q4": {...}}
    folder : where it is built, beside `path`; default `geogp.storage.partial_folder(path)`

    Raises
    ------
    InvalidInput
        if `path` exists and overwrite is False.
    """
    path = Path(path)
    tensors, own = model.state()
    storage.write_folder(
        path,
        {"weights": tensors, **(extra or {})},
        {**(_facts_of(model) if facts is None else facts), "model": own},
        overwrite=overwrite,
        folder=folder,
    )
    return load(path)


#: What facts are, where they are there: (name, kind).
_KINDS: tuple[tuple[str, type], ...] = (
    ("target", str), ("method", str), ("data", dict), ("rows", dict), ("scores", dict), ("files", dict),
    ("covariates", list), ("covariate_rasters", dict),
)  # fmt: skip
_DATA_KINDS: tuple[tuple[str, type], ...] = (
    ("quarters", list), ("last_quarter", str), ("boundary", dict), ("value_unit", str), ("value_name", str),
    ("value_better", str), ("credit", str), ("source", str), ("region", str), ("sources", list), ("sha256", str),
)  # fmt: skip


def _facts_of(model: GPRegressor, crs: str | None = None) -> dict[str, Any]:
    """What run.json says of an estimator that came without a table; its CRS, or else this one."""
    return {"method": model.method, "target": "value", "data": {"crs": model.crs_ or crs}}


def _check_facts(path: Path, facts: dict[str, Any]) -> None:
    """Refuse a run.json without a model, or with something else in place of what everybody asks of it."""
    if not isinstance(facts.get("model"), dict):
        raise InvalidInput(f"{path} cannot be read as a run (its run.json has no model); fit it again.")
    for where, kinds in ((facts, _KINDS), (facts.get("data"), _DATA_KINDS)):
        for name, kind in kinds:
            if isinstance(where, dict) and where.get(name) is not None and not isinstance(where[name], kind):
                raise InvalidInput(
                    f"{path} cannot be read as a run (its {name} is {_line(where[name])!r}); fit it again."
                )
    for quarter in (facts.get("data") or {}).get("quarters") or ():
        quarter_to_years(str(quarter))
    model, engine = facts["model"], facts["model"].get("engine")
    told = [(model, n) for n in ("target_mean", "target_sd", "typical_count", "reference_count")]
    told += [(engine, "degrees_of_freedom")] if isinstance(engine, dict) else []
    for where, name in told:
        value = where.get(name)
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        absent = value is None and not name.startswith("target")
        if not absent and not (good and (value > 0 or name == "target_mean")):
            raise InvalidInput(
                f"{path} cannot be read as a run (its {name} is {_line(value)!r}); fit it again."
            )


def _line(error: Any) -> str:
    """The first line of an error or a value, short."""
    return str(error).split("\n")[0][:120]


def predict(run: str | Path | Mapped | GPRegressor, geobox: GeoBox, **options: Any) -> xr.Dataset:
    """A Dataset of every map variable on a grid, computed as it is read: see `geogp.prediction.predict`.

    Parameters
    ----------
    run : from `geogp.load`, its folder, or a fitted estimator whose first two columns are coordinates (in the CRS of the
        points it was fitted to, else in that of the grid), its third (if any) time in years; its target is mapped as it is
    geobox : grid in any CRS
    options : quarter, tests, level, thresholds, where, max_distance_m, cache

    Raises
    ------
    InvalidInput
        as `geogp.prediction.predict`; an estimator with further columns, whose values no grid has.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10_000, (200, 2)); y = np.sin(X[:, 0] / 3000) + 0.1 * rng.standard_normal(200)
    >>> model = GPRegressor("local-gp", options={"steps": 20}).fit(X, y)
    >>> predict(model, GeoBox.from_bbox((0, 0, 10_000, 10_000), crs="EPSG:32604", resolution=1000))["median"].shape
    (10, 10)
    """
    if isinstance(run, GPRegressor):
        run = _run_of(run, geobox)
    return predict_map(load(run) if isinstance(run, str | Path) else run, geobox, **options)


def _run_of(model: GPRegressor, geobox: GeoBox) -> Run:
    """A run of an estimator in memory, its plane that of a grid."""
    shape = model.engine_.plan.shape
    places = shape.spatial or (0, 1)
    asked = [*places, *([] if shape.time is None else [shape.time])]
    if len(places) != 2 or asked != [*range(model.n_features_in_)]:
        raise InvalidInput(
            f"the estimator has {model.n_features_in_} columns, and a grid has only easting and northing (and a quarter's "
            "time as third); call its predict with all columns of the pixels."
        )
    crs = None if geobox.crs is None else CRS.from_user_input(str(geobox.crs)).to_wkt()
    return Run(Path("(in memory)"), _facts_of(model, crs), model)


def opened(run: "str | Path | Run") -> Run:
    """A run, given as itself or as its folder."""
    return run if isinstance(run, Run) else load(run)


__all__ = ["FAR_M", "Run", "Support", "load", "opened", "predict", "quarter_to_years", "save"]
