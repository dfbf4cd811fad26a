"""How wide predictions are: as training left them, or with factors read from rows held out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Factors:
    """What the variances of a trained model are multiplied by where it predicts; its weights stay as they are.

    surface : on prior and posterior covariance of the surface
    noise : on the noise variance above its floor
    noise_from_weights : the weights' variance at a place, times this, joins its noise variance: a predictive objective
        lets the weights vary where the rows do, so that part of what it calls surface is noise of the place
    degrees_of_freedom : of new observations, None for Gaussian ones; their squared scale is the sum of variances
    score : mean negative log likelihood of the held-out rows, NaN where none was asked
    rows : held-out rows behind it
    """

    surface: float = 1.0
    noise: float = 1.0
    noise_from_weights: float = 0.0
    degrees_of_freedom: float | None = None
    score: float = math.nan
    rows: int = 0

    def to_dict(self) -> dict[str, Any]:
        """What a run keeps."""
        score = None if math.isnan(self.score) else self.score
        moved = {"noise_from_weights": self.noise_from_weights} if self.noise_from_weights else {}
        return {"surface": self.surface, "noise": self.noise, **moved, "score": score, "rows": self.rows}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Factors":
        """Of an engine's facts. Runs of before, with "weights" in them, have theirs in their tensors already."""
        kept = facts.get("factors") or {}
        score = kept.get("score")
        return cls(
            float(kept.get("surface", 1.0)),
            float(kept.get("noise", 1.0)) if "surface" in kept else 1.0,
            float(kept.get("noise_from_weights", 0.0)),
            facts.get("degrees_of_freedom"),
            math.nan if score is None else float(score),
            int(kept.get("rows", 0)),
        )


class Learned:
    """As training left it."""

    rescales: ClassVar[bool] = False
    tails: ClassVar[bool] = False


class Rescaled(Learned):
    """Surface and noise each multiplied by a factor that held-out rows ask for; where they ask for it, part of what the
    weights' variance says of a place is noise."""

    rescales = True


class Student(Rescaled):
    """As 'rescaled', and new observations are Student-t where held-out rows ask for that."""

    tails = True


SPREADS: dict[str, type[Learned]] = {"learned": Learned, "rescaled": Rescaled, "student": Student}
