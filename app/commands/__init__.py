"""The sub-commands: one file each and one line here. Their modules import nothing heavy."""

from collections.abc import Callable

from app.commands.evaluate import evaluate
from app.commands.fit import fit
from app.commands.ingest import ingest
from app.commands.methods import methods

COMMANDS: dict[str, Callable[..., object]] = {
    "ingest": ingest,
    "fit": fit,
    "evaluate": evaluate,
    "methods": methods,
}
