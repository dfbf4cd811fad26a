"""Made-up fields and kriging that knows them: the bound is one, whatever the field; runs go on; tables say what was found."""

import json

import numpy as np
import pytest

from benchmarks import bound, fields, page
from benchmarks.fields import FIELDS, best, draw


@pytest.mark.parametrize("name", FIELDS)
def test_who_knows_all_is_as_sure_as_right(name):
    """Errors over their sd have a mean square of one, in each field, and so have rows whitened by the kernel and the noise that it
    tells: its draws are of these."""
    field, squares, energy = FIELDS[name], [], []
    for seed in range(12):
        drawn = draw(field, 80, seed)
        assert (
            drawn.asked.shape[1]
            == drawn.X.shape[1]
            == 2 + field.time + {"covariate": 1, "idle": 4}.get(name, 0)
        )
        assert len(drawn.X) == len(drawn.y) <= 80 and (drawn.counts is None) == (field.counts is None)
        mean, sd = best(field, drawn)
        if sd.max() > 0:
            squares.append(float((((drawn.surface - mean) / sd) ** 2).mean()))
        assert ((drawn.asked_y - drawn.surface) / drawn.asked_noise_sd).std() == pytest.approx(1.0, abs=0.5)
        K = field.kernel(drawn.X, drawn.X) + np.diag(drawn.noise_sd**2)
        L, F = np.linalg.cholesky(K), field.columns(drawn.X)
        value, columns = np.linalg.solve(L, drawn.y), np.linalg.solve(L, F)
        left = value - columns @ np.linalg.lstsq(columns, value, rcond=None)[0]
        energy.append(float(left @ left) / (len(left) - F.shape[1]))
    assert np.mean(energy) == pytest.approx(1.0, abs=5 * np.sqrt(2 / (12 * len(left))))
    if squares:  # errors of a draw go together, how much depends on the field
        assert np.mean(squares) == pytest.approx(1.0, abs=5 * np.std(squares) / np.sqrt(12))


def test_the_bound_is_the_posterior_of_all_that_is_unknown():
    """Against one large normal of surface, weights (sd 1e4) and rows, conditioned on the rows."""
    field = FIELDS["slope-field"]
    drawn = draw(field, 40, 1)
    both = np.concatenate([drawn.X, drawn.asked])
    F = field.columns(both)
    prior = field.kernel(both, both) + 1e8 * F @ F.T
    noisy = prior[:40, :40] + np.diag(drawn.noise_sd**2)
    gain = np.linalg.solve(noisy, prior[:40, 40:]).T
    mean, sd = best(field, drawn)
    np.testing.assert_allclose(mean, gain @ drawn.y, atol=1e-4)
    np.testing.assert_allclose(sd**2, np.diag(prior[40:, 40:] - gain @ prior[:40, 40:]), rtol=1e-3)


def test_a_ratio_lengthens_one_diagonal_and_keeps_the_mean():
    kernel, side = fields.matern(1.5, ratio=4.0), fields.LENGTH_M / np.sqrt(2.0)
    origin = np.zeros((1, 2))
    along, across = kernel(origin, np.array([[side, side]])), kernel(origin, np.array([[side, -side]]))
    assert along[0, 0] == pytest.approx(fields.correlation(1.5, np.array(0.5)))
    assert across[0, 0] == pytest.approx(fields.correlation(1.5, np.array(2.0)))
    # The kernels are correlations that a process can have.
    X = fields.anywhere(np.random.default_rng(0), 50)
    for nu in (0.5, 1.5, 2.5, np.inf):
        assert np.linalg.eigvalsh(fields.matern(nu)(X, X)).min() > -1e-8
        assert fields.correlation(nu, np.array(0.0)) == 1.0


def test_runs_go_on_and_tables_say_what_was_found(tmp_path, capsys):
    out = tmp_path / "bound.json"
    asked = ["--only", "plain", "--rows", "40", "--seeds", "0", "--out", str(out)]
    assert bound.main(asked) == 0
    first = page.read(out)["rows"]
    assert [(row["field"], row["rows"], row["seed"]) for row in first] == [("plain", 40, 0)]
    (row,) = first
    assert row["bound"]["rmse"] * 0.8 < row["ours"]["rmse"] < row["bound"]["rmse"] * 2
    assert all(a <= b for a, b in zip(row["ours"]["surface"], row["ours"]["surface"][1:]))
    assert bound.main(asked) == 0 and page.read(out)["rows"] == first
    row["ours"] |= {"rmse": 3 * row["bound"]["rmse"], "surface": [0.4, 0.7, 0.8]}
    out.write_text(json.dumps({"schema": 1, "rows": [row]}))
    capsys.readouterr()
    assert bound.main([*asked, "--report"]) == 0
    said = capsys.readouterr().out
    assert "**3.00**" in said and "40 / 70 / **80**" in said and "plain: Matérn 3/2" in said
    assert bound.main(["--only", "nowhere"]) == 2 and "there is no field 'nowhere'" in capsys.readouterr().err
