"""What is refused: the errors that callers catch (everything else is a ValueError or a bug), bounds on numbers, no folder.

Light: numpy is imported by who checks an array.
"""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

#: Most measurements behind an average: beyond it is a slip of the keyboard.
MOST = 1e9
#: Values larger than this cannot be squared and summed, and thresholds lie among values.
MOST_VALUE = 1e100


class InvalidInput(ValueError):
    """Bad data or a bad file: one sentence that says what was wrong, what was got, what to do."""

    exit_code = 3


class ImpossibleCombination(ValueError):
    """Two choices of the method table that cannot work together; the message names both."""

    exit_code = 2


class NumericalFailure(ArithmeticError):
    """A factorisation or an optimisation that failed even after its bounded remedies."""

    exit_code = 1


class NotDistanceAware(UserWarning):
    """A method whose latent sd does not return to the prior far from data has been fitted."""


class FarAhead(UserWarning):
    """Predictions lie farther after the last measurement, or before the first, than the measurements span."""


class NotMeasured(UserWarning):
    """A map, a table, an answer is of a quarter of which the run has learned nothing."""


# -- numbers: what is none, in a sentence -------------------------------------------------------------------------------


def number_of(value: Any, name: str) -> float:
    """A number that was given for one, as a float.

    Raises
    ------
    InvalidInput
        several, text, or nothing.

    Examples
    --------
    >>> number_of("0.9", "level")
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: level must be one number; got '0.9'.
    """
    several = getattr(value, "shape", ()) != ()
    if not several and not isinstance(value, str | bytes):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    got = f"an array of shape {tuple(value.shape)}" if several else _short(value)
    raise InvalidInput(f"{name} must be one number; got {got}.")


def numbers_of(values: Any, name: str, remedy: str = "give numbers") -> "NDArray[np.float64]":
    """Numbers of any shape, as float64; else what to do is `remedy`.

    Raises
    ------
    InvalidInput
        dates, complex numbers, text that is no number, nothing.

    Examples
    --------
    >>> numbers_of([1, "q"], "counts")
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: counts must be numbers; got 'q': give numbers.
    """
    import numpy as np

    try:
        out = np.asarray(values)
        if out.dtype.kind not in "cMm":
            return out.astype(np.float64)
        found, kind = values, str(out.dtype.kind)
    except (TypeError, ValueError):
        found = _no_number(values)
        kind = "c" if isinstance(found, complex) else "M" if hasattr(found, "year") else ""
    if kind == "c":
        raise InvalidInput(
            f"Complex data not supported: {name} must be real numbers; give their parts apart."
        )
    if kind:
        raise InvalidInput(
            f"{name} must be numbers, and holds dates; give years, such as 2024.25 for 1 April 2024."
        )
    raise InvalidInput(f"{name} must be numbers; got {_short(found)}: {remedy}.")


def _no_number(values: Any) -> Any:
    """The first of some values that is no number; all of them where none is alone to blame."""
    import numpy as np

    try:
        for value in np.ravel(np.asarray(values, dtype=object)):
            try:
                float(value)
            except (TypeError, ValueError):
                if value is not None:
                    return value
    except (TypeError, ValueError):
        pass
    return values


