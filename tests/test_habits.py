"""What surrounds the code says the same as the code: hooks, workflow, issue forms, citation."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def read(path: str | Path) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def recipe(target: str) -> list[str]:
    """The command lines of a target of the Makefile, for the virtual environment `.venv`."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_the_hooks_run_what_make_check_runs() -> None:
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == recipe("check")
    assert {hook["language"] for hook in hooks} == {"system"}


def test_the_workflow_runs_the_script_that_everyone_runs() -> None:
    commands = [
        step["run"] for job in read(".github/workflows/ci.yml")["jobs"].values() for step in job["steps"][1:]
    ]
    assert commands == [".ci/run"]
    made = re.findall(r"^make (.+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert {"check", "docs", "test"} <= {word for line in made for word in line.split()}


@pytest.mark.parametrize("form", FORMS, ids=[form.stem for form in FORMS])
def test_issue_forms_are_ones_that_github_shows(form: Path) -> None:
    """GitHub drops a form silently: the keys it asks for, its kinds of element, each id once."""
    text = read(form)
    assert text["name"] and text["description"]
    fields = [element for element in text["body"] if element["type"] != "markdown"]
    assert fields and {f["type"] for f in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


def test_there_is_a_form_for_each_thing_that_people_bring() -> None:
    assert {form.stem for form in FORMS} == {"bug", "new-source", "wrong-map"}


def test_the_citation_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = read("CITATION.cff")
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
