"""Tables larger than memory: the same rows, batches, scales and posteriors as in memory."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from geogp.basis.statistics import solve
from geogp.data import Data, n_batches
from geogp.errors import ImpossibleCombination, InvalidInput
from geogp.estimator import GPRegressor
from geogp.run import load, save
from geogp.update import refresh, summarise
from geogp.update.streaming import Groups, Streamed, fit_streamed, joined, row_groups, summarise_streamed

SMALL = {"epochs": 3, "rank": 12, "hidden": 16, "fourier_scales": None, "spatial": (0, 1), "time": 2}


@pytest.fixture(scope="module")
def table():
    """X (4000, 3), y (4000,), counts (4000,); in order of time, as tables are."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 9e4, (4000, 2)), np.sort(rng.uniform(2019, 2024, 4000))])
    y = np.sin(X[:, 0] / 1e4) + 0.2 * (X[:, 2] - 2021) + 0.1 * rng.standard_normal(4000)
    return X, y, rng.integers(1, 30, 4000).astype(float)


def grouped(table, sizes):
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def read(g):
        part = slice(starts[g], starts[g + 1])
        X, y, counts = table
        return X[part], y[part], None if counts is None else counts[part]

    return Groups(sizes, read)


def streamed(n, sizes, most_rows):
    """Rows whose value is their number."""
    rows = Data(torch.zeros(n, 1).double(), torch.arange(n).float())
    parts = torch.arange(n).split(sizes)
    return rows, Streamed(rows.X[:5], rows.y[:5], None, sizes, lambda g: rows.rows(parts[g]), most_rows)


def numbers(batches):
    return [batch.y.long().tolist() for batch in batches]


def test_what_fits_is_fitted_as_in_memory(table):
    X, y, counts = table
    groups = grouped(table, [1500, 0, 2500])
    whole = GPRegressor("dbk-silu", **SMALL).fit(X, y, counts)
    found = fit_streamed(GPRegressor("dbk-silu", **SMALL), groups, most_rows=4000)
    for one, other in zip(whole.predict(X[:50], return_std=True), found.predict(X[:50], return_std=True)):
        assert np.array_equal(one, other)


def test_batches_are_those_of_memory_where_all_fits():
    rows, many = streamed(1000, [300, 300, 400], 1000)
    assert len(many) == 1000
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    assert numbers(many.shuffled(64, one)) == numbers(rows.shuffled(64, other))


@pytest.mark.parametrize("size", [1, 7, 64, 150, 400])
@pytest.mark.parametrize("most_rows", [1, 150, 450])
def test_an_epoch_holds_each_row_once_in_full_batches(size, most_rows):
    _, many = streamed(1000, [100] * 9 + [37, 63], most_rows)
    found = numbers(many.shuffled(size, torch.Generator().manual_seed(0)))
    met = [number for batch in found for number in batch]
    assert len(found) == n_batches(1000, size)
    assert all(len(batch) == size for batch in found[:-1]) and len(found[-1]) in (size, 1000 % size)
    assert len(met) == len(set(met)) > 1000 - size / 2 - 1
    assert found != numbers(many.shuffled(size, torch.Generator().manual_seed(1)))
    assert found == numbers(many.shuffled(size, torch.Generator().manual_seed(0)))


