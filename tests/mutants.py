"""Whether the tests notice when a module is changed: `python -m tests.mutants MODULE.py TEST.py ..` lists what survives.

One operator, comparison or number is changed at a time, and the tests are run in a copy of the process. A survivor that
changes a number lacks a test.
"""

import ast
import contextlib
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

SWAPPED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
#: Seconds that the tests may take with a mutant; one that never ends is noticed.
MOST_SECONDS = 60


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """(what was changed, the changed source) of each mutant."""
    for number in range(len(list(_places(ast.parse(source))))):
        tree = ast.parse(source)
        node = list(_places(tree))[number]
        before = ast.unparse(node)
        if isinstance(node, ast.Constant):
            node.value = node.value + 1
        elif isinstance(node, ast.Compare):
            node.ops[0] = SWAPPED[type(node.ops[0])]()
        elif isinstance(node, ast.UnaryOp):
            node.op = ast.UAdd()
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
            node.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
        yield f"line {node.lineno}: {before} -> {ast.unparse(node)}", ast.unparse(tree)


def _places(tree: ast.AST) -> Iterator[ast.expr | ast.AugAssign]:
    for node in ast.walk(tree):
        number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        compared = isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED
        operated = isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPPED
        if number or negative or compared or operated:
            yield node  # type: ignore[misc]


def noticed(module: str, source: str, tests: list[str]) -> bool:
    """Whether the tests fail with the module's source replaced, in a copy of this process."""
    child = os.fork()
    if child == 0:
        signal.alarm(MOST_SECONDS)
        code = 1
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                exec(compile(source, module, "exec"), sys.modules[module].__dict__)
                options = ["-q", "-x", "--assert=plain", "-p", "no:cacheprovider"]
                quiet = [
                    "-W",
                    "ignore::pytest.PytestAssertRewriteWarning",
                ]  # what is imported already stays so
                code = int(pytest.main([*options, *quiet, *tests]))
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] != 0


def main(arguments: list[str]) -> None:
    """Print each survivor, and how many were noticed."""
    file, *tests = arguments
    module = ".".join(Path(file).with_suffix("").parts)
    warnings.simplefilter("ignore")
    importlib.import_module(module)
    source = Path(file).read_text(encoding="utf-8")
    if noticed(module, source, tests):
        raise SystemExit("The tests fail without any change; mend them first.")
    total = survived = 0
    for what, changed in mutants(source):
        total += 1
        if not noticed(module, changed, tests):
            survived += 1
            print(f"survived {what}", flush=True)
    print(f"{file}: {total - survived} of {total} noticed")


if __name__ == "__main__":
    main(sys.argv[1:])
