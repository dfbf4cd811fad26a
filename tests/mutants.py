"""Whether the tests notice when a module is changed: `python -m tests.mutants geogp/scores.py` lists what survives.

One operator, comparison, number, condition or call is changed at a time, on disk in a copy of the repository, so that
whatever imports the module gets the mutant, processes that a test starts, too. A first run without change says
which lines each test passes and for how long: a mutant meets the tests of its line, the quickest first, and one that
survives them meets all tests of its module. `tests/faults/mutants.toml` says which those are and which survivors change
nothing; without a module all of them are measured. What was found is kept in `tests/faults/mutants.json` and printed as
a table by `python -m tests.mutants --table`. A module of a hundred mutants takes a quarter of an hour of one core.
`--again` before the modules: tests were only added to, so those mutants that were noticed are not tried again.
"""

import argparse
import ast
import contextlib
import hashlib
import importlib
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PLAN, FOUND = ROOT / "tests/faults/mutants.toml", ROOT / "tests/faults/mutants.json"
OURS = ("app", "geogp", "maps", "data_pipelines", "tests", "benchmarks", "conftest")
SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
ENDS = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}
#: Seconds that the tests may take with a mutant, beyond three times what they take; one that never ends is noticed.
MORE_SECONDS = 30
MOST_BYTES = 12 * 2**30


def mutants(source: str) -> Iterator[tuple[int, int, str, str]]:
    """(first line, last line, what was changed and in which function, the changed source) of each mutant."""
    times: Counter[str] = Counter()
    for number in range(len(list(_places(ast.parse(source))))):
        tree = ast.parse(source)
        node, put = list(_places(tree))[number]
        first, last = node.lineno, node.end_lineno or node.lineno
        inside = [
            f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.lineno <= first <= f.end_lineno
        ]
        before, changed = ast.unparse(node), _changed(node)
        put(changed)
        within = inside[-1].name if inside else "module"
        said = f"{within}: {before.splitlines()[0]} -> {ast.unparse(changed).splitlines()[0]}"
        times[said] += 1
        said += f" ({times[said]})" if times[said] > 1 else ""
        yield first, last, said, ast.unparse(ast.fix_missing_locations(tree))


