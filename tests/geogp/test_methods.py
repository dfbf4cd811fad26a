"""The table and its reference pages."""

import pytest

import geogp
from geogp.methods import METHODS, page


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page(name):
    text = page(name)
    row = METHODS[name]
    assert text.startswith(f"# {name}\n")
    for part in ("## Formula", "## Choices", "## When to use it", "## Cost", "## Source", "O(n"):
        assert part in text
    for choice in (row.expansion, row.residual, row.objective, row.backbone):
        assert f"| {choice} |" in text
    assert "None" not in text


@pytest.mark.parametrize("name", METHODS)
def test_every_row_is_complete(name):
    row = METHODS[name]
    assert row.summary and row.paper and row.equations and row.use_when and row.cost
    assert not row.summary.endswith(".")


def test_an_unknown_method_has_no_page():
    with pytest.raises(geogp.ImpossibleCombination, match="there is no method 'nope'"):
        page("nope")
