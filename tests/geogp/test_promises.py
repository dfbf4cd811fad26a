"""Suggestions tried on rows that a model knows: nothing hidden leaks, and promises are those of dense algebra."""

from dataclasses import asdict

import numpy as np
import pytest

import geogp
from geogp.errors import InvalidInput
from geogp.suggest import greedy, promises, try_suggestions
from geogp.update import knowing


@pytest.fixture(scope="module")
def rows():
    """A smooth surface, clearly measured: (N, 2) and (N,)."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10_000, (400, 2))
    return X, 1.4 * np.sin(X[:, 0] / 900) * np.cos(X[:, 1] / 700) + 0.2 * rng.standard_normal(400)


@pytest.fixture(scope="module")
def model(rows):
    options = {"steps": 30, "neighbours": 30}
    return geogp.GPRegressor("local-gp", target_transform="identity", options=options).fit(*rows)


def test_blocks_are_hidden_whole_and_their_places_offered_or_judged(rows):
    X = np.concatenate([rows[0], rows[0][:50]])  # some places have two rows
    block = promises._blocks(X, 0)
    assert len(np.unique(block)) >= promises.BLOCKS
    asked = np.arange(len(X)) % 3 > 0
    part = promises._dealt(block, asked, 0)
    for b in np.unique(block):
        assert len(np.unique(part[block == b])) == 1
    sizes = np.bincount(part, asked, minlength=promises.PARTS)
    assert len(sizes) == promises.PARTS and sizes.min() > 0.5 * sizes.mean()
    hidden = asked & (part == 0)
    offered, judged = promises._halves(X, hidden, asked, (0, 1), np.random.default_rng(0))
    assert hidden[offered].all() and hidden[judged].all()
    places = [set(map(tuple, X[some])) for some in (offered, judged)]
    assert not places[0] & places[1] and len(places[0]) == len(offered)
    assert abs(len(places[0]) - len(places[1])) <= 1


def test_what_is_promised_together_is_what_the_choice_promised_one_by_one():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 40))
    C, noise = A @ A.T, rng.uniform(0.5, 2.0, 20)
    found = greedy(C, noise, 6, first_place=20)
    lowered = promises._lowered(C, noise, found.chosen, 20)
    np.testing.assert_allclose(lowered.mean(), found.average_before[0] - found.average_after[-1])


@pytest.mark.parametrize("method", ["local-gp", "dbk-silu", "sgpr"])
def test_a_model_that_comes_to_know_its_own_rows_is_as_it_was(method, rows):
    kind = {"options": {"steps": 5}} if method == "local-gp" else {"epochs": 3, "rank": 16}
    model = geogp.GPRegressor(method, target_transform="identity", **kind).fit(*rows)
    half = np.arange(400) % 2 == 0
    few = knowing(model, rows[0][half], rows[1][half])
    again = knowing(few, *rows)
    P = rows[0][:40] + 100.0
    assert not np.allclose(few.predict(P), again.predict(P), atol=1e-3)
    np.testing.assert_allclose(again.predict(P), knowing(model, *rows).predict(P), rtol=1e-6, atol=1e-7)


def test_a_smooth_surface_keeps_what_was_promised(model, rows):
    kept = try_suggestions(model, *rows, None, 12)
    assert kept.n_parts == promises.PARTS and kept.n_chosen == 12
    assert kept.n_hidden == 400 and 190 <= kept.n_judged <= 210
    assert kept.promised > 1.1 * kept.random_promised > 0
    assert abs(kept.achieved - kept.promised) < 3 * kept.achieved_se
    assert abs(kept.random - kept.random_promised) < 3 * kept.random_se
    assert kept.achieved > 2 * kept.achieved_se  # it tells something
    assert kept.promised < kept.variance_before < kept.error_before
    assert asdict(kept) == asdict(try_suggestions(model, *rows, None, 12))


def test_the_model_does_not_know_what_is_hidden(model, rows):
    """Each block has a level of its own, which only its own rows can tell."""
    X = rows[0]
    levels = 10 * np.random.default_rng(1).standard_normal(400)[promises._blocks(X, 0)]
    kept = try_suggestions(model, X, levels, None, 24)
    assert kept.error_before > 0.5 * levels.var()
    assert kept.achieved > 0.1 * kept.error_before


def test_a_goal_counts_alone(model, rows):
    X, y = rows
    west = X[:, 0] < 5000
    kept = try_suggestions(model, X, y, None, 8, judged=west)
    weighed = try_suggestions(model, X, y, None, 8, weigh=lambda m, P: (P[:, 0] < 5000) + 1e-9)
    assert kept.n_judged < weighed.n_judged
    assert kept.error_before == pytest.approx(weighed.error_before, rel=0.05)


def test_too_few_rows_and_methods_that_cannot_forget_are_refused(model, rows):
    X, y = rows
    with pytest.raises(InvalidInput, match="too few"):
        try_suggestions(model, X, y, None, 5, judged=np.arange(400) < 10)
    exact = geogp.GPRegressor("gp-rbf", epochs=2).fit(X[:60], y[:60])
    with pytest.raises(InvalidInput, match="fit it again"):
        try_suggestions(exact, X[:60], y[:60], None, 2)
