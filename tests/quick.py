"""Fits that take a moment, for tests of what does not hang on how well a model has learned."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def in_parts() -> Iterator[None]:
    """No kernel is fitted to all rows together, which takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geogp.field.choose.TOGETHER_BELOW", 0)
        yield
