"""What the commands do, as plain functions for notebooks and scripts.

    from app.workflow import evaluate, fit
    run = fit("obs.parquet", method="dbk-rbf", split="block", output="run")
    print(evaluate("run").document["scores"])

Each is a file of `steps` with a function of its own name: `app.workflow.fit` is `app.workflow.steps.fit.fit`, found
and imported on first use. They lie in a folder of their own because one name cannot be both a function and a module.
"""

import importlib
import pkgutil
from typing import Any

from app.workflow import steps


def __dir__() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(steps.__path__))


def __getattr__(name: str) -> Any:
    if name not in __dir__():
        raise AttributeError(f"module 'app.workflow' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{steps.__name__}.{name}"), name)
