"""What is modelled: one entry for each target, from its column to the words and colours of its maps.

Speeds and latencies are modelled as base-10 logarithms: of kbit/s, of ms, of 1 + count. To add a target, add an
entry to `TARGETS`: the command line, the scores, the maps and the dashboard read it from there.

Functions import numpy themselves: `geogp --help` reads the names here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from geogp.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True)
class Target:
    """One thing to map.

    name : on the command line; column : in the observations table; unit : of the column and of the maps
    forward : column values -> score scale t (increasing); inverse : back
    words : its title in a sentence; noun : what a new observation of it is called
    log10 : whether t is a base-10 logarithm of the value (times a constant)
    positive : whether only rows with a value above zero can be used
    counted : whether measurements are counted behind each value, so that noise may know how many
    own_unit : the unit is the data's own, `unit` where they name none
    scale : what t is, in words, where it is not the value itself
    better : "higher" or "lower", or "" where neither is said: words and colours then do not judge
    colours : of its level, a cmcrameri map
    thresholds : of its exceedance where none are named; none for their median, rounded
    transform : the default of `GPRegressor.target_transform`, "auto" where values come on any scale
    count_of : what a value counts, where it is a count
    """

    name: str
    column: str
    unit: str
    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    words: str
    noun: str = "tile averages"
    log10: bool = True
    positive: bool = True
    counted: bool = True
    own_unit: bool = False
    scale: str = ""
    better: str = "higher"
    colours: str = "batlow"
    thresholds: tuple[float, ...] = ()
    transform: str = "identity"
    count_of: str = ""

    def attributes(self, unit: str) -> dict[str, str]:
        """What a Dataset of this target says of it, for those who draw it."""
        return {
            "target": self.name,
            "target_unit": unit,
            "target_title": self.words,
            "target_heading": self.heading,
            "target_noun": self.noun,
            "target_scale": self.scale_words,
            "target_better": self.better,
            "target_colours": self.colours,
        }

    @property
    def heading(self) -> str:
        """`words` at the head of a title; a name that is written its own way, such as pH or no2, stays as it is.

        Examples
        --------
        >>> [TARGETS["value"].called(name).heading for name in ("zinc", "pH", "no2")], TARGETS["latency"].heading
        (['Zinc', 'pH', 'no2'], 'Latency')
        """
        first = self.words.split(" ")[0]
        plain = not self.own_unit or (first.isalpha() and first.islower() and len(first) > 3)
        return f"{self.words[:1].upper()}{self.words[1:]}" if plain else self.words

    @property
    def scale_words(self) -> str:
        """What t is, in words.

        Examples
        --------
        >>> TARGETS["download"].scale_words, TARGETS["value"].scale_words
        ('log10 of kbit/s', 'the value itself')
        """
        if self.scale:
            return self.scale
        return "log10 of the value" if self.log10 else "the value itself"

    def to_score(self, values: "ArrayLike") -> Array:
        """t of column values; values whose logarithm does not exist raise.

        Raises
        ------
        InvalidInput

        Examples
        --------
        >>> float(TARGETS["download"].to_score(100.0))
        5.0
        """
        import numpy as np

        v = np.asarray(values, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.asarray(self.forward(v), dtype=np.float64)
        lost = (v <= 0) & ~np.isfinite(t)
        if lost.any():
            bad = v[lost][0]
            raise InvalidInput(
                f"target {self.name!r} needs positive values; got {bad:g}: drop such rows before fitting, and name thresholds "
                "above 0."
            )
        return t

    def called(self, name: str | None, better: str | None = None) -> "Target":
        """The target of a table that says what it holds and which of it is better, where the target is not of one thing.

        Examples
        --------
        >>> TARGETS["value"].called("zinc").words, TARGETS["latency"].called("zinc").words
        ('zinc', 'latency')
        >>> TARGETS["value"].called("zinc", "lower").worst, TARGETS["value"].called("zinc").worst
        ('worst', 'lowest')
        """
        if not self.own_unit:
            return self
        return replace(self, words=name or self.words, better=better or self.better)

    @property
    def lowest_first(self) -> bool:
        """Whether rank 1 is the lowest: the worst, or where nobody said which is better; else it is the highest."""
        return self.better != "lower"

    @property
    def worst(self) -> str:
        """What rank 1 is called."""
        return "worst" if self.better else "lowest"

    @property
    def best(self) -> str:
        """What the last rank is called."""
        return "best" if self.better else "highest"

    @property
    def improved(self) -> str:
        """What a change for the better is called; where nobody said which is better, one upwards.

        Examples
        --------
        >>> TARGETS["latency"].improved, TARGETS["value"].improved
        ('improved', 'risen')
        """
        return "improved" if self.better else "risen"

    @property
    def of_averages(self) -> bool:
        """Whether an observation is the average of a tile, of as many tests as people made there."""
        return self.noun == Target.noun

    def unit_of(self, recorded: str | None) -> str:
        """The unit of a table whose metadata record one, or none.

        Examples
        --------
        >>> TARGETS["value"].unit_of("mg/kg"), TARGETS["latency"].unit_of("mg/kg")
        ('mg/kg', 'ms')
        """
        return recorded or self.unit if self.own_unit else self.unit

    def unit_words(self, unit: str) -> str:
        """A unit as people read it in a sentence: pure numbers have none, but for counts.

        Examples
        --------
        >>> TARGETS["tests"].unit_words("1"), TARGETS["value"].unit_words("1"), TARGETS["value"].unit_words("mm")
        ('tests', '', 'mm')
        """
        return unit if unit != "1" else self.count_of

    def with_unit(self, number: str, unit: str) -> str:
        """A number as people read it in a sentence, its unit beside it where it has one.

        Examples
        --------
        >>> TARGETS["value"].with_unit("19", "1"), TARGETS["value"].with_unit("19", "mm")
        ('19', '19 mm')
        """
        return f"{number} {self.unit_words(unit)}".rstrip()

    def from_score(self, t: "ArrayLike") -> Array:
        """Values in `unit` of t."""
        import numpy as np

        return self.inverse(np.asarray(t, dtype=np.float64))


def round_middle(parts: tuple[float, float, float]) -> float:
    """The median of quartiles in the fewest digits, two at least, that move it by a tenth of their distance at most.

    Examples
    --------
    >>> round_middle((20.0, 38.42, 60.0)), round_middle((1011.2, 1013.27, 1015.1)), round_middle((0.0, 0.0, 0.0))
    (38.0, 1013.0, 0.0)
    >>> round_middle((0.1 + 0.2,) * 3)
    0.3
    """
    low, half, high = parts
    slack = max((high - low) / 10, 1e-9 * abs(half))  # of values that are all alike, sums such as .1 + .2
    rounded = (float(f"{half:.{digits}g}") for digits in range(2, 17))
    return next((v for v in rounded if abs(v - half) <= slack), half)


def _log10(v: Array) -> Array:
    import numpy as np

    return np.log10(v)


def _log10_kbps(v: Array) -> Array:
    return _log10(v * 1000.0)


def _mbps(t: Array) -> Array:
    return 10.0 ** (t - 3.0)


def _power10(t: Array) -> Array:
    return 10.0**t


def _log10_count(v: Array) -> Array:
    return _log10(1.0 + v)


def _count(t: Array) -> Array:
    import numpy as np

    return np.maximum(10.0**t - 1.0, 0.0)


def _same(v: Array) -> Array:
    return v


TARGETS: dict[str, Target] = {
    "download": Target(
        "download",
        "download_mbps",
        "Mbit/s",
        _log10_kbps,
        _mbps,
        "download speed",
        thresholds=(25.0, 100.0),
        scale="log10 of kbit/s",
    ),
    "upload": Target(
        "upload",
        "upload_mbps",
        "Mbit/s",
        _log10_kbps,
        _mbps,
        "upload speed",
        thresholds=(3.0, 20.0),
        scale="log10 of kbit/s",
    ),
    "latency": Target(
        "latency",
        "latency_ms",
        "ms",
        _log10,
        _power10,
        "latency",
        better="lower",
        thresholds=(50.0, 100.0),
        scale="log10 of ms",
    ),
    "tests": Target(
        "tests",
        "tests",
        "1",
        _log10_count,
        _count,
        "number of tests",
        noun="tile counts",
        counted=False,
        better="",
        thresholds=(10.0,),
        count_of="tests",
        scale="log10 of 1 + count",
    ),
    "value": Target(
        "value",
        "value",
        "1",
        _same,
        _same,
        "value",
        noun="measurements",
        log10=False,
        positive=False,
        own_unit=True,
        better="",
        transform="auto",
    ),
}


def target(name: str) -> Target:
    """The target called `name`.

    Raises
    ------
    InvalidInput
    """
    if name not in TARGETS:
        raise InvalidInput(f"there is no target {name!r}; choose from {', '.join(TARGETS)}.")
    return TARGETS[name]


def digits(value: float) -> str:
    """A number with the digits that tell it from all others, without an exponent: in the names of columns and layers.

    Examples
    --------
    >>> digits(25.0), digits(101325.4), digits(1e-7)
    ('25', '101325.4', '0.0000001')
    """
    import numpy as np

    return np.format_float_positional(value, trim="-")
