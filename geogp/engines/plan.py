"""Everything a fit is told beside the data, and where it reports."""

from dataclasses import dataclass, field

from geogp.basis.build import Shape, Size
from geogp.basis.objectives import Weights
from geogp.basis.schedule import Schedule
from geogp.basis.train import Hooks
from geogp.methods import Method


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


__all__ = ["Hooks", "Plan"]
