"""Every method was compared with something that is not itself, by a test that uses the bound it promises."""

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from geogp.methods import METHODS
from tests import agreement
from tests.agreement import ROOT, Agreement, agreements, mark_of, page

FOUND = agreements()
#: Keywords by which pytest, numpy and torch take a bound.
BOUNDS = {"atol", "rtol", "abs", "rel"}


def body(found: Agreement) -> ast.FunctionDef:
    """The syntax of a test."""
    file, name = found.test.split("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_agrees_with_something(name: str) -> None:
    assert any(name in found.methods for found in FOUND), (
        f"no test marked `agrees` names {name}: compare its posterior with a dense computation (tests/geogp/test_dense.py)"
    )


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.test.split("::")[1][:60])
def test_the_bound_on_the_page_is_the_one_that_the_test_uses(found: Agreement) -> None:
    function = body(found)
    assert "tolerance" in {a.arg for a in function.args.args}, "take the fixture `tolerance`"
    names = [n.id for n in ast.walk(function) if isinstance(n, ast.Name)]
    assert "tolerance" in names, "use it"
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    assert "tolerance" not in stored, "leave it as it is"
    others = [
        keyword.value.value
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and mark_of(call) is None
        for keyword in call.keywords
        if keyword.arg in BOUNDS and isinstance(keyword.value, ast.Constant)
    ]
    assert all(bound <= found.tolerance for bound in others), f"bounds of its own: {others}"
    assert set(found.methods) <= set(METHODS) and found.tolerance <= 1e-2


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.test.split("::")[1][:60])
def test_a_page_names_the_methods_that_a_test_runs_with(found: Agreement) -> None:
    file, name = found.test.split("::")
    spec = importlib.util.spec_from_file_location("looked_at", ROOT / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    marks: list[Any] = getattr(module, name).pytestmark
    asked = [m.args[1] for m in marks if m.name == "parametrize" and m.args[0] in ("name", "method")]
    for values in asked:
        assert sorted(found.methods) == sorted(values)
    (mark,) = (m for m in marks if m.name == agreement.MARK)
    assert Agreement(**{**mark.kwargs, "methods": tuple(mark.kwargs["methods"])}, test=found.test) == found


def test_the_page_has_every_method_and_a_command_for_every_check(tmp_path: Path) -> None:
    text = page(list(METHODS), FOUND)
    for name in METHODS:
        assert f"| [{name}](methods/{name}.md) |" in text
    commands = re.findall(r"^\d+\. `\.venv/bin/python -m pytest (\S+)::(\w+)`$", text, re.MULTILINE)
    assert len(commands) == len(FOUND) and all((ROOT / file).exists() for file, _ in commands)
    # A mark that is added is on the page, and nothing of it can be computed elsewhere.
    (tmp_path / "test_new.py").write_text(
        "@pytest.mark.agrees(methods=['sgpr'], of='f', with_='g', tolerance=1e-4, source='s')\ndef test_it(tolerance):\n    pass\n"
    )
    (new,) = agreements(tmp_path)
    assert "| f | g | 0.0001 | s | 1 |" in page(["sgpr"], [new])
    (tmp_path / "test_new.py").write_text("@pytest.mark.agrees(methods=ALL)\ndef test_it():\n    pass\n")
    with pytest.raises(ValueError):
        agreements(tmp_path)
