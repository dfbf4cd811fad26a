"""The sub-commands: one file each and one line here. Their modules import nothing heavy."""

from collections.abc import Callable

from app.commands.app import dashboard
from app.commands.areas import areas
from app.commands.compare import compare
from app.commands.demo import demo
from app.commands.doctor import doctor
from app.commands.evaluate import evaluate
from app.commands.export import export
from app.commands.fit import fit
from app.commands.ingest import ingest
from app.commands.methods import methods
from app.commands.reproduce import reproduce
from app.commands.slice import slice_
from app.commands.suggest import suggest
from app.commands.update import update

COMMANDS: dict[str, Callable[..., object]] = {
    "demo": demo,
    "ingest": ingest,
    "fit": fit,
    "evaluate": evaluate,
    "compare": compare,
    "export": export,
    "slice": slice_,
    "areas": areas,
    "update": update,
    "suggest": suggest,
    "app": dashboard,
    "methods": methods,
    "reproduce": reproduce,
    "doctor": doctor,
}
