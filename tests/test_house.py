"""How the house is built: small rooms, short files, no circle, one name once, a reason for each exception."""

import ast
import dataclasses
import graphlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

from geogp.engines import ENGINES
from geogp.engines.check import CHOICES
from geogp.methods import METHODS, Method

ROOT = Path(__file__).parents[1]
PACKAGES = ("app", "geogp", "maps", "data_pipelines")
FOLDERS = sorted(
    str(folder.relative_to(ROOT))
    for package in PACKAGES
    for folder in [ROOT / package, *(ROOT / package).rglob("*/")]
    if "__pycache__" not in folder.parts
)
FILES = sorted(str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

MOST_ENTRIES = 30
MOST_LINES = 500
#: Words by which the first paragraph of a longer file gives its reason.
REASON = "long because"
#: Files that may name methods: the table, and what sets the papers' tables beside ours.
NAMING = ("geogp/methods.py", "geogp/reproduce/")
#: Columns of a row that are words for people.
WORDS = {"instead", "name", "summary", "paper", "equations", "use_when", "cost"}


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def test_the_four_packages_lie_side_by_side() -> None:
    for package in PACKAGES:
        assert (ROOT / package / "__init__.py").exists() and (ROOT / package / "py.typed").exists()


def test_a_folder_is_taken_in_at_a_glance() -> None:
    sizes = {folder: sum(e.name != "__pycache__" for e in (ROOT / folder).iterdir()) for folder in FOLDERS}
    assert not {folder: n for folder, n in sizes.items() if n > MOST_ENTRIES}, "make a room of some"


def test_a_file_is_short_or_says_why_not() -> None:
    def excused(file: str) -> bool:
        return REASON in (ast.get_docstring(tree(file)) or "").split("\n\n")[0]

    lengths = {file: len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert not {f: n for f, n in lengths.items() if n > MOST_LINES and not excused(f)}, (
        f"none says {REASON!r}"
    )


def test_the_guide_names_rooms_that_there_are() -> None:
    """Each file and folder in backticks is one of the tree, or the end of one's path."""
    rooms = [*FOLDERS, "benchmarks", "tests"]
    there = [f"/{path}" for path in FILES] + [f"/{folder}/" for folder in rooms]
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = guide.split("## The house")[1].split("## To add")[0]
    named = re.findall(r"`([\w./]+(?:\.py|/))`", table)
    assert len(named) > 40
    assert not [name for name in named if not any(path.endswith(f"/{name}") for path in there)]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_in_no_circle(package: str) -> None:
    """Neither when modules load, nor inside functions, nor for the type checker's eyes alone."""
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


# -- a row is the method --------------------------------------------------------------------------------


#: Columns that name another row.
STAND_INS = ("without_position", "without_position_once", "beyond")


def choices(row: Method) -> Iterator[tuple[str, str]]:
    """(column, value) of all that a row chooses by name."""
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if isinstance(value, str) and value and field.name not in WORDS:
            yield field.name, value


def test_every_value_of_a_row_is_a_key_of_a_registry() -> None:
    registries = {**CHOICES, "engine": ENGINES, **dict.fromkeys(STAND_INS, METHODS)}
    registries["residual_of_features"] = CHOICES["residual"]
    unknown = {
        f"{kind} {part!r}"
        for row in METHODS.values()
        for kind, value in choices(row)
        for part in value.split("+")
        if part not in registries.get(kind, {})
    }
    assert not unknown


def named(file: str) -> Iterator[tuple[int, str]]:
    """(line, name) where a file names a method.

    A method that is called like a piece it is made of ("softki"), or like the project, is named only where something
    called `method` is compared with it, or defaults to it, and where something's `.name` is compared with it.
    """
    pieces = {"geogp"} | {v for row in METHODS.values() for k, v in choices(row) if k not in STAND_INS}
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Constant) and node.value in METHODS and node.value not in pieces:
            yield node.lineno, str(node.value)
        elif isinstance(node, ast.JoinedStr):  # a message that names one in quotes
            said = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            yield from ((node.lineno, name) for name in METHODS if f"'{name}'" in said and name not in pieces)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(
                called(s) == "method" or (isinstance(s, ast.Attribute) and s.attr == "name") for s in sides
            ):
                yield from (
                    (node.lineno, name) for side in sides for name in names_in(side) if name in pieces
                )
        elif isinstance(node, ast.AnnAssign | ast.keyword | ast.arguments):
            for who, value in given(node):
                if who == "method":
                    yield from ((value.lineno, name) for name in names_in(value) if name in pieces)


def called(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_in(node: ast.AST) -> Iterator[str]:
    yield from (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and n.value in METHODS)


def given(node: ast.AnnAssign | ast.keyword | ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of a field with a default, an argument of a call, or the defaults of a function."""
    if isinstance(node, ast.AnnAssign):
        pairs = [(called(node.target), node.value)]
    elif isinstance(node, ast.keyword):
        pairs = [(node.arg or "", node.value)]
    else:
        plain = [*node.posonlyargs, *node.args]
        pairs = [(a.arg, d) for a, d in zip(plain[len(plain) - len(node.defaults) :], node.defaults)]
        pairs += [(a.arg, d) for a, d in zip(node.kwonlyargs, node.kw_defaults)]
    yield from ((who, value) for who, value in pairs if value is not None)


def test_no_code_names_a_method() -> None:
    found = {
        f"{file}:{line} {name}" for file in FILES if not file.startswith(NAMING) for line, name in named(file)
    }
    assert not found, "ask a column of the row, or methods.py for its default:\n" + "\n".join(sorted(found))


# -- exceptions give their reason -----------------------------------------------------------------------


def test_an_ignored_type_says_why() -> None:
    bare = [
        f"{file}:{number} {line.strip()}"
        for file in FILES
        for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), 1)
        if "# type: ignore" in line and not re.search(r"# type: ignore\[[a-z, -]+\]  # \w", line)
    ]
    assert not bare, "\n".join(bare)
