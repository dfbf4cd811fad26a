"""What carries a method: one class for each way of holding a Gaussian process. One file each."""

from geogp.engines.base import Engine, Hooks, Plan
from geogp.engines.lowrank import LowRankEngine

ENGINES: dict[str, type[Engine]] = {
    "lowrank": LowRankEngine,
}

__all__ = ["ENGINES", "Engine", "Hooks", "Plan"]
