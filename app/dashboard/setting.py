"""What a map is a map of: quarter, tests behind a new average, level, threshold; checked at the edge, once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from geogp.errors import InvalidInput, check_count, check_threshold
from geogp.run import Run, quarter_to_years
from geogp.scores import LEVELS
from maps.page_data import LEAST, MOST

#: West, south, east, north in degrees.
Box = tuple[float, float, float, float]
#: Of an address and of every field: more tests than anybody has made in a tile.
MOST_TESTS = 100_000


@dataclass(frozen=True)
class Setting:
    """One setting of the maps; `quarter` is None for a run without time, `tests` for one without counts."""

    quarter: str | None
    tests: float | None
    level: float
    threshold: float

    @property
    def params(self) -> dict[str, str]:
        """As in the address: the same names that `Choices.read` takes.

        Examples
        --------
        >>> Setting("2023Q4", 6.0, 0.95, 100.0).params
        {'level': '95', 't': '100', 'q': '2023Q4', 'n': '6'}
        """
        out = {"level": f"{100 * self.level:g}", "t": f"{self.threshold:.10g}"}
        if self.quarter is not None:
            out["q"] = self.quarter
        if self.tests is not None:
            out["n"] = f"{self.tests:.10g}"
        return out


@dataclass(frozen=True)
class Choices:
    """What a run lets one choose, and what is chosen when nothing is said.

    Examples
    --------
    >>> Choices(("2023Q3", "2023Q4"), None, 25.0, positive=True).read({"q": "2023Q3", "level": "80"})
    Setting(quarter='2023Q3', tests=None, level=0.8, threshold=25.0)
    """

    quarters: tuple[str, ...]
    tests: float | None
    threshold: float
    positive: bool  # thresholds must be above 0: the target is modelled as a logarithm

    @property
    def default(self) -> Setting:
        return Setting(self.quarters[-1] if self.quarters else None, self.tests, 0.95, self.threshold)

    def quarter(self, params: Mapping[str, str]) -> str | None:
        """The quarter that an address asks for, or the last.

        Raises
        ------
        InvalidInput
            naming it and what there is.
        """
        if params.get("q") and self.quarters:
            quarter = params["q"]
            if quarter not in self.quarters:
                span = f"{self.quarters[0]} to {self.quarters[-1]}"
                raise InvalidInput(f"There is no quarter {quarter[:20]!r} in this run; choose from {span}.")
            return quarter
        return self.default.quarter

    def read(self, params: Mapping[str, str]) -> Setting:
        """The setting that an address asks for; what is not given is the default.

        Raises
        ------
        InvalidInput
            naming the value that this run cannot show and what it can.
        """
        quarter, tests = self.quarter(params), self.tests
        if params.get("n") and self.tests is not None:
            tests = _number(params["n"], "The number of tests")
            check_count(tests, "The number of tests")
            if tests > MOST_TESTS:
                raise InvalidInput(
                    f"The number of tests is at most {MOST_TESTS:,}; got {params['n'][:20]!r}."
                )
        level = 0.95
        if params.get("level"):
            level = _number(params["level"], "The level") / 100.0
            near = [known for known in LEVELS if abs(known - level) < 1e-9]
            if not near:
                raise InvalidInput(f"The level must be 50, 80 or 95 percent; got {params['level'][:20]!r}.")
            level = near[0]
        threshold = self.threshold
        if params.get("t"):
            threshold = _number(params["t"], "The threshold")
            check_threshold(threshold, "The threshold", positive=self.positive)
            if abs(threshold) > MOST or (self.positive and threshold < LEAST):
                least = LEAST if self.positive else -MOST
                raise InvalidInput(f"A threshold is from {least:g} to {MOST:g}; got {params['t'][:20]!r}.")
        return Setting(quarter, tests, level, threshold)

    def lenient(self, params: Mapping[str, str]) -> Setting:
        """Like `read`, but what this run cannot show falls back to the default: for an address that was mailed."""
        kept: dict[str, str] = {}
        for name in ("q", "n", "level", "t"):
            try:
                self.read({name: params.get(name, "")})
            except InvalidInput:
                continue
            kept[name] = params.get(name, "")
        return self.read(kept)


def choices_of(run: Run) -> Choices:
    """What a run lets one choose; each setting starts at the last quarter, the usual tests and the last threshold.

    Raises
    ------
    InvalidInput
        the run knows time but names no quarter, or one that is none.
    """
    quarters = run.quarters if run.has_time else ()
    if run.has_time and not quarters:
        raise InvalidInput(f"{run.path} knows time but names no quarter; fit it with `geogp fit`.")
    for quarter in quarters:
        quarter_to_years(quarter)  # refuses what is no quarter
    tests = float(run.model.typical_count_ or 1.0) if run.model.has_counts else None
    return Choices(quarters, tests, run.thresholds[-1], run.target.log10)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(f"{what} must be a number; got {text[:20]!r}.")
    return value


def place(params: Mapping[str, str]) -> tuple[float, float]:
    """(latitude, longitude) in degrees of an address; longitude is brought into [-180, 180).

    Raises
    ------
    InvalidInput
        not two finite numbers, or a latitude outside [-90, 90], or a longitude outside [-360, 360].

    Examples
    --------
    >>> place({"lat": "21.3", "lon": "200"})
    (21.3, -160.0)
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


def window(params: Mapping[str, str]) -> Box:
    """`box` of an address, in degrees.

    Raises
    ------
    InvalidInput
        it is none.

    Examples
    --------
    >>> window({"box": "-158,21,-157,22"})
    (-158.0, 21.0, -157.0, 22.0)
    """
    try:
        w, s, e, n = (float(v) for v in params.get("box", "").split(","))
    except ValueError:
        w = s = e = n = math.nan
    if not (-360 <= w < e <= 360 and -90 <= s < n <= 90):
        raise InvalidInput(f"A window is W,S,E,N in degrees; got {params.get('box', '')[:60]!r}.")
    return w, s, e, n
