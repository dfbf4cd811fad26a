"""A piece or a row is added by one file and one line: each is written to a folder of its own here, and seen everywhere."""

import importlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import geogp
from geogp.basis.expansions import EXPANSIONS
from geogp.basis.noise import NOISES
from geogp.basis.objectives import OBJECTIVES
from geogp.basis.residuals import RESIDUALS
from geogp.engines import ENGINES
from geogp.methods import METHODS
from geogp.pages import choices, formula, page
from geogp.registry import REGISTRIES, check_names, registry
from geogp.update import updatable
from tests.geogp import test_contracts as contracts

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")

FILES = {
    "expansion": '''
import torch

from geogp.basis.expansions.base import Expansion


class Cosines(Expansion):
    """Cosines of the sum of the inputs, at slopes that are learned."""

    formula = "phi(h) = cos(a sum h) / sqrt(r)"

    def __init__(self, n_inputs, rank):
        super().__init__()
        self.rank = rank
        self.slope = torch.nn.Parameter(torch.linspace(0.5, 2.0, rank))

    def forward(self, h):
        return torch.cos(h.sum(1, keepdim=True) * self.slope) / self.rank**0.5
''',
    "residual": '''
from geogp.basis.residuals.base import Residual


class Tenth(Residual):
    """A tenth of the prior variance, everywhere."""

    formula = "var r(x) = .1"

    def variance(self, expansion, Z, h, phi):
        return 0.1 + 0.0 * phi[:, 0]
''',
    "noise": '''
from geogp.basis.noise.base import Noise
from geogp.basis.noise.constant import Constant


class Doubled(Constant):
    """Twice one variance, for the careful."""

    formula = "e ~ N(0, 2 s^2)"

    def forward(self, Z, counts):
        return 2.0 * super().forward(Z, counts)
''',
    "objective": '''
from geogp.basis.objectives.objective import LEARNS, objective
from geogp.densities import gaussian_nll


@objective(LEARNS, "mean -log N(y; mu, s_f^2 + s^2) + 2 KL/n")
def sober(terms, weights):
    """The predictive likelihood with twice the KL."""
    variance = terms.latent_variance + terms.noise_variance
    return gaussian_nll(terms.y, terms.mean, variance).mean() + 2.0 * terms.kl / terms.n_total
''',
}
PIECES = {
    "expansion": (EXPANSIONS, "cosines", "piece.Cosines"),
    "residual": (RESIDUALS, "tenth", "piece.Tenth"),
    "noise": (NOISES, "doubled", "piece.Doubled"),
    "objective": (OBJECTIVES, "sober", "piece.sober"),
}


@pytest.fixture(params=FILES)
def added(request, tmp_path, monkeypatch):
    """(kind, name): one file in a folder, one line in the registry."""
    kind = request.param
    package = f"added_{kind}"
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "piece.py").write_text(FILES[kind])
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    entries, name, where = PIECES[kind]
    monkeypatch.setitem(entries, name, registry(package, {name: where})[name])
    yield kind, name
    for module in (package, f"{package}.piece"):
        sys.modules.pop(module, None)


def test_a_piece_is_fitted_saved_and_on_the_page(added, monkeypatch):
    kind, name = added
    # Solved weights are below their prior from the first step on; learned ones come there with training.
    plain = "dbk-silu-exact" if kind == "expansion" else "dbk-silu"
    row = replace(METHODS[plain], name="with-it", **{kind: name})
    monkeypatch.setitem(METHODS, "with-it", row)
    text = page("with-it")
    assert f"| {kind} | {name} | " in text and "|  |" not in text
    if kind != "noise":
        assert PIECES[kind][0][name].formula in "\n".join(formula(row))
    for given in ("with-it", plain):
        model = contracts.small(given, **({} if given == "with-it" else {kind: name}))
        X, y = contracts.field()
        model.fit(X, y)
        contracts.sound(model, X)
        again = geogp.GPRegressor.from_state(*model.state())
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_piece_passes_the_contract_of_its_registry(added):
    kind, name = added
    if kind == "expansion":
        contracts.test_expansion_shape(name, 2)
        contracts.test_expansion_gradients(name)
        contracts.test_expansion_saves_loads_and_repeats(name)
    elif kind == "residual":
        contracts.test_residual_variances(name)
    elif kind == "noise":
        contracts.test_noise_variances(name, False)
    else:
        assert OBJECTIVES[name].does in ENGINES["lowrank"].objectives_do


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_of_any_engine_has_its_page_its_fit_and_its_place_in_the_lists(engine, monkeypatch):
    like = next(row for row in METHODS.values() if row.engine == engine)
    row = replace(like, name="one-more", summary="one more row for a test")
    monkeypatch.setitem(METHODS, "one-more", row)
    text = page("one-more")
    assert text.startswith("# one-more\n") and "One more row for a test." in text and "|  |" not in text
    assert ("one-more" in updatable()) == (like.name in updatable())
    assert [value for _, value, _ in choices(row)] == [value for _, value, _ in choices(like)]
    X, y = contracts.field()
    model = contracts.small("one-more").fit(X, contracts.for_method("one-more", y))
    contracts.sound(model, X)
    twin = contracts.small(like.name).fit(X, contracts.for_method(like.name, y))
    np.testing.assert_array_equal(model.predict(X), twin.predict(X))  # nothing asks for a row's name
    contracts.test_method_reverts_to_its_prior_or_says_that_it_need_not("one-more")


@pytest.mark.parametrize("name", METHODS)
def test_every_value_in_a_row_is_registered_and_has_words(name):
    for kind, value, words in choices(METHODS[name]):
        assert words, (kind, value)


#: Registries as the source has them, and only then as they are imported: one process looks at all.
READ = """
import sys
from geogp import registry
read = {}
for kind, where in registry.REGISTRIES.items():
    read[kind] = list(registry._names(kind))
    assert where.rpartition(".")[0] not in sys.modules, kind
assert read and "torch" not in sys.modules
for kind, names in read.items():
    assert names == list(registry.registered(kind)) and names, (kind, names)
"""


def test_names_are_read_from_the_source_as_they_are_registered():
    """What has not been imported, for that takes seconds, is read."""
    subprocess.run([sys.executable, "-c", READ], check=True)


@pytest.mark.parametrize("kind", list(REGISTRIES))
def test_a_name_that_is_not_registered_is_refused(kind):
    with pytest.raises(geogp.errors.ImpossibleCombination, match=f"there is no {kind} 'bogus'; choose from"):
        check_names({"rank": 7, kind: "bogus"})


@pytest.mark.parametrize("noise", ["", "counts smooth", "counts+smooth"])
def test_a_noise_that_is_none_is_refused_by_methods_that_have_one_of_their_own_too(noise):
    X, y = contracts.field()
    with pytest.raises(geogp.errors.ImpossibleCombination, match="there is no noise"):
        geogp.GPRegressor("geogp", noise=noise).fit(X, y)