def _changed(node: Any) -> Any:
    if isinstance(node, ast.Constant):
        return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.UnaryOp):
        return node.operand
    if isinstance(node, ast.Compare):
        return ast.Compare(node.left, [SWAPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BinOp):
        return ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(SWAPPED[type(node.op)](), node.values)
    if isinstance(node, ast.AugAssign):
        return ast.AugAssign(node.target, SWAPPED[type(node.op)](), node.value)
    if isinstance(node, ast.Name) and node.id in ENDS:
        return ast.Name(ENDS[node.id], node.ctx)
    if isinstance(node, ast.Attribute) and node.attr in ENDS:
        return ast.Attribute(node.value, ENDS[node.attr], node.ctx)
    if isinstance(node, ast.Raise | ast.Expr):
        return ast.Pass()
    return ast.UnaryOp(ast.Not(), node)


def _places(tree: ast.AST) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """Each node that can be changed, with what puts another in its place; annotations and docstrings are left."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for at, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(node, ast.AST) and not _annotates(tree, node) and _changes(parent, name, node):
                    yield node, _putter(parent, name, at)


def _annotates(tree: ast.AST, node: ast.AST) -> bool:
    """Whether the node is a part of an annotation, whose ids are gathered once a tree."""
    if not hasattr(tree, "annotated"):
        tree.annotated = {  # type: ignore[attr-defined]
            id(part)
            for owner in ast.walk(tree)
            for name in ("annotation", "returns")
            if isinstance(hint := getattr(owner, name, None), ast.AST)
            for part in ast.walk(hint)
        }
    return id(node) in tree.annotated  # type: ignore[attr-defined]


def _changes(parent: ast.AST, name: str, node: Any) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float, bool)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub | ast.Not)
    if isinstance(node, ast.Compare):
        return type(node.ops[0]) in SWAPPED
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        return type(node.op) in SWAPPED
    if isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if name == "func" and isinstance(node, ast.Name | ast.Attribute):
        return getattr(node, "id", getattr(node, "attr", "")) in ENDS
    return name in ("test", "ifs") and ast.unparse(node) != "TYPE_CHECKING"


def _putter(parent: ast.AST, name: str, at: int | None) -> Callable[[Any], None]:
    def put(changed: Any) -> None:
        if at is None:
            setattr(parent, name, changed)
        else:
            getattr(parent, name)[at] = changed

    return put


class Seen:
    """A plugin of pytest: which tests pass each line of a file, how long each takes, and what was imported for it."""

    def __init__(self, file: Path) -> None:
        self.file, self.test = str(file), ""
        self.lines: dict[int, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test, self.seconds[nodeid] = nodeid, 0.0
        sys.settrace(self.enter)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_runtest_logfinish(self) -> None:
        sys.settrace(None)

    def enter(self, frame: FrameType, event: str, arg: object) -> Any:
        return self.line if frame.f_code.co_filename == self.file else None

    def line(self, frame: FrameType, event: str, arg: object) -> Any:
        self.lines[frame.f_lineno].add(self.test)
        return self.line


def played(
    tests: Sequence[str], seconds: float | None = None, plugin: Seen | None = None
) -> tuple[bool, Any]:
    """(whether all tests pass, what the plugin saw), in a copy of this process that has imported nothing of ours."""
    out = Path(tempfile.mkstemp()[1])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            with out.with_suffix(".log").open("w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES,) * 2)
            import pytest

            options = ["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:timeout"]
            quiet = [
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
                "-W",
                "ignore::pytest.PytestConfigWarning",
            ]
            code = int(pytest.main([*options, *quiet, *tests], plugins=[plugin] if plugin else []))
            if plugin:
                out.write_bytes(pickle.dumps((dict(plugin.lines), plugin.seconds, sorted(sys.modules))))
        finally:
            os._exit(code)
    until, done = time.monotonic() + (seconds or 3600), (0, 0)
    while not done[0] and time.monotonic() < until:
        done = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # and what its tests have started
        os.killpg(child, signal.SIGKILL)
    if not done[0]:
        os.waitpid(child, 0)
        done = (child, 1)
    seen = pickle.loads(out.read_bytes()) if plugin and out.stat().st_size else None
    if plugin and done[1]:
        print(out.with_suffix(".log").read_text()[-3000:])
    out.unlink()
    out.with_suffix(".log").unlink(missing_ok=True)
    return done[1] == 0, seen


def measured(file: str, tests: Sequence[str], only: Sequence[str] | None = None) -> tuple[int, list[str]]:
    """(how many mutants, what was changed in each that survived). Runs in the copy, whose file it writes over.

    only : those that are tried, None for all; the others are taken for noticed
    """
    path = Path(file).resolve()
    source = path.read_text(encoding="utf-8")
    for _ in range(2):  # the second time without the imports, which the first says
        passed, seen = played(tests, plugin=Seen(path))
        if not passed or seen is None:
            raise SystemExit("The tests fail without any change; mend them first.")
        lines, seconds, modules = seen
        with warnings.catch_warnings(action="ignore"):
            for name in modules:
                if name.split(".")[0] not in OURS:
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
    whole, everything = sum(seconds.values()), sorted(seconds, key=seconds.__getitem__)
    os.environ["PYTHONDONTWRITEBYTECODE"], sys.dont_write_bytecode = "1", True
    total, survived = 0, []
    for first, last, what, changed in mutants(source):
        total += 1
        if only is not None and what not in only:
            continue
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):
            stale.unlink()
        path.write_text(changed, encoding="utf-8")
        near = set().union(*(lines.get(line, set()) for line in range(first, last + 1)))
        ordered = [name for name in everything if name in near]
        passed = not ordered or played(ordered, 3 * sum(map(seconds.__getitem__, ordered)) + MORE_SECONDS)[0]
        if passed and played(everything, 3 * whole + MORE_SECONDS)[0]:
            survived.append(what)
            print(f"survived line {first}: {what}", flush=True)
    path.write_text(source, encoding="utf-8")
    return total, survived


def copied(folder: Path) -> None:
    """What git knows of, and what it does not ignore, into the folder."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(asked, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split(
        "\0"
    ):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def digest(file: str, tests: Sequence[str]) -> str:
    """Of a module and its tests: what was found of others is old."""
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in (file, *tests))).hexdigest()[:16]


