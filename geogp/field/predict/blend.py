"""What several fields say of places, as one distribution each: regions that meet there, or kernels that the rows bear out alike."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from geogp.field.noise.smooth import SecondPeak
from geogp.field.predict.moments import FieldMoments
from geogp.predictive import standard_moments


def blended(
    said: FieldMoments, place: Int[Tensor, " M"], weight: Float[Tensor, " M"], n: int
) -> FieldMoments:
    """Moments at n places, of which M pairs of a place and a region say something with weights that sum to one.

        m = Σ w m_k,  v = Σ w (v_k + (m_k − m)²),  σ² = Σ w σ²_k,  1/ν = Σ w/ν_k,  log γ = Σ w log γ_k

    and of second peaks with shares q_k: q = Σ w q_k; where they lie and how wide they are, the means by w q_k.

    The latent variance is that of a mixture. Regions that are told the same rows err alike, so that their mean errs about as
    much as each: nothing is gained by asking two, and where they disagree the surface is the less known. It is never below
    the least of the v_k. A place that one region tells of keeps what it says to the bit.

    Parameters
    ----------
    said : (M,) what the regions say; place, weight : (M,) of which place, and how much it counts

    Notes
    -----
    O(M).
    """

    def total(values: Tensor) -> Tensor:
        return torch.zeros(n, dtype=values.dtype).index_add_(0, place, weight * values)

    mean = total(said.mean)
    latent = total(said.latent_variance + (said.mean - mean[place]).square())
    noise, skewness = total(said.noise_variance), total(said.log_skewness)
    degrees_of_freedom = 1.0 / total(1.0 / said.degrees_of_freedom)
    shift, _ = standard_moments(degrees_of_freedom.numpy(), skewness.numpy())
    location = mean - (latent + noise).sqrt() * torch.as_tensor(shift)
    second = None
    if (peak := said.peak) is not None:
        share = total(peak.share)
        some = share > 0.0
        whole = torch.where(some, share, 1.0)
        at = total(peak.share * (said.location + peak.offset)) / whole
        # The first peaks' mean is what the second leaves of the whole.
        location = location + torch.where(some, share * (mean - at) / (1.0 - share), 0.0)
        wide = torch.where(some, total(peak.share * peak.noise_variance) / whole, noise)
        second = SecondPeak(share, torch.where(some, at - location, 0.0), wide)
    out = FieldMoments(
        location=location,
        latent_variance=latent,
        noise_variance=noise,
        prior_variance=torch.maximum(total(said.prior_variance), latent),
        degrees_of_freedom=degrees_of_freedom,
        log_skewness=skewness,
        peak=second,
    )
    alone = torch.bincount(place, minlength=n)[place] == 1
    return out.with_rows(place[alone], said.at(alone))
