"""What a map is a map of: quarter, tests behind a new average, level, threshold; checked at the edge, once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from app.errors import InvalidInput

LEVELS = (0.5, 0.8, 0.95)
PRESETS: dict[str, tuple[float, ...]] = {
    "download": (25.0, 100.0),
    "upload": (3.0, 20.0),
    "latency": (50.0, 100.0),
    "tests": (5.0, 20.0),
}
MOST = 1e9  # of a threshold or a number of tests


@dataclass(frozen=True)
class View:
    """One setting of the maps; `quarter` is None for a run without time, `tests` for one without counts."""

    quarter: str | None
    tests: float | None
    level: float
    threshold: float

    @property
    def params(self) -> dict[str, str]:
        """As in the address: the same names that `read` takes."""
        out = {"level": f"{100 * self.level:g}", "t": f"{self.threshold:.10g}"}
        if self.quarter is not None:
            out["q"] = self.quarter
        if self.tests is not None:
            out["n"] = f"{self.tests:.10g}"
        return out


@dataclass(frozen=True)
class Choices:
    """What a run lets one choose, and what is chosen when nothing is said."""

    quarters: tuple[str, ...]
    tests: float | None
    threshold: float
    positive: bool  # thresholds must be above 0: the target is modelled as a logarithm

    @property
    def default(self) -> View:
        return View(self.quarters[-1] if self.quarters else None, self.tests, 0.95, self.threshold)

    def read(self, params: Mapping[str, str]) -> View:
        """The view that an address asks for; what is not given is the default.

        Raises
        ------
        InvalidInput
            naming the value that this run cannot show and what it can.
        """
        quarter, tests = self.default.quarter, self.tests
        if params.get("q") and self.quarters:
            quarter = params["q"]
            if quarter not in self.quarters:
                span = f"{self.quarters[0]} to {self.quarters[-1]}"
                raise InvalidInput(f"There is no quarter {quarter[:20]!r} in this run; choose from {span}.")
        if params.get("n") and self.tests is not None:
            tests = _number(params["n"], "The number of tests", low=1.0)
        level = 0.95
        if params.get("level"):
            level = _number(params["level"], "The level", low=0.0) / 100.0
            near = [known for known in LEVELS if abs(known - level) < 1e-9]
            if not near:
                raise InvalidInput(f"The level must be 50, 80 or 95 percent; got {params['level'][:20]!r}.")
            level = near[0]
        threshold = self.threshold
        if params.get("t"):
            threshold = _number(params["t"], "The threshold", low=None)
            if self.positive and threshold <= 0:
                raise InvalidInput(f"The threshold must be above 0; got {params['t'][:20]!r}.")
        return View(quarter, tests, level, threshold)

    def lenient(self, params: Mapping[str, str]) -> View:
        """Like `read`, but what this run cannot show falls back to the default: for an address that was mailed."""
        kept: dict[str, str] = {}
        for name in ("q", "n", "level", "t"):
            try:
                self.read({name: params.get(name, "")})
            except InvalidInput:
                continue
            kept[name] = params.get(name, "")
        return self.read(kept)


def _number(text: str, what: str, low: float | None) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > MOST or (low is not None and value < low):
        bound = "" if low is None else f" of at least {low:g}"
        raise InvalidInput(f"{what} must be a number{bound}; got {text[:20]!r}.")
    return value


def place(params: Mapping[str, str]) -> tuple[float, float]:
    """(latitude, longitude) in degrees of an address; longitude is brought into [-180, 180).

    Raises
    ------
    InvalidInput
        not two finite numbers, or a latitude outside [-90, 90], or a longitude outside [-360, 360].
    """
    values = []
    for name, bound in (("lat", 90.0), ("lon", 360.0)):
        try:
            value = float(params.get(name, ""))
        except ValueError:
            value = math.nan
        if not abs(value) <= bound:
            raise InvalidInput(
                f"{name} must be a number of degrees from {-bound:g} to {bound:g}; got {params.get(name, '')[:20]!r}."
            )
        values.append(value)
    return values[0], (values[1] + 180.0) % 360.0 - 180.0
