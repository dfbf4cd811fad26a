"""Every example in a docstring of the core runs and gives what it shows."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import doctest
import importlib
import pkgutil
import warnings

import pytest

MODULES = sorted(m.name for m in pkgutil.walk_packages(geogp.__path__, "geogp."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    with warnings.catch_warnings():
        # An example may fit a method that says at fit that its latent sd is not distance-aware.
        warnings.simplefilter("ignore", UserWarning)
        result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples in {name} differ"


def test_the_core_has_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    with_examples = [
        m for m in MODULES if any(t.examples for t in finder.find(importlib.import_module(m), m))
    ]
    assert len(with_examples) > len(MODULES) // 3