def test_groups_are_shuffled_into_each_other_and_no_more_than_the_buffer_is_held():
    _, many = streamed(1000, [100] * 10, 300)
    buffers = list(many._buffers(list(range(10))))
    assert [sum(many.sizes[g] for g in groups) for groups in buffers] == [300, 300, 300, 100]
    first = numbers(many.shuffled(60, torch.Generator().manual_seed(0)))[0]
    assert len({number // 100 for number in first}) == 3


def test_rows_in_order_are_all_rows():
    rows, many = streamed(1000, [300, 0, 700], 10)
    assert torch.equal(joined(list(many.chunks(128))).y, rows.y)


def test_scales_are_those_of_all_rows(table):
    X, y, counts = table
    sizes = [700, 0, 1300, 1, 1999]
    given = (X[:100], y[:100], counts[:100])
    whole = GPRegressor("dbk-silu", **SMALL).fit(X, y, counts, validation=given)
    found = fit_streamed(
        GPRegressor("dbk-silu", **SMALL), grouped(table, sizes), validation=given, most_rows=1000
    )
    for name in ("target_mean_", "target_sd_", "typical_count_", "reference_count_"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=1e-12), name
    assert found.target_range_ == whole.target_range_ and found.time_range_ == whole.time_range_
    assert found.n_rows_ == whole.n_rows_ == 4000
    # So small a table lies in the sample whole, but for the rows of its ends, which lie there twice.
    assert torch.allclose(found.engine_.model.encoder.centre, torch.as_tensor(X.mean(axis=0)), rtol=1e-3)


def test_it_learns_as_well_as_in_memory(table):
    X, y, counts = table
    kept = np.arange(4000) % 5 > 0
    asked = {**SMALL, "epochs": 30}
    whole = GPRegressor("dbk-silu", **asked).fit(X[kept], y[kept], counts[kept])
    part = (X[kept], y[kept], counts[kept])
    found = fit_streamed(GPRegressor("dbk-silu", **asked), grouped(part, [400] * 8), most_rows=1000)
    assert found.n_rows_ == whole.n_rows_ == 2880  # a tenth is held out
    errors = [np.sqrt(np.mean((m.predict(X[~kept]) - y[~kept]) ** 2)) for m in (whole, found)]
    assert errors[1] < 1.15 * errors[0] < 0.5 * y.std()


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1]])
def test_the_posterior_is_exact_in_any_order(table, order):
    X, y, counts = table
    model = GPRegressor("dbk-silu", **SMALL).fit(X, y, counts)
    sizes = [10, 1990, 0, 2000]
    groups = grouped(table, sizes)
    turned = Groups([sizes[g] for g in order], lambda g: groups.read(order[g]))
    found = summarise_streamed(model, turned)
    exact = summarise(model, X, y, counts)["all"]
    one, other = solve(found), solve(exact)
    assert found.n_rows == exact.n_rows and found.basis == exact.basis
    assert torch.allclose(one.weights.mean, other.weights.mean, rtol=1e-8, atol=1e-10)
    assert torch.allclose(one.weights.scale_tril, other.weights.scale_tril, rtol=1e-8, atol=1e-10)
    assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-8)
    new = [refresh(model, [s]).predict(X[:40], return_std=True) for s in (found, exact)]
    for a, b in zip(*new):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_row_groups_of_parquet_are_its_rows(table, tmp_path):
    X, y, counts = table
    path = tmp_path / "rows.parquet"
    columns = {"e": X[:, 0], "n": X[:, 1], "years": X[:, 2], "speed": 10**y, "tests": counts.astype(np.int64)}
    pq.write_table(pa.table({"name": ["tile"] * 4000, **columns}), path, row_group_size=1024)
    groups = row_groups(path, ["e", "n", "years"], "speed", "tests", forward=np.log10)
    assert list(groups.sizes) == [1024, 1024, 1024, 928]
    parts = [groups.read(g) for g in (0, 1, 2, 3)]
    np.testing.assert_array_equal(np.concatenate([p[0] for p in parts]), X)
    np.testing.assert_allclose(np.concatenate([p[1] for p in parts]), y, atol=1e-12)
    np.testing.assert_array_equal(np.concatenate([p[2] for p in parts]), counts)
    assert row_groups(path, ["e"], "speed").read(0)[2] is None
    with pytest.raises(InvalidInput, match="no column 'upload'; it has name, e"):
        row_groups(path, ["e"], "upload")


