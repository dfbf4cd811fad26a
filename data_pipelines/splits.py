"""Which rows train, validate and test: at random, by blocks of ground, forward in time, in folds, or from a file."""

import re
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_pipelines.arrow import refusing, strings
from data_pipelines.copies import taken_together
from data_pipelines.errors import DataWarning, InvalidInput, check_file, check_seed

PARTS = ("train", "val", "test", "unused")
BLOCK_DEGREES = 0.05
#: Of a cross-validation.
FOLDS, MOST_FOLDS = 5, 100
#: The name of one of them.
FOLD = r"fold(\d+)of(\d+)"
_Labels = NDArray[np.str_]


def make_split(table: pa.Table, spec: str, seed: int = 0) -> _Labels:
    """The part of each row: "train", "val", "test" or "unused".

    Parameters
    ----------
    table : observations, (N,) rows
    spec : "none" (all rows train), "random" (80/10/10 by row), "block" (70/15/15 by cells of 0.05 degree),
        "forward" (the last two quarters test, the two before validate; one and one when there are fewer than
        eight), "fold2of5" (the second of five parts dealt at random tests, the others train; see `folds_of`), or
        "FILE:COLUMN" (a Parquet file keyed on quadkey and quarter)
    seed : for random, block and folds

    Returns
    -------
    (N,) strings

    Raises
    ------
    InvalidInput
        An unknown spec, too few rows, cells or quarters, or a file that does not fit.

    Notes
    -----
    With FILE:COLUMN, table rows absent from the file are "unused"; file rows absent from the table are
    counted in a `DataWarning`.

    Examples
    --------
    >>> table = pa.table({"quarter": ["2023Q1", "2023Q2", "2023Q3", "2023Q4"]})
    >>> make_split(table, "forward").tolist()
    ['train', 'train', 'val', 'test']
    """
    check_split(spec)
    check_seed(seed)
    if spec in SPLITS:
        return SPLITS[spec](table, seed)
    if fold := re.fullmatch(FOLD, spec):
        return one_fold(table, int(fold[1]), int(fold[2]), seed)
    if folds_of(spec) != (spec,):
        raise InvalidInput(
            f"Split {spec!r} fits once a fold: `geogp compare` does, or name one, as fold1of5."
        )
    file, _, column = spec.rpartition(":")
    return from_file(table, Path(file), column)


def check_split(spec: str) -> None:
    """Refuse what is no split at all, whatever the rows are.

    Raises
    ------
    InvalidInput
        an unknown name, a number of folds that is none, or a file that is not there.
    """
    if spec in SPLITS or re.fullmatch(FOLD, spec) or folds_of(spec) != (spec,):
        return
    file, colon, _ = spec.rpartition(":")
    if not colon or not file:
        raise InvalidInput(f"Unknown split {spec!r}; it is {', '.join(SPLITS)}, kfold or FILE:COLUMN.")
    check_file(Path(file), "split file")


def none(table: pa.Table, seed: int = 0) -> _Labels:
    """All rows train."""
    return _filled(table.num_rows, "train")


def random(table: pa.Table, seed: int = 0) -> _Labels:
    """80/10/10 by row, exact copies together. A place can be on both sides: near test points this is an easy test."""
    rows = table.num_rows
    if rows < 10:
        raise InvalidInput(f"A random split needs at least 10 rows; the table has {rows}.")
    return _with_copies(_deal(rows, 0.10, 0.10, seed), table)


def block(table: pa.Table, seed: int = 0) -> _Labels:
    """70/15/15 by cells of 0.05 degree: all rows of a cell, at any time, share a part."""
    cells = np.stack(
        [np.floor(table.column(name).to_numpy() / BLOCK_DEGREES).astype(np.int64) for name in ("lat", "lon")],
        1,
    )
    unique, inverse = np.unique(cells, axis=0, return_inverse=True)
    if len(unique) < 3:
        raise InvalidInput(
            f"A block split needs rows in at least 3 cells of {BLOCK_DEGREES} degree; the table has {len(unique)}."
        )
    return _deal(len(unique), 0.15, 0.15, seed)[inverse.ravel()]


def forward(table: pa.Table, seed: int = 0) -> _Labels:
    """The last two quarters test, the two before validate; one and one with fewer than eight quarters."""
    quarter = strings(table.column("quarter"))
    names = sorted(set(quarter.tolist()) - {""})
    if len(names) < 3 or "" in quarter:
        raise InvalidInput(
            f"A forward split needs rows of at least 3 quarters, each with its quarter; the table has "
            f"{len(names)} quarters and {int((quarter == '').sum())} rows without one."
        )
    each = 2 if len(names) >= 8 else 1
    parts = _filled(table.num_rows, "train")
    parts[quarter >= names[-2 * each]] = "val"
    parts[quarter >= names[-each]] = "test"
    return parts


