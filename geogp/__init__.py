"""GeoGP's core: scalable spatial Gaussian processes, stationary or not. Torch in, xarray out.

    model = geogp.GPRegressor().fit(X, y, counts=tests)
    mean, sd = model.predict(X_new, return_std=True)

Names are imported on first use, so that `import geogp` alone stays light.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# OpenMP's threads wait for a few microseconds actively, then asleep: two that wait actively for longer slow each other manyfold on
# a busy machine, and to wake one for each of many small operations takes longer than these. Read when torch loads; too late
# where torch was first: `geogp.linalg.threads.patient` minds it.
_THREADS_WAIT_ACTIVELY = "torch" in sys.modules and os.environ.get("OMP_WAIT_POLICY") != "PASSIVE"
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_WHERE = {
    "GPRegressor": "geogp.estimator",
    "METHODS": "geogp.methods",
    "method": "geogp.methods",
    "TARGETS": "geogp.targets",
    "InvalidInput": "geogp.errors",
    "ImpossibleCombination": "geogp.errors",
    "NumericalFailure": "geogp.errors",
    "load": "geogp.run",
    "Run": "geogp.run",
    "save": "geogp.run",
    "predict": "geogp.run",
    "values_at": "geogp.prediction",
    "kernel_slice": "geogp.slices",
    "deterministic": "geogp.linalg.threads",
    "area_moments": "geogp.areas",
    "change_map": "geogp.areas",
    "suggest_places": "geogp.suggest",
    "summarise": "geogp.update",
    "refresh": "geogp.update",
    "recondition": "geogp.update",
    "fit_streamed": "geogp.update",
    "row_groups": "geogp.update",
    "summarise_streamed": "geogp.update",
}

if TYPE_CHECKING:
    from geogp.areas import area_moments, change_map
    from geogp.errors import ImpossibleCombination, InvalidInput, NumericalFailure
    from geogp.estimator import GPRegressor
    from geogp.linalg.threads import deterministic
    from geogp.methods import METHODS, method
    from geogp.prediction import values_at
    from geogp.run import Run, load, predict, save
    from geogp.slices import kernel_slice
    from geogp.suggest import suggest_places
    from geogp.targets import TARGETS
    from geogp.update import fit_streamed, recondition, refresh, row_groups, summarise, summarise_streamed


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'geogp' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})


__all__ = [
    "METHODS", "TARGETS", "GPRegressor", "ImpossibleCombination", "InvalidInput", "NumericalFailure", "Run",
    "area_moments", "change_map", "deterministic", "fit_streamed", "kernel_slice", "load", "method", "predict",
    "recondition", "refresh", "row_groups", "save", "suggest_places", "summarise", "summarise_streamed", "values_at",
]  # fmt: skip
