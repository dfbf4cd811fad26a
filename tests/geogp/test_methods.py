"""The table of methods; its pages are in `test_pages.py`."""

import pytest

from geogp.methods import METHODS


@pytest.mark.parametrize("name", METHODS)
def test_every_row_is_complete(name):
    row = METHODS[name]
    assert row.summary and row.paper and row.equations and row.use_when and row.cost
    assert not row.summary.endswith(".") and not row.use_when.endswith(".")