def _short(value: Any) -> str:
    """A value in one line."""
    text = " ".join((str.__repr__(value) if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- bounds: said here, imported by the library, the command line and the dashboard ------------------------------------


def check_count(count: float | None, name: str = "counts") -> None:
    """Refuse what is no number of measurements: below 1, above 10^9, NaN; None, for nothing said, passes.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_count(0, "--tests")
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: --tests must be a number of measurements, at least 1; got 0.
    """
    if count is not None and not 1 <= count <= MOST:
        most = f" and at most {MOST:g}" if count > MOST else ""
        raise InvalidInput(f"{name} must be a number of measurements, at least 1{most}; got {count:g}.")


def checked_counts(counts: "ArrayLike", n: int) -> "NDArray[np.float64]":
    """Counts of n rows, (n,) float64, given as one number for all or as one a row.

    Raises
    ------
    InvalidInput
        another shape, or a number that `check_count` refuses.
    """
    import numpy as np

    out = numbers_of(counts, "counts")
    if out.ndim == 0:
        check_count(float(out))
        return np.full(n, float(out))
    if out.shape != (n,):
        raise InvalidInput(f"counts must be one number a row, shape ({n},); got shape {out.shape}.")
    bad = np.flatnonzero(~((out >= 1) & (out <= MOST)))
    if len(bad):
        raise InvalidInput(
            f"counts must be positive, at least 1 and at most {MOST:g}; row {bad[0]} has {out[bad[0]]:g}: drop it or leave counts out."
        )
    return out


def check_values(y: "NDArray[np.float64]") -> None:
    """Refuse values (n,) that are none, or that cannot be squared and summed.

    Raises
    ------
    InvalidInput
    """
    import numpy as np

    bad = np.flatnonzero(~np.isfinite(y))
    if len(bad):
        raise InvalidInput(
            f"y holds NaN or infinity in {len(bad)} of {len(y)} rows, row {bad[0]} first; drop those rows."
        )
    if len(y) and (most := float(np.abs(y).max())) > MOST_VALUE:
        raise InvalidInput(
            f"y holds a value of size {most:g}, and at most {MOST_VALUE:g} are possible; drop that row, or take another unit."
        )


def checked_values(y: "ArrayLike", n: int, rows: str) -> "NDArray[np.float64]":
    """Values of n rows told beside those of a fit, (n,) float64; `rows` names them in a sentence.

    Raises
    ------
    InvalidInput
        another shape, or values that `check_values` refuses.
    """
    out = numbers_of(y, "y")
    if out.shape != (n,):
        raise InvalidInput(f"{rows} and values of shape {out.shape}; give one value a row.")
    check_values(out)
    return out


def check_draws(n_samples: int, n: int) -> None:
    """Refuse joint draws at n places that are none, or that would fill a machine.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_draws(10**12, 50)
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: n_samples 1,000,000,000,000 at 50 places take 372,529 GiB, and at most 16 are possible; take 42,949,672 or fewer.
    """
    if isinstance(n_samples, bool) or not isinstance(n_samples, Integral):
        raise InvalidInput(f"n_samples must be a whole number, 1 or more; got {_short(n_samples)}.")
    if n_samples < 1:
        raise InvalidInput(f"n_samples must be 1 or more; got {n_samples}.")
    if (needed := 8 * n_samples * max(n, 1)) > BUDGET:
        raise InvalidInput(
            f"n_samples {n_samples:,} at {n:,} places take {needed / 2**30:,.0f} GiB, and at most {BUDGET / 2**30:.0f} are possible; "
            f"take {BUDGET // (8 * max(n, 1)):,} or fewer."
        )


def check_level(level: float, name: str = "level") -> None:
    """Refuse a level of intervals outside (0, 1).

    Raises
    ------
    InvalidInput
    """
    level = number_of(level, name)
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"{name} must lie between 0 and 1; got {level:g}: use 0.95 for a 95% interval.")


def check_quarter(quarter: str | None, name: str = "a quarter") -> None:
    """Refuse what is written otherwise than 2023Q4; None, for nothing said, passes.

    Raises
    ------
    InvalidInput
    """
    year, mark, part = ("2000", "Q", "1") if quarter is None else quarter.upper().partition("Q")
    if not (mark and year.isdecimal() and part in ("1", "2", "3", "4")):
        raise InvalidInput(f"{name} is written 2023Q4; got {quarter!r}.")


def check_threshold(threshold: float, name: str = "thresholds", *, positive: bool = False) -> None:
    """Refuse a threshold that is no number, or not a positive one where the target is a logarithm.

    Raises
    ------
    InvalidInput
    """
    threshold = number_of(threshold, name)
    if not abs(threshold) <= MOST_VALUE:
        raise InvalidInput(f"{name} must be finite numbers, at most {MOST_VALUE:g}; got {threshold:g}.")
    if positive and threshold <= 0:
        raise InvalidInput(f"{name} must be above 0; got {threshold:g}.")


def check_seconds(seconds: float | None, name: str) -> None:
    """Refuse what is no time to wait; None, for nothing said, passes.

    Raises
    ------
    InvalidInput
    """
    if seconds is not None and not seconds >= 0:
        raise InvalidInput(f"{name} must be a number of seconds, 0 or more; got {seconds:g}.")


#: Seeds are below this: what every library behind the methods takes.
SEEDS = 2**31


def seed_of(seed: int | None, name: str = "random_state") -> int:
    """The seed that is asked for; 0 where none is.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> seed_of(None), seed_of(7)
    (0, 7)
    >>> seed_of(-1, "--seed")
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: --seed must be a whole number from 0 to 2,147,483,647; got -1.
    """
    if seed is None:
        return 0
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < SEEDS:
        raise InvalidInput(f"{name} must be a whole number from 0 to {SEEDS - 1:,}; got {seed!r}.")
    return int(seed)


def check_metres(metres: float | None, name: str) -> None:
    """Refuse what is no length; None, for nothing said, passes.

    Raises
    ------
    InvalidInput
    """
    if metres is not None and not (math.isfinite(metres) and metres > 0):
        raise InvalidInput(f"{name} must be a positive number of metres; got {metres:g}.")


#: Most bytes that the square matrices of a setting may take, and most of what is counted in a fit.
BUDGET, MOST_STEPS = 16 * 2**30, 10**8
#: Largest rate and weight of a term: a step of a million loses all digits of what it changes.
MOST_WEIGHT = 1e6
#: Setting -> bytes of one entry of its square matrix: three factors in float64; weights, gradients, two of Adam.
_SQUARES = {"rank": 24, "hidden": 16}


def check_settings(asked: Mapping[str, Any]) -> None:
    """Refuse settings that are no numbers of things, or whose matrices alone would fill a machine.

    Parameters
    ----------
    asked : parameters of `GPRegressor` by name, all or some

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_settings({"rank": 0})
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: rank must be a whole number, at least 1; got 0.
    """
    for name in ("rank", "hidden", "epochs", "steps", "batch_size"):
        value = asked.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
            raise InvalidInput(f"{name} must be a whole number, at least 1; got {value!r}.")
        if name in _SQUARES and (needed := _SQUARES[name] * int(value) ** 2) > BUDGET:
            most = math.isqrt(BUDGET // _SQUARES[name])
            raise InvalidInput(
                f"{name} {value:,} needs {needed / 2**30:,.0f} GiB for its square matrices, more than the "
                f"{BUDGET / 2**30:.0f} GiB that a fit may take; take {most:,} or fewer."
            )
        if int(value) > MOST_STEPS:
            raise InvalidInput(f"{name} must be at most {MOST_STEPS:,}; got {value:,}.")
    options = asked.get("options")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInput(
            f"options must be keywords of the method's engine by name, such as {{'neighbours': 32}}; got {_short(options)}."
        )
    for name in ("learning_rate", "trace_weight", "kl_weight", "crps_weight"):
        value = asked.get(name)
        zero = name != "learning_rate"
        if value is not None and not (
            isinstance(value, Real)
            and math.isfinite(value)
            and (float(value) > 0 or (zero and float(value) == 0))
        ):
            raise InvalidInput(
                f"{name} must be a {'' if zero else 'positive '}number{', 0 or more' if zero else ''}; got {value!r}."
            )
        if value is not None and float(value) > MOST_WEIGHT:
            raise InvalidInput(f"{name} must be at most {MOST_WEIGHT:g}; got {value:g}.")


def check_run_folder(path: Path) -> None:
    """Refuse a run that is no folder, before what reads it is imported.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_run_folder(Path("nowhere"))
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: nowhere is not a run folder; `geogp fit ... -o nowhere` makes one.
    """
    if not path.is_dir():
        raise InvalidInput(f"{path} is not a run folder; `geogp fit ... -o {path}` makes one.")


def check_new(path: Path, overwrite: bool) -> None:
    """Refuse to write over what is there already, unless that is asked for.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_new(Path("/"), overwrite=False)
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: / exists; give another -o, or --overwrite to replace it.
    """
    if path.exists() and not overwrite:
        raise InvalidInput(f"{path} exists; give another -o, or --overwrite to replace it.")


#: Files of a run beside those that its sums name; a folder of them; the last letters of its tensors.
_RUN_FILES, _RUN_FOLDER, _TENSORS = (
    ("run.json", "SHA256SUMS", "certificate.json"),
    "statistics",
    ".safetensors",
)


def check_new_run(path: Path, overwrite: bool) -> None:
    """Refuse to write a run over what is there already, unless that is asked for and what is there is a run and nothing else.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> check_new_run(Path("/"), overwrite=True)
    Traceback (most recent call last):
    ...
    geogp.errors.InvalidInput: The output / is the folder that this command runs in, or one above it; name another.
    """
    check_new(path, overwrite)
    if path.name in ("", "..") or Path.cwd().is_relative_to(path.resolve()):
        raise InvalidInput(
            f"The output {path} is the folder that this command runs in, or one above it; name another."
        )
    if path.exists() and not path.is_dir():
        raise InvalidInput(f"{path} is no folder, and a run is one; give another -o.")
    if strange := _strange_in(path):
        raise InvalidInput(
            f"{path} holds {strange}, which is no file of a run, and to overwrite it would lose that; give another -o."
        )


def _strange_in(path: Path) -> Path | None:
    """The first file of a folder, or of one in it, that is none of a run's."""
    try:
        listed = (path / "SHA256SUMS").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        listed = []
    named = {*_RUN_FILES, *listed}

    def is_of_run(name: Path) -> bool:
        tensors = name.suffix == _TENSORS and name.parts[:-1] in ((), (_RUN_FOLDER,))
        return tensors or name.as_posix() in named or name.parts[0].startswith(".geogp-")

    files = sorted(p.relative_to(path) for p in path.rglob("*") if p.is_symlink() or not p.is_dir())
    return next((name for name in files if not is_of_run(name)), None)
