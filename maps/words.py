"""Words for people: numbers, and what a map is a map of, from the Dataset's own attributes.

A prediction names its target itself: `target_title` ("download speed"), `target_unit`, and `target_noun`, what a new
observation is called. So a new target needs no word here.
"""

import numpy as np
import xarray as xr

AVERAGES = "tile averages"  # of how many tests is said after it
PLAIN = "measurements"


def number(value: float, significant: int = 3) -> str:
    """`value` with three significant digits or so many, and no exponent below a billion: 90, 0.37, 1250.

    >>> number(90.04), number(0.0372), number(1249.6), number(4.2e-7)
    ('90', '0.0372', '1250', '4.2e-7')
    >>> number(90.04, 4), number(12345.6, 4), number(2.71828e9, 4)
    ('90.04', '12346', '2.718e+9')
    """
    if not np.isfinite(value):
        return "no value"
    if value == 0:
        return "0"
    if not positional(value):
        return _exponent(float(f"{value:.{significant}g}"))
    return np.format_float_positional(round(float(value), _decimals(value, significant)), trim="-")


def padded(value: float, significant: int = 4) -> str:
    """`value` as `number` writes it, but for the zeros at its end, which a column of numbers has.

    >>> padded(19.0), padded(12.3456), padded(12345.6), padded(2.71828e9)
    ('19.00', '12.35', '12346', '2.718e+9')
    """
    if not np.isfinite(value) or not positional(value) or value == 0:
        return number(value, significant)
    return f"{value:.{_decimals(value, significant)}f}"


def signed(value: float, significant: int = 4) -> str:
    """A difference as `padded` writes it, with its sign.

    >>> signed(12.34), signed(-0.5), signed(0.0)
    ('+12.34', '-0.5000', '+0')
    """
    said = padded(value, significant)
    return said if said.startswith("-") or not np.isfinite(value) else f"+{said}"


def _decimals(value: float, significant: int) -> int:
    """Digits behind the point of so many significant ones."""
    return max(0, significant - 1 - int(np.floor(np.log10(abs(value)))))


def exact(value: float) -> str:
    """`value` with all its digits, up to ten, written as `number` writes its own: `exact` of words.js.

    >>> exact(25.0), exact(101325.4), exact(4.2e13), exact(4e-7)
    ('25', '101325.4', '4.2e+13', '4e-7')
    """
    said = float(f"{value:.10g}")
    return np.format_float_positional(said, trim="-") if positional(said) else _exponent(said)


def positional(value: float) -> bool:
    """Whether a number is written without an exponent: from a millionth to below a billion, as everywhere here."""
    return value == 0 or 1e-6 <= abs(value) < 1e9


def _exponent(value: float) -> str:
    """`4e-7`, not `4e-07`: as browsers write it."""
    return np.format_float_scientific(value, trim="-", exp_digits=1)


def level_text(ds: xr.Dataset) -> str:
    """`95%` from the attribute `level` = 0.95."""
    return f"{exact(100 * float(ds.attrs.get('level', 0.95)))}%"


def tail_text(ds: xr.Dataset) -> str:
    """`2.5%`: how many fall below an interval, and as many above it."""
    return f"{exact(50 * (1 - float(ds.attrs.get('level', 0.95))))}%"


def target_text(ds: xr.Dataset) -> str:
    """`download speed`: the attribute `target_title`, else the target's name."""
    return str(ds.attrs.get("target_title") or ds.attrs.get("target") or "value")


def heading_text(ds: xr.Dataset) -> str:
    """`Download speed`: the attribute `target_heading`, else the target's words with a capital letter."""
    words = target_text(ds)
    return str(ds.attrs.get("target_heading") or f"{words[:1].upper()}{words[1:]}")


def target_unit(ds: xr.Dataset) -> str:
    """The target's unit as people read it: nothing for a pure number."""
    return "" if ds.attrs.get("target_unit") == "1" else str(ds.attrs.get("target_unit", ""))


def new_text(ds: xr.Dataset) -> str:
    """What the intervals are for: `tile averages of 5 tests`, `tile counts` or `measurements`.

    The attribute `target_noun`; without it averages where the Dataset says of how many `tests`. Averages of nobody
    knows how many are measurements.

    >>> new_text(xr.Dataset(attrs={"tests": 1})), new_text(xr.Dataset(attrs={"target_noun": "tile counts"}))
    ('tile averages of 1 test', 'tile counts')
    """
    return _averages(ds, ds.attrs.get("tests"))


def place_text(ds: xr.Dataset) -> str:
    """What measurements are of, where their places are counted: `tile` or `place`.

    >>> place_text(xr.Dataset(attrs={"tests": 1})), place_text(xr.Dataset(attrs={"target_noun": "measurements"}))
    ('tile', 'place')
    """
    noun = str(ds.attrs.get("target_noun") or new_text(ds))
    return "tile" if noun.startswith("tile ") else "place"


def surface_text(ds: xr.Dataset) -> str:
    """What the surface is the level of: as `new_text`, at the Dataset's `reference_count`.

    >>> surface_text(xr.Dataset(attrs={"tests": 1, "reference_count": 6}))
    'tile averages of 6 tests'
    """
    return _averages(ds, ds.attrs.get("reference_count", ds.attrs.get("tests")))


def _averages(ds: xr.Dataset, tests: float | None) -> str:
    noun = str(ds.attrs.get("target_noun") or (PLAIN if tests is None else AVERAGES))
    if noun != AVERAGES:
        return noun
    if tests is None:
        return PLAIN
    count = number(float(tests))
    return f"{AVERAGES} of {count} test{'' if count == '1' else 's'}"


def scale_text(ds: xr.Dataset) -> str:
    """`log10 of kbit/s`: what the model's scale is, from the attribute `model_scale`, or the target's own."""
    return str(ds.attrs.get("model_scale") or ds.attrs.get("target_scale") or "log10 for speeds")


def quarter_of(ds: xr.Dataset) -> str:
    """The quarter of a map: of its attributes, or the one chosen of several; "" where there is none."""
    chosen = ds.coords.get("quarter")
    said = ds.attrs.get("quarter") or ("" if chosen is None or chosen.ndim else chosen.item())
    return str(said)


def subtitle(ds: xr.Dataset, *, intervals: bool = True, new: bool = True) -> str:
    """What the map is a map of: quarter, tests per tile, level.

    Parameters
    ----------
    intervals : whether what is shown changes with the level of the intervals
    new : whether it describes new measurements; else the surface

    >>> subtitle(xr.Dataset(attrs={"quarter": "2023Q4", "tests": 5, "level": 0.95}))
    '2023 Q4 · new tile averages of 5 tests · 95% intervals'
    >>> subtitle(xr.Dataset(attrs={"quarter": "2023Q4", "tests": 5, "level": 0.95}), intervals=False)
    '2023 Q4 · new tile averages of 5 tests'
    """
    parts = []
    quarter = quarter_of(ds)
    if quarter:
        parts.append(quarter.replace("Q", " Q"))
    if new and ds.attrs.get("tests") is not None:
        parts.append(f"new {new_text(ds)}")
    if not new and ds.attrs.get("reference_count", ds.attrs.get("tests")) is not None:
        parts.append(f"the level of {surface_text(ds)}")
    if intervals:
        parts.append(f"{level_text(ds)} intervals")
    return " · ".join(parts)