def folds_of(spec: str) -> tuple[str, ...]:
    """The splits of a cross-validation, "kfold" for five and "kfold10" for ten; of any other split itself.

    Raises
    ------
    InvalidInput
        fewer than two folds, or more than `MOST_FOLDS`.

    Examples
    --------
    >>> folds_of("kfold2"), folds_of("block")
    (('fold1of2', 'fold2of2'), ('block',))
    """
    named = re.fullmatch(r"kfold(\d*)", spec)
    if named is None:
        return (spec,)
    k = int(named[1] or FOLDS)
    if not 2 <= k <= MOST_FOLDS:
        raise InvalidInput(f"A cross-validation takes 2 to {MOST_FOLDS} folds; got {spec!r}.")
    return tuple(f"fold{i}of{k}" for i in range(1, k + 1))


def one_fold(table: pa.Table, i: int, k: int, seed: int = 0) -> _Labels:
    """The i-th of k parts, dealt at random and alike in size, tests; the others train. No rows validate: where folds are
    wanted, rows are few."""
    rows = table.num_rows
    if not (2 <= k <= MOST_FOLDS and 1 <= i <= k):
        raise InvalidInput(f"Folds are 2 to {MOST_FOLDS}, counted from 1; got fold{i}of{k}.")
    if rows < 2 * k:
        raise InvalidInput(f"{k} folds need at least {2 * k} rows; the table has {rows}.")
    part = np.random.default_rng(seed).permutation(rows) % k
    return _with_copies(np.where(part == i - 1, "test", "train").astype("U6"), table)


def from_file(table: pa.Table, path: Path, column: str) -> _Labels:
    """Parts read from a Parquet file with columns quadkey, quarter and `column`."""
    theirs, part = _given(path, column)
    order = np.argsort(theirs, kind="stable")
    theirs, part = theirs[order], part[order]
    repeated = theirs[1:][theirs[1:] == theirs[:-1]]
    if len(repeated):
        quarter, tile = repeated[0][:6], repeated[0][6:]
        raise InvalidInput(
            f"The split file {path} names tile {tile} in {quarter} more than once; keep one row of each."
        )
    ours = _keys(table)
    if not np.isin(ours, theirs).any():
        raise InvalidInput(f"No row of the table is in the split file {path}; it belongs to another table.")
    at = np.minimum(np.searchsorted(theirs, ours), len(theirs) - 1)
    matched = theirs[at] == ours
    absent = len(theirs) - len(np.unique(at[matched]))
    if absent:
        warnings.warn(
            f"{absent:,} of {len(theirs):,} rows of the split file {path} are not in the table.",
            DataWarning,
            stacklevel=3,
        )
    return np.where(matched, part[at], "unused").astype("U6")


def _given(path: Path, column: str) -> tuple[_Labels, _Labels]:
    """Keys and parts of a split file's rows."""
    check_file(path, "split file")
    with refusing(f"The split file {path} is not a readable Parquet file"):
        file = pq.ParquetFile(path)
    needed = ["quadkey", "quarter", column]
    for name in needed:
        if name not in file.schema_arrow.names:
            raise InvalidInput(
                f"The split file {path} has no column {name!r}; it has {', '.join(file.schema_arrow.names)}."
            )
    given = file.read(columns=needed)
    part = strings(given.column(column))
    strange = sorted(set(part.tolist()) - set(PARTS))
    if strange:
        raise InvalidInput(
            f"Column {column} of {path} has the value {strange[0]!r}; parts are train, val, test."
        )
    return _keys(given), part


#: name -> function of (table, seed)
SPLITS = {"none": none, "random": random, "block": block, "forward": forward}


def _deal(count: int, test_share: float, val_share: float, seed: int) -> _Labels:
    """`count` things dealt at random: the shares rounded, at least one each to test and validation."""
    test, val = (max(1, round(share * count)) for share in (test_share, val_share))
    parts = _filled(count, "train")
    order = np.random.default_rng(seed).permutation(count)
    parts[order[:test]] = "test"
    parts[order[test : test + val]] = "val"
    return parts


def _with_copies(parts: _Labels, table: pa.Table) -> _Labels:
    """Exact copies of a row have its part, or they would tell of it; not where a part would be left without rows."""
    first = taken_together(table)
    if first is None or set(parts[first]) != set(parts):
        return parts
    return parts[first]


def _filled(count: int, part: str) -> _Labels:
    return np.full(count, part, "U6")


def _keys(table: pa.Table) -> _Labels:
    """Quarter and quadkey of each row as one string."""
    return np.char.add(strings(table.column("quarter")).astype("U6"), strings(table.column("quadkey")))