def survivors(file: str) -> list[str] | None:
    """What survived of a module that is still as it was then; None of any other."""
    row = json.loads(FOUND.read_text(encoding="utf-8")).get(file, {}) if FOUND.exists() else {}
    return row["survived"] if row.get("source") == digest(file, ()) else None


def table() -> str:
    """What was found so far, a row a module."""
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))
    out = ["| module | mutants | noticed | change nothing | survive | |", "|---|---|---|---|---|---|"]
    for file, row in json.loads(FOUND.read_text(encoding="utf-8")).items():
        nothing = [what for what in row["survived"] if what in plan[file].get("same", {})]
        left, old = len(row["survived"]) - len(nothing), row["sha256"] != digest(file, plan[file]["tests"])
        noticed = row["mutants"] - len(row["survived"])
        note = "module or tests have changed since" if old else ""
        out.append(f"| `{file}` | {row['mutants']} | {noticed} | {len(nothing)} | {left} | {note} |")
    return "\n".join(out) + "\n"


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "modules", nargs="*", help="paths of modules of the plan; all of them where none is named"
    )
    parser.add_argument("--again", action="store_true", help="try only those mutants that nothing noticed")
    parser.add_argument("--table", action="store_true", help="print what was found, and stop")
    parser.add_argument("--here", nargs=3, metavar=("MODULE", "ONLY", "OUT"), help=argparse.SUPPRESS)
    return parser


def main(argv: list[str] | None = None) -> None:
    """Measure the modules that are named, or all of the plan, and keep what was found of each."""
    parser = arguments()
    options = parser.parse_args(argv)
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))
    if unknown := [file for file in options.modules if file not in plan]:
        parser.error(
            f"{PLAN.relative_to(ROOT)} says no tests of {', '.join(unknown)}; add a table of that name"
        )
    if options.table:
        print(table(), end="")
    elif options.here:
        file, only, out = options.here
        found = measured(file, plan[file]["tests"], json.loads(only))
        Path(out).write_text(json.dumps(found), encoding="utf-8")
    else:
        for file in options.modules or plan:
            only = survivors(file) if options.again else None
            with tempfile.TemporaryDirectory() as folder:
                copied(Path(folder) / "copy")
                out = Path(folder) / "out.json"
                subprocess.run(
                    [sys.executable, "-m", "tests.mutants", "--here", file, json.dumps(only), str(out)],
                    cwd=Path(folder) / "copy",
                    env=os.environ | {"PYTHONPATH": str(Path(folder) / "copy"), "OMP_NUM_THREADS": "1"},
                    check=True,
                )
                total, survived = json.loads(out.read_text(encoding="utf-8"))
            found = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
            found[file] = {
                "mutants": total,
                "survived": survived,
                "source": digest(file, ()),
                "sha256": digest(file, plan[file]["tests"]),
            }
            FOUND.write_text(json.dumps({k: found[k] for k in plan if k in found}, indent=1) + "\n")
            nothing = [what for what in survived if what in plan[file].get("same", {})]
            print(
                f"{file}: {total - len(survived)} of {total} noticed, {len(nothing)} change nothing",
                flush=True,
            )


if __name__ == "__main__":
    main()
