"""`from app.workflow import fit`: a function of each step, however its module was imported."""

import importlib
import inspect

import pytest

import app.workflow
from app.commands import commands


def test_every_step_is_a_function_of_its_name():
    steps = dir(app.workflow)
    assert {"fit", "evaluate", "export", "areas", "update", "suggest", "compare", "demo", "slice"} <= {*steps}
    for name in steps:
        module = importlib.import_module(f"app.workflow.steps.{name}")
        function = getattr(app.workflow, name)
        assert inspect.isfunction(function) and function is getattr(module, name)
        assert function.__module__ == module.__name__ and function.__doc__


def test_steps_are_named_like_the_commands():
    assert {*dir(app.workflow)} <= {*commands()}


def test_what_is_no_step_is_no_attribute():
    with pytest.raises(AttributeError, match="nonsense"):
        app.workflow.nonsense  # noqa: B018
