"""What carries a method: one class for each way of holding a Gaussian process. One file each."""

from geogp.engines.averaged import AveragedEngine
from geogp.engines.base import Engine, Hooks, Plan
from geogp.engines.closed_form import ClosedFormEngine
from geogp.engines.cox import CoxEngine
from geogp.engines.exact import ExactEngine
from geogp.engines.fixed_mean import FixedMeanEngine
from geogp.engines.local import LocalEngine
from geogp.engines.lowrank import LowRankEngine
from geogp.engines.network import NetworkEngine
from geogp.engines.pretrained import PretrainedEngine

ENGINES: dict[str, type[Engine]] = {
    "lowrank": LowRankEngine,
    "local": LocalEngine,
    "closed_form": ClosedFormEngine,
    "network": NetworkEngine,
    "pretrained": PretrainedEngine,
    "fixed_mean": FixedMeanEngine,
    "cox": CoxEngine,
    "exact": ExactEngine,
    "averaged": AveragedEngine,
}

__all__ = ["ENGINES", "Engine", "Hooks", "Plan"]
