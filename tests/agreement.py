"""What each method was found to agree with, read from the tests that found it, without running them.

A test says so with `@pytest.mark.agrees(methods=.., of=.., with_=.., tolerance=.., source=..)`, all of them literals, and
takes the bound it uses from there, by the fixture `tolerance`: the page that `make docs` makes of it cannot lie.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "agrees"


@dataclass(frozen=True)
class Agreement:
    """One test's claim.

    methods : rows of the method table
    of, with_ : what is compared, and with what
    tolerance : largest difference; relative where `relative` says so
    source : where the formula or number comes from
    test : "file::function", as pytest takes it
    """

    methods: tuple[str, ...]
    of: str
    with_: str
    tolerance: float
    source: str
    test: str
    relative: bool = False


def agreements(folder: Path = ROOT / "tests") -> list[Agreement]:
    """All of them, by file and line.

    Raises
    ------
    ValueError
        where a mark is not written in literals.
    """
    return [found for file in sorted(folder.rglob("test_*.py")) for found in _in(file)]


def _in(file: Path) -> Iterator[Agreement]:
    name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            for call in map(mark_of, node.decorator_list):
                if call is not None:
                    said = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
                    said["methods"] = tuple(said["methods"])
                    yield Agreement(**said, test=f"{name}::{node.name}")


def mark_of(decorator: ast.expr) -> ast.Call | None:
    """The call `pytest.mark.agrees(..)`, if a decorator is that."""
    called = isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute)
    return decorator if called and decorator.func.attr == MARK else None  # type: ignore[union-attr]


def page(methods: Sequence[str], found: Sequence[Agreement]) -> str:
    """Markdown: each method with the checks that it passes, then each check with the command that runs it."""
    tests = list(dict.fromkeys(each.test for each in found))
    lines = [
        "# Correctness",
        "",
        "Each method of the table beside what it was found to agree with: a plain dense computation over all rows, another "
        "library or a published formula. Made from the tests themselves, which read their tolerance from the same line; "
        "`make test` runs them all.",
        "",
        "| method | what agrees | with | within | source | check |",
        "|---|---|---|---|---|---|",
    ]
    for name in methods:
        for each in (a for a in found if name in a.methods):
            bound = f"{each.tolerance:g}{' of it' if each.relative else ''}"
            at = tests.index(each.test) + 1
            lines.append(
                f"| [{name}](methods/{name}.md) | {each.of} | {each.with_} | {bound} | {each.source} | {at} |"
            )
    lines += ["", "## Checks", ""]
    lines += [f"{i}. `.venv/bin/python -m pytest {test}`" for i, test in enumerate(tests, 1)]
    return "\n".join(lines) + "\n"