@pytest.mark.parametrize(
    "method, changes, wrong",
    [
        ("geogp", {}, "'geogp' learns from all rows at once.*: .*dbk-silu"),
        ("sgpr", {}, "'sgpr' learns from all rows at once"),
    ],
)
def test_methods_that_take_all_rows_are_refused(table, method, changes, wrong):
    model = GPRegressor(method, spatial=(0, 1), time=2, **changes)
    with pytest.raises(ImpossibleCombination, match=wrong):
        fit_streamed(model, grouped(table, [2000, 2000]), most_rows=100)


@pytest.mark.parametrize(
    "spoil, wrong",
    [
        (lambda X, y, n: (X, np.where(y == y[3000], np.nan, y), n), "y holds NaN"),
        (
            lambda X, y, n: (np.where(np.isin(X, X[3000, 0]), np.inf, X), y, n),
            "X holds NaN or infinity in group 1",
        ),
        (lambda X, y, n: (X, y, np.where(np.arange(4000) == 3000, 0.0, n)), "counts must be positive"),
        (lambda X, y, n: (X, y[:-1], n), "group 1 was said to have 2000 rows"),
    ],
)
def test_rows_that_are_none_are_refused(table, spoil, wrong):
    groups = grouped(spoil(*table), [2000, 2000])
    with pytest.raises(InvalidInput, match=wrong):
        fit_streamed(GPRegressor("dbk-silu", **SMALL), groups, most_rows=100)


def test_no_rows_are_refused(table):
    with pytest.raises(InvalidInput, match="no row"):
        fit_streamed(GPRegressor("dbk-silu"), Groups([], lambda g: table))
    with pytest.raises(InvalidInput, match="no row"):
        fit_streamed(GPRegressor("dbk-silu"), grouped(table, [0, 0]))


def test_a_run_keeps_what_was_streamed(table, tmp_path):
    X, _, _ = table
    model = fit_streamed(GPRegressor("dbk-silu", **SMALL), grouped(table, [2000, 2000]), most_rows=2500)
    save(tmp_path / "run", model)
    again = load(tmp_path / "run").model
    for one, other in zip(model.predict(X[:20], return_std=True), again.predict(X[:20], return_std=True)):
        assert np.array_equal(one, other)


def test_no_row_and_counts_of_some_groups_alone_are_one_sentence():
    model = GPRegressor("dbk-silu", epochs=1, fourier_scales=None)
    with pytest.raises(InvalidInput, match="no row to learn from"):
        summarise_streamed(model, Groups([], lambda g: None))
    X, y = np.random.default_rng(0).uniform(size=(300, 2)), np.zeros(300)
    mixed = Groups([300, 300], lambda g: (X, y + X[:, 0], None if g else np.ones(300)))
    for most_rows in (10**6, 400):
        with pytest.raises(InvalidInput, match="some groups have counts"):
            fit_streamed(model, mixed, most_rows=most_rows)


@pytest.mark.parametrize("most_rows", [10**6, 2500])
def test_validation_rows_are_looked_at_however_the_table_is_read(table, most_rows):
    model, groups = GPRegressor("dbk-silu", **SMALL), grouped(table, [2000, 2000])
    X, y, n = (column[:50] for column in table)
    for held, words in (((X, np.full(50, np.nan), n), "y holds NaN"), ((X[:9], y, n), "has 9 rows of X")):
        with pytest.raises(InvalidInput, match=words):
            fit_streamed(model, groups, validation=held, most_rows=most_rows)


def test_a_distance_term_grows_from_all_rows_not_from_the_sample(table, monkeypatch):
    """By which inputs are scaled, and from which its size is learned."""
    monkeypatch.setattr("geogp.update.streaming.SAMPLE", 500)
    X, y, _ = table
    groups = grouped((X, y, None), [1500, 1500, 1000])
    held = (X[:10], y[:10], None)
    found = fit_streamed(
        GPRegressor("dbk-silu", residual="distance", **SMALL), groups, validation=held, most_rows=1200
    )
    model = found.engine_.model
    assert len(model.residual.anchors) == 4000
    assert float(model.residual.distance(model.encoder.standardise(torch.as_tensor(X))).max()) == 0.0
    assert 0.01 <= model.residual.taught()["sill"] <= 4.0
