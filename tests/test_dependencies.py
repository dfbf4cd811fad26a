"""What pyproject.toml declares is what the code imports, in both directions; constraints.txt pins what is needed."""

import ast
import sys
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from packaging.utils import canonicalize_name

from tests.supply import PROJECT, ROOT, brought_by, declared, installed, pins

PACKAGES = ("app", "geogp", "maps", "data_pipelines")
#: Who may import what: folders, and the parts of pyproject.toml that serve them.
SERVED = {
    "runtime": (PACKAGES, ("dependencies",)),
    "bench": (("app/peers", "benchmarks"), ("dependencies", "bench", "distributed")),
    "distributed": (
        ("app/cluster", "tests", "benchmarks"),
        ("dependencies", "distributed", "test", "bench", "notebook"),
    ),
    "test": (("tests",), ("dependencies", "test", "bench", "notebook")),
    "notebook": (("tests",), ("dependencies", "test", "bench", "notebook")),
    "lab": ((), ("lab",)),
    "docs": ((".docs",), ("dependencies", "docs")),
}
#: Rooms of the packages that may import an extra, too.
EXTRAS = {"app/peers/": "bench", "app/cluster/": "distributed"}
#: Declared and never imported by us: where each is put to use, and by which words.
UNSEEN = {
    "pytest-timeout": ("pyproject.toml", "timeout ="),
    "pytest-xdist": ("Makefile", "--dist"),
    "httpx2": ("tests/app_dashboard/test_routes.py", "TestClient"),
    "compliance-checker": ("tests/maps/test_raster.py", "compliance-checker"),
    "import-linter": ("Makefile", "lint-imports"),
    "nbclient": ("tests/notebooks/test_notebooks.py", "nbclient"),
    "nbformat": ("tests/notebooks/test_notebooks.py", "nbformat"),
    "ipykernel": ("tests/notebooks/test_notebooks.py", "kernel_name"),
    "jupyterlab": ("Makefile", "jupyter-lab"),
    "ruff": ("Makefile", "ruff check"),
    "mypy": ("Makefile", "mypy"),
    "mkdocstrings": (".docs/mkdocs.yml", "mkdocstrings"),
}
#: Who brings modules of extras that go by another name, also where the extra is not installed.
DISTRIBUTIONS = {"griffe": ["griffelib"]} | packages_distributions()


def names(*parts: str) -> set[str]:
    return {canonicalize_name(r.name) for part in parts for r in declared(part)}


@cache
def imported(folder: str) -> list[tuple[str, set[str]]]:
    """(where, distributions that may provide it) of each import from outside the house."""
    own, found = {*PACKAGES, "benchmarks", "tests"}, []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module]
            else:
                continue
            for top in {m.split(".")[0] for m in modules} - own - sys.stdlib_module_names:
                # Not installed (an extra): its name is as good as any.
                providers = {canonicalize_name(d) for d in DISTRIBUTIONS.get(top, [top])}
                found.append((f"{path.relative_to(ROOT)}:{node.lineno} imports {top}", providers))
    return found


@pytest.mark.parametrize("use", SERVED)
def test_what_is_imported_is_declared(use: str) -> None:
    folders, parts = SERVED[use]
    allowed = names(*parts)
    more = EXTRAS if use == "runtime" else {}
    strangers = [
        where
        for folder in folders
        for where, providers in imported(folder)
        if not providers
        & allowed.union(*(names(part) for room, part in more.items() if where.startswith(room)))
    ]
    assert not strangers, "\n".join(strangers)


@pytest.mark.parametrize("part", ["dependencies", *PROJECT["optional-dependencies"]])
def test_what_is_declared_is_used(part: str) -> None:
    folders = SERVED["runtime" if part == "dependencies" else part][0]
    used = set().union(*(providers for folder in folders for _, providers in imported(folder)))
    idle = {name for name in names(part) - used if not put_to_use(name)}
    assert not idle, f"declared in {part} and never imported: {', '.join(sorted(idle))}"


def put_to_use(name: str) -> bool:
    file, words = UNSEEN.get(name, ("", ""))
    return bool(file) and words in (ROOT / file).read_text()


def test_pins_are_of_what_is_needed() -> None:
    """All that is declared is pinned, and what installs it; no pin has outlived what needed it."""
    parts = ("dependencies", *PROJECT["optional-dependencies"])
    installer = {"uv"} if '"uv"' in (ROOT / ".ci/install.py").read_text() else set()
    assert names(*parts) | installer <= set(pins())
    stale = set(pins()) - brought_by(r for part in parts for r in declared(part)) - installer
    assert not {name for name in stale if installed(name)}
