"""What the commands do, as plain functions for notebooks and scripts: one file each.

    from app.workflow import evaluate, fit
    run = fit("obs.parquet", method="dbk-rbf", split="block", output="run")
    print(evaluate("run").document["scores"])

Names are imported on first use, so that importing one workflow does not import all.
"""

import importlib
from typing import TYPE_CHECKING, Any

_WHERE = {
    "areas": "app.workflow.averaging",
    "Areas": "app.workflow.averaging",
    "compare": "app.workflow.comparing",
    "Comparison": "app.workflow.comparing",
    "demo": "app.workflow.demonstrating",
    "Demo": "app.workflow.demonstrating",
    "evaluate": "app.workflow.evaluating",
    "Evaluation": "app.workflow.evaluating",
    "estimate": "app.workflow.exporting",
    "export": "app.workflow.exporting",
    "Export": "app.workflow.exporting",
    "fit": "app.workflow.fitting",
    "Fit": "app.workflow.fitting",
    "grid_of": "app.workflow.grids",
    "prediction": "app.workflow.exporting",
    "read_rows": "app.workflow.rows",
    "Rows": "app.workflow.rows",
    "suggest": "app.workflow.suggesting",
    "Suggested": "app.workflow.suggesting",
    "update": "app.workflow.updating",
    "Update": "app.workflow.updating",
    "write_slice": "app.workflow.slicing",
}

if TYPE_CHECKING:
    from app.workflow.averaging import Areas, areas
    from app.workflow.comparing import Comparison, compare
    from app.workflow.demonstrating import Demo, demo
    from app.workflow.evaluating import Evaluation, evaluate
    from app.workflow.exporting import Export, estimate, export, prediction
    from app.workflow.fitting import Fit, fit
    from app.workflow.grids import grid_of
    from app.workflow.rows import Rows, read_rows
    from app.workflow.slicing import write_slice
    from app.workflow.suggesting import Suggested, suggest
    from app.workflow.updating import Update, update


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'app.workflow' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


__all__ = [
    "Areas", "Comparison", "Demo", "Evaluation", "Export", "Fit", "Rows", "Suggested", "Update", "areas", "compare",
    "demo", "estimate", "evaluate", "export", "fit", "grid_of", "prediction", "read_rows", "suggest", "update",
    "write_slice",
]  # fmt: skip
