"""The predictive distribution at places, from the outlook there and the noise."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from geogp.calibrate import Calibration, standardised_miss
from geogp.field.columns import Columns
from geogp.field.conditioned import Conditioned
from geogp.field.noise.smooth import SecondPeak, SmoothNoise
from geogp.field.predict.cells import near_each_other
from geogp.field.predict.outlook import Outlook
from geogp.linalg.threads import side_by_side
from geogp.predictive import standard_moments

#: Places predicted at once: some 150 MB.
PLACES_AT_ONCE = 2**16
#: Coverage that calibration looks at.
LEVEL = 0.95
#: Degrees of freedom that stand for a Gaussian.
GAUSSIAN_DF = 1e6
#: Calibration takes away at most all but this share of the noise.
LEAST_NOISE = 0.05


@dataclass(frozen=True)
class FieldMoments(Columns):
    """(N,) each. The predictive distribution is a skewed Student-t about its mode `location`, with squared
    scale latent + noise variance, and beside it a second peak, or None; see `Predictive`."""

    location: Float[Tensor, " N"]
    latent_variance: Float[Tensor, " N"]
    noise_variance: Float[Tensor, " N"]
    prior_variance: Float[Tensor, " N"]
    degrees_of_freedom: Float[Tensor, " N"]
    log_skewness: Float[Tensor, " N"]
    peak: SecondPeak | None = None

    @property
    def scale(self) -> Float[Tensor, " N"]:
        """(N,) of a new observation: its Student-t's own, not its sd."""
        return (self.latent_variance + self.noise_variance).sqrt()

    @property
    def mean(self) -> Float[Tensor, " N"]:
        """(N,) of a new observation."""
        shift, _ = standard_moments(self.degrees_of_freedom.numpy(), self.log_skewness.numpy())
        first = self.scale * torch.as_tensor(shift)
        if self.peak is None:
            return self.location + first
        return self.location + first + self.peak.share * (self.peak.offset - first)

    def with_peak(self) -> "FieldMoments":
        """The same, with a second peak of no share where there is none."""
        if self.peak is not None:
            return self
        nothing = torch.zeros_like(self.location)
        return replace(self, peak=SecondPeak(nothing, nothing, self.noise_variance))

    def misses(self, y: Float[Tensor, " N"]) -> Float[np.ndarray, " N"]:
        """`standardised_miss` of values y (N,) at the level that calibration looks at."""
        return standardised_miss(
            y.numpy(),
            self.location.numpy(),
            self.scale.numpy(),
            self.degrees_of_freedom.numpy(),
            LEVEL,
            self.log_skewness.numpy(),
            None if self.peak is None else self.peak.of(self.location, self.latent_variance),
        )

    def calibrated(self, calibration: Calibration | None, group: Int[np.ndarray, " N"]) -> "FieldMoments":
        """Stretch what is predicted, about its location, by the noise alone: the surface's own sd stays that of the model."""
        if calibration is None:
            return self
        factor = torch.from_numpy(calibration.factor(group))

        def stretched(noise: Tensor) -> Tensor:
            wanted = factor.square() * (self.latent_variance + noise) - self.latent_variance
            return torch.maximum(wanted, LEAST_NOISE * noise)

        peak = self.peak
        if peak is not None:
            further, wider = factor * peak.offset, stretched(peak.noise_variance)
            peak = replace(peak, offset=further, noise_variance=wider)
        return replace(self, noise_variance=stretched(self.noise_variance), peak=peak)


def by_pieces(
    told: Callable[[Int[Tensor, " m"]], list[FieldMoments]],
    places: Float[Tensor, "N d"],
    device: str = "cpu",
) -> list[FieldMoments]:
    """What is told of numbers of places that lie near each other, `PLACES_AT_ONCE` of them at most, for all N in their order.

    device : what solves them; where that is not the CPU, this looks for the neighbours of other pieces meanwhile
    """
    pieces = [torch.from_numpy(rows) for rows in near_each_other(places.numpy(), PLACES_AT_ONCE)]
    found = zip(*(map if device == "cpu" else side_by_side)(told, pieces))
    if len(pieces) == 1:
        return [said for (said,) in found]
    order = torch.cat(pieces).argsort()
    return [FieldMoments.together(said).at(order) for said in found]


def moments_of(
    known: Conditioned, places: Outlook, noise: SmoothNoise | None, without: Tensor | None = None
) -> FieldMoments:
    """Moments before calibration: r and its noise, then what the prior mean and its drift add.

    without : (E, N) members of the noise that have not learned from each place; None for all
    """
    if noise is None:
        m = _with_constant_noise(known, places)
    else:
        m = _with_smooth_noise(known, places, noise, without)
    latent = m.latent_variance + places.drift_variance
    return replace(
        m,
        location=places.prior_mean + m.location,
        latent_variance=latent + places.time_variance,
        prior_variance=torch.maximum(m.prior_variance + places.open_variance, latent) + places.time_variance,
    )


def _with_constant_noise(known: Conditioned, places: Outlook) -> FieldMoments:
    around, gp = places.around, known.gp
    return FieldMoments(
        location=around.mean,
        latent_variance=around.variance,
        noise_variance=gp.noise_variance(places.counts, places.coordinates),
        prior_variance=places.prior_variance,
        degrees_of_freedom=torch.full_like(around.mean, gp.degrees_of_freedom or GAUSSIAN_DF),
        log_skewness=torch.zeros_like(around.mean),
    )


def _with_smooth_noise(
    known: Conditioned, places: Outlook, noise: SmoothNoise, without: Tensor | None
) -> FieldMoments:
    far, device = known.gp.kernel.prior_variance, noise.center.device
    asked = (places.inputs, places.around.mean, places.around.variance, places.counts)
    features, mean, variance, counts = (column.to(device) for column in asked)
    with torch.no_grad():
        p = noise(features, mean, variance, far, counts, without).to("cpu")
    return FieldMoments(
        location=p.location,
        latent_variance=p.latent_variance,
        noise_variance=p.noise_variance,
        prior_variance=places.prior_variance * noise.prior_factor(),
        degrees_of_freedom=p.degrees_of_freedom,
        log_skewness=p.log_skewness,
        peak=p.peak,
    )
