"""Checkpoints of an unfinished fit: two files that know each other."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from geogp.basis.train import Progress
from geogp.storage.files import finite, read_sealed, sha256, write_sealed, write_tensors


def write_checkpoint(folder: Path, state: dict, arguments: dict) -> None:
    """Store what `train` hands to its checkpoint callback, with the arguments it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    progress: Progress = state["progress"]
    tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in state["model"].items()}
    tensors |= {f"best.{k}": v for k, v in progress.best_state.items()}
    tensors |= {f"average.{k}": v for k, v in state.get("average", {}).items()}
    for index, slots in state["optimiser"]["state"].items():
        tensors |= {f"optimiser.{index}.{k}": torch.as_tensor(v) for k, v in slots.items()}
    facts = {
        "arguments": arguments,
        "groups": state["optimiser"]["param_groups"],
        "progress": asdict_light(progress),
    }
    # Clones: an interrupted write must not leave tensors that share memory with a model in training.
    write_tensors(folder / "checkpoint.safetensors", {k: v.detach().clone() for k, v in tensors.items()})
    facts["tensors_sha256"] = sha256(folder / "checkpoint.safetensors")
    write_sealed(folder / "checkpoint.json", facts)


def asdict_light(progress: Progress) -> dict:
    """Progress without its tensors."""
    return {
        k: v
        for k, v in asdict(Progress(**{**progress.__dict__, "best_state": {}})).items()
        if k != "best_state"
    }


def read_checkpoint(folder: Path, arguments: dict) -> dict | None:
    """What to pass to `train(resume=...)`, or None when there is no checkpoint of these very arguments.

    A checkpoint whose two files do not belong together (a kill between their writes), or whose JSON is not what was
    written, counts as absent.
    """
    facts = read_sealed(folder / "checkpoint.json")
    if facts is None or facts.get("arguments") != json.loads(json.dumps(finite(arguments))):
        return None
    try:
        if sha256(folder / "checkpoint.safetensors") != facts["tensors_sha256"]:
            return None
        tensors = load_file(folder / "checkpoint.safetensors")
    except FileNotFoundError:
        return None

    def under(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in under("optimiser.").items():
        index, name = key.split(".", 1)
        slots.setdefault(int(index), {})[name] = value
    saved = facts["progress"]
    best = math.inf if saved["best_score"] is None else saved["best_score"]
    return {
        "progress": Progress(saved["epoch"], best, saved["best_epoch"], under("best."), saved["history"]),
        "model": under("model."),
        "optimiser": {"state": slots, "param_groups": facts["groups"]},
        "average": under("average."),
    }
