"""Networks g that turn encoded inputs (N, D) into a representation (N, H)."""

from typing import ClassVar

from torch import Tensor, nn

from geogp.basis.layers import Linear


class Backbone(nn.Module):
    """A map (N, D) -> (N, n_outputs), made from (n_inputs, hidden)."""

    #: Whether it bends its inputs, so that what it makes of places far from data means nothing.
    is_network: ClassVar[bool] = True
    n_outputs: int


class Identity(Backbone):
    """g(x) = x: the kernel acts on the standardised inputs themselves."""

    is_network = False

    def __init__(self, n_inputs: int, hidden: int):
        super().__init__()
        self.n_outputs = n_inputs

    def forward(self, x: Tensor) -> Tensor:
        return x


class LinearProjection(Backbone):
    """g(x) = W x with W (H, D), initially orthonormal rows: a supervised projection."""

    is_network = False

    def __init__(self, n_inputs: int, hidden: int):
        super().__init__()
        self.n_outputs = min(hidden, n_inputs)
        self.linear = nn.Linear(n_inputs, self.n_outputs, bias=False)
        nn.init.orthogonal_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class MLP(Backbone):
    """Two hidden layers, tanh after each.

    Source: low-rank-deep-kernel-decomposition, section 5 (tanh).
    """

    def __init__(self, n_inputs: int, hidden: int):
        super().__init__()
        self.n_outputs = hidden
        self.layers = nn.Sequential(Linear(n_inputs, hidden), nn.Tanh(), Linear(hidden, hidden), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Block(nn.Module):
    """x + W2 silu(W1 LayerNorm(x))."""

    def __init__(self, hidden: int):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.first = Linear(hidden, hidden)
        self.second = Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(nn.functional.silu(self.first(self.norm(x))))


class ResNet(Backbone):
    """Linear projection, residual blocks, then LayerNorm and SiLU.

    Source: deep-basis-kernel-gp, appendix B, "Network architecture" (two blocks).
    """

    def __init__(self, n_inputs: int, hidden: int, n_blocks: int = 2):
        super().__init__()
        self.n_outputs = hidden
        self.project = Linear(n_inputs, hidden)
        self.blocks = nn.ModuleList(Block(hidden) for _ in range(n_blocks))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        h = self.project(x)
        for block in self.blocks:
            h = block(h)
        return nn.functional.silu(self.norm(h))


class Reduced(Backbone):
    """A network followed by a linear map to a few outputs, where the kernel then lives.

    Source: how-good-are-low-rank-approximations, appendix D (a network that ends in d outputs).
    """

    def __init__(self, net: Backbone, n_outputs: int):
        super().__init__()
        self.net, self.n_outputs = net, n_outputs
        self.linear = nn.Linear(net.n_outputs, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.net(x))


BACKBONES: dict[str, type[Backbone]] = {
    "identity": Identity,
    "linear": LinearProjection,
    "mlp": MLP,
    "resnet": ResNet,
}
