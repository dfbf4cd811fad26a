"""A GP on the fitted output of a network that was trained before and stays as it is."""

from dataclasses import replace
from typing import ClassVar

import torch

from geogp.basis.backbones import Reduced
from geogp.basis.model import LowRankGP
from geogp.data import Data
from geogp.engines.base import Hooks, Plan
from geogp.engines.closed_form import ClosedFormEngine
from geogp.engines.network import train_network


class PretrainedEngine(ClosedFormEngine):
    """First a network on squared error; then kernel and noise of a closed-form GP on its output.

    The network's one output, standardised over the training rows, is the input of the kernel.
    Source: how-good-are-low-rank-approximations, appendix D (DNN+S, DNN+M, DNN+F).
    """

    trains_network: ClassVar[bool] = True
    leaves_over: ClassVar[bool] = False

    @classmethod
    def prepare(
        cls, plan: Plan, model: LowRankGP, data: Data, validation: Data | None, hooks: Hooks = Hooks()
    ) -> None:
        first = replace(
            plan,
            row=replace(
                plan.row,
                latent=(),
                expansion="last_layer",
                residual="none",
                objective="mse",
                posterior="point",
            ),
            size=replace(plan.size, latent=None),
        )
        single = Data(data.X, data.y.float(), None if data.counts is None else data.counts.float())
        held = None if validation is None else Data(validation.X, validation.y.float(), validation.counts)
        net, _ = train_network(first, single, held, hooks.within("the network first"))
        assert isinstance(model.backbone, Reduced)
        with torch.no_grad():
            weights = net.posterior.current().mean
            output = torch.cat([net.moments(part.X).mean for part in data.chunks()])
            centre, scale = output.mean(), output.std(unbiased=False).clamp_min(1e-6)
            model.backbone.net.load_state_dict(net.backbone.state_dict())
            head = model.backbone.linear
            head.weight.copy_(weights[None, :-1] / scale)
            head.bias.copy_((weights[-1:] + net.constant_mean - centre) / scale)
        model.backbone.requires_grad_(False)
