"""Distinct rows: those, and the numbers, that a sort of whole rows finds."""

import numpy as np
import pytest

from geogp.linalg.distinct import begins, distinct, order_of


def tables():
    rng = np.random.default_rng(0)
    whole = rng.integers(-3, 4, (400, 2))
    places = whole * 0.1
    yield "whole numbers", whole
    yield "in order", places[np.lexsort(places.T[::-1])]
    yield "in no order", places
    yield "the first column in order alone", places[np.argsort(places[:, 0], kind="stable")]
    yield "backwards", places[np.lexsort(places.T[::-1])][::-1]
    yield "turned", places[np.lexsort(places.T[::-1])] @ np.array([[0.8, 0.6], [-0.6, 0.8]])
    yield "zeros of two signs", np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, -1.0], [-0.0, 2.0]])
    yield "one column", places[:, :1]
    yield "three columns", rng.integers(0, 3, (300, 3)).astype(float)
    yield "all alike", np.full((7, 2), 2.5)
    yield "one row", places[:1]
    yield "no row", places[:0]
    yield "a view", places[::3, ::-1]


@pytest.mark.parametrize("rows", [pytest.param(rows, id=name) for name, rows in tables()])
def test_it_is_what_a_sort_of_whole_rows_finds(rows):
    found, number = distinct(rows)
    want, at = np.unique(rows, axis=0, return_inverse=True)
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(number, at.ravel())
    np.testing.assert_array_equal(found[number], rows)
    assert found.dtype == rows.dtype and found.flags.c_contiguous


@pytest.mark.parametrize("rows", [pytest.param(rows, id=name) for name, rows in tables()])
def test_the_order_is_that_of_a_stable_sort(rows):
    want = np.lexsort(rows.T[::-1])
    order = order_of(list(rows.T))
    np.testing.assert_array_equal(np.arange(len(rows)) if order is None else order, want)
    assert order_of(list(rows[want].T)) is None


def test_rows_begin_where_any_column_changes():
    assert begins([np.array([1, 1, 1, 2]), np.array([0.0, 0.0, 3.0, 3.0])]).tolist() == [
        True,
        False,
        True,
        True,
    ]
    assert begins([np.zeros(0)]).tolist() == [] and begins([np.zeros(1)]).tolist() == [True]
