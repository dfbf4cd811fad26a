"""Everything a fit is told beside the data, and where it reports."""

from dataclasses import dataclass, field
from typing import Protocol

import torch

from geogp.basis.build import Shape, Size
from geogp.basis.encoders import Encoder
from geogp.basis.objectives import Weights
from geogp.basis.schedule import Schedule
from geogp.basis.train import Hooks
from geogp.data import Data
from geogp.methods import Method


class Scaled(Protocol):
    """A model whose inputs are scaled by its encoder."""

    encoder: Encoder

    def to(self, device: torch.device) -> object:
        """Move it."""


@dataclass(frozen=True)
class Plan:
    """Everything a fit is told beside the data: the row, the data's shape, capacity, schedule, weights, seed.

    options : further keywords of the engine (JSON-able, but for a predictor given to fmgp)
    target_mean, target_sd : what the targets were standardised with
    """

    row: Method
    shape: Shape
    size: Size = Size()
    schedule: Schedule = Schedule()
    weights: Weights = Weights()
    seed: int = 0
    device: str = "cpu"
    options: dict = field(default_factory=dict)
    target_mean: float = 0.0
    target_sd: float = 1.0

    @property
    def choice(self) -> str:
        """What carries the fit, and why, in a sentence.

        Examples
        --------
        >>> from geogp.methods import METHODS
        >>> Plan(METHODS["geogp"], Shape(1, (0,), None, False)).choice
        "method 'geogp': column 0 as places along a line."
        """
        row, shape = self.row, self.shape
        if shape.spatial is not None:
            which = ", ".join(str(d) for d in shape.spatial)
            places = (
                f"columns {which} as places"
                if len(shape.spatial) > 1
                else f"column {which} as places along a line"
            )
            when = "" if shape.time is None else f", column {shape.time} as time"
            return f"method {row.name!r}: {places}{when}."
        if row.without_position in ("", row.name):
            return f"method {row.name!r}: all columns as features."
        return (
            f"method {row.without_position!r} in place of {row.name!r}, which needs a position: all columns as features; if "
            "some are places, name them with spatial=(i, j), or one along a line with spatial=(i,)."
        )

    def place(self, model: Scaled, data: Data, validation: Data | None) -> tuple[Data, Data | None]:
        """Scale a model to the rows it is to learn from, and bring it and all rows to the device: the rows there."""
        device = torch.device(self.device)
        model.encoder.fit_scaling(data.X)
        model.to(device)
        return data.to(device), None if validation is None else validation.to(device)


__all__ = ["Hooks", "Plan"]
