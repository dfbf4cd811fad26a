"""A layer computed from other variables of a Dataset, window by window, when it is read."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

#: Windows of the needed variables -> the layer's window; pixel by pixel.
Formula = Callable[..., NDArray[Any]]


class _Computed(BackendArray):
    """Reads the same window of every source and hands them to the formula: memory is that of the window."""

    def __init__(self, formula: Formula, sources: Sequence[xr.Variable], shape: tuple[int, ...]) -> None:
        self.formula, self.sources = formula, sources
        self.shape, self.dtype = shape, np.dtype("float32")

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> NDArray[np.float32]:
        # A source without thresholds goes with each of them.
        windows = [source[key[len(key) - source.ndim :]].values for source in self.sources]
        with np.errstate(divide="ignore", invalid="ignore"):  # a pixel without value has none in the layer
            return np.asarray(self.formula(*windows), dtype=np.float32)


def computed(
    formula: Formula, sources: Sequence[xr.Variable], dims: tuple[str, ...], attrs: dict[str, Any]
) -> xr.Variable:
    """A lazy variable, `formula` of `sources`.

    Parameters
    ----------
    formula : takes one float array for each source, all of one window, and returns that window
    sources : with dimensions (y, x) or (threshold, y, x)
    dims : of the result

    Examples
    --------
    >>> lower, upper = xr.Variable(("y", "x"), [[1.0, 2.0]]), xr.Variable(("y", "x"), [[3.0, 8.0]])
    >>> computed(lambda a, b: b / a, [lower, upper], ("y", "x"), {"units": "1"})[:, 1:].values
    array([[4.]], dtype=float32)
    """
    sizes = {dim: size for source in sources for dim, size in source.sizes.items()}
    array = _Computed(formula, sources, tuple(sizes[dim] for dim in dims))
    return xr.Variable(dims, indexing.LazilyIndexedArray(array), attrs)
