"""THE TABLE: a method is a row of choices.

Adding a method is adding a row here; `build.py` turns it into a model and refuses what cannot be.
"""

from dataclasses import asdict, dataclass

from geogp.errors import ImpossibleCombination


@dataclass(frozen=True)
class Method:
    """One row: a name and the choices it stands for.

    engine : which class carries it ("lowrank" for `LowRankGP`; others are registered in `geogp.engines`)
    encoder : "fourier" (multi-scale features of the position, when there is one) or "standardise"
    noise : "auto" is per count when counts are given, else constant
    route : "variational" or "closed_form", how the weights get their distribution
    reverts_to_prior : latent variance far from data is at least that at the data
    cost : of one pass over the data, in n rows, rank r, hidden width h
    """

    name: str
    summary: str
    paper: str
    equations: str
    engine: str = "lowrank"
    encoder: str = "fourier"
    backbone: str = "resnet"
    expansion: str = "silu"
    residual: str = "none"
    noise: str = "auto"
    objective: str = "dppgp"
    route: str = "variational"
    posterior: str = "dense"
    reverts_to_prior: bool = False
    use_when: str = ""
    cost: str = "O(n (h^2 + h r + r^2))"

    def to_dict(self) -> dict:
        return asdict(self)


DBK = "Scalable Deep Basis Kernel Gaussian Processes (deep-basis-kernel-gp)"

_ROWS = [
    Method(
        "geogp",
        "deep basis with a local residual and a noise that knows its counts",
        "-",
        "-",
        expansion="rbf",
        use_when="the default: the most accurate map with honest gaps",
    ),
    Method(
        "dbk-silu",
        "deep basis kernel with SiLU basis functions",
        DBK,
        "8, 13, 15",
        use_when="many rows, a pattern that changes its character across the map, speed first",
    ),
    Method(
        "dbk-rbf",
        "deep basis kernel with an inducing-point basis on the network's output",
        DBK,
        "8, 12, 15",
        expansion="rbf",
        use_when="as dbk-silu; usually a little more accurate, 1.5 times the time",
    ),
    Method(
        "sv-rbf",
        "sparse variational GP (SVGP) with a stationary RBF kernel",
        DBK,
        "3-5",
        encoder="standardise",
        backbone="identity",
        expansion="rbf",
        residual="nystrom",
        objective="elbo",
        reverts_to_prior=True,
        use_when="a smooth stationary field, or as the baseline everyone knows",
        cost="O(n r (d + r))",
    ),
    Method(
        "sv-dkl",
        "sparse variational deep kernel learning",
        DBK,
        "3-5, 7",
        expansion="rbf",
        residual="nystrom",
        objective="elbo",
        use_when="comparison with deep kernel learning",
    ),
    Method(
        "pp-rbf",
        "predictive-likelihood sparse GP (PPGP) with a stationary RBF kernel",
        DBK,
        "6",
        encoder="standardise",
        backbone="identity",
        expansion="rbf",
        residual="nystrom",
        objective="ppgp",
        reverts_to_prior=True,
        cost="O(n r (d + r))",
    ),
    Method(
        "pp-dkl",
        "predictive-likelihood deep kernel learning",
        DBK,
        "6, 7",
        expansion="rbf",
        residual="nystrom",
        objective="ppgp",
    ),
    Method(
        "vbll",
        "variational Bayesian last layer",
        DBK,
        "appendix B",
        objective="elbo",
    ),
]

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}


def method(name: str) -> Method:
    """The row called `name`.

    Raises
    ------
    ImpossibleCombination
        for a name that is not in the table; the message lists those that are.

    Examples
    --------
    >>> method("dbk-silu").objective
    'dppgp'
    """
    try:
        return METHODS[name]
    except KeyError:
        raise ImpossibleCombination(
            f"there is no method {name!r}; `geogp methods` lists them: {', '.join(METHODS)}."
        ) from None
