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
    rank, steps : the row's own defaults of these, where they differ from everyone's
    latent : outputs of the backbone; several are compared on validation rows
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
    rank: int | None = None
    steps: int | None = None
    latent: tuple[int, ...] = ()
    use_when: str = ""
    cost: str = "O(n (h^2 + h r + r^2))"

    def to_dict(self) -> dict:
        return asdict(self)


OWN = "GeoGP's own"
FMGP = "Fixed-Mean Gaussian Processes for Post-hoc Bayesian Deep Learning (fixed-mean-gp)"
LRDKD = (
    "Scalable Gaussian Processes with Low-Rank Deep Kernel Decomposition (low-rank-deep-kernel-decomposition)"
)
DBK = "Scalable Deep Basis Kernel Gaussian Processes (deep-basis-kernel-gp)"

LOWRANK = "How Good Are Low-Rank Approximations in Gaussian Process Regression? (how-good-are-low-rank-approximations)"
SOFTKI = (
    "High-Dimensional Gaussian Process Regression with Soft Kernel Interpolation (soft-kernel-interpolation)"
)

_ROWS = [
    Method(
        "geogp",
        "local field with a level and a noise that know counts and surroundings, Student-t, calibrated",
        OWN,
        "see geogp/field.py",
        engine="local",
        encoder="none",
        backbone="identity",
        expansion="none",
        residual="local",
        objective="vecchia",
        route="closed_form",
        posterior="solved",
        reverts_to_prior=True,
        use_when="the default: the most accurate map near data, honest in gaps; generic features without a "
        "position fall back to dbk-rbf",
        cost="O(n log n + (targets + n_new) k^3) with k = 48 neighbours",
    ),
    Method(
        "local-gp",
        "local (Vecchia) Gaussian process with tau^2 + s^2/n noise, alone",
        OWN,
        "see geogp/residuals/local.py",
        engine="local",
        encoder="none",
        backbone="identity",
        expansion="none",
        residual="local",
        objective="vecchia",
        route="closed_form",
        posterior="solved",
        reverts_to_prior=True,
        use_when="as geogp, when the noise is the same everywhere and speed matters",
        cost="O(n log n + n_new k^3) with k = 48 neighbours",
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
        use_when="as sv-rbf, with intervals trained for what they predict",
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
        use_when="comparison with deep kernel learning",
    ),
    Method(
        "vbll",
        "variational Bayesian last layer",
        DBK,
        "appendix B",
        objective="elbo",
        use_when="comparison: the last layer alone is Bayesian",
    ),
    Method(
        "dbk-silu-exact",
        "deep basis kernel with SiLU basis functions and its exact marginal likelihood",
        DBK,
        "8, 10, 11, 13, algorithms 1 and 2",
        engine="closed_form",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="up to some 10^5 rows with one noise level; its latent sd is flat, see dbk-silu",
    ),
    Method(
        "dbk-rbf-exact",
        "deep basis kernel with an inducing-point basis and its exact marginal likelihood",
        DBK,
        "8, 10, 11, 12, algorithms 1 and 2",
        engine="closed_form",
        expansion="rbf",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="as dbk-silu-exact",
    ),
    Method(
        "sgpr",
        "sparse GP regression (sGP, Titsias): inducing points with their optimal weights",
        LOWRANK + "; " + SOFTKI,
        "4-6 of the latter",
        engine="closed_form",
        encoder="standardise",
        backbone="identity",
        expansion="rbf",
        residual="nystrom",
        objective="collapsed_elbo",
        route="closed_form",
        posterior="solved",
        reverts_to_prior=True,
        use_when="a smooth stationary field with up to some 10^5 rows, honest far from data",
        cost="O(n r (d + r))",
    ),
    Method(
        "sdkl",
        "sparse deep kernel learning with optimal weights",
        LRDKD,
        "section 5 (baseline)",
        engine="closed_form",
        expansion="rbf",
        residual="nystrom",
        objective="collapsed_elbo",
        route="closed_form",
        posterior="solved",
        use_when="comparison with deep kernel learning",
    ),
    Method(
        "fgp",
        "Fourier GP: random Fourier features, drawn once and fixed",
        LOWRANK,
        "section 4.1 and 5",
        engine="closed_form",
        encoder="standardise",
        backbone="identity",
        expansion="fourier",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="comparison of low-rank approximations",
        cost="O(n r (d + r))",
    ),
    Method(
        "dfgp",
        "deep Fourier GP: random Fourier features of a network's four outputs",
        LOWRANK,
        "appendix D",
        engine="closed_form",
        backbone="mlp",
        latent=(4,),
        expansion="fourier",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="comparison of low-rank approximations",
    ),
    Method(
        "mgp",
        "Mercer GP: Hermite eigenfunctions of the Gaussian kernel on a learned projection",
        LOWRANK,
        "33-35, section 4.2 and 5",
        engine="closed_form",
        encoder="standardise",
        backbone="linear",
        latent=(3, 5, 7),
        expansion="hermite",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="few inputs that matter and a smooth field; comparison of low-rank approximations",
        cost="O(n r (d + r)), once for each projection tried",
    ),
    Method(
        "dmgp",
        "deep Mercer GP: Hermite eigenfunctions of a network's one output",
        LOWRANK,
        "33-35, appendix D",
        engine="closed_form",
        backbone="mlp",
        latent=(1,),
        expansion="hermite",
        objective="mll",
        route="closed_form",
        posterior="solved",
        rank=15,
        use_when="comparison of low-rank approximations",
    ),
    Method(
        "softki",
        "soft kernel interpolation: softmax weights on learned points",
        SOFTKI,
        "10-12, 13, 15, 17, 18, 20-22, algorithm 1",
        engine="closed_form",
        encoder="standardise",
        backbone="identity",
        expansion="softki",
        objective="softki",
        route="closed_form",
        posterior="solved",
        rank=512,
        steps=300,
        use_when="about ten features, many rows, the mean matters most",
        cost="O(n r (d + r)); r^3 a batch",
    ),
    Method(
        "ski",
        "structured kernel interpolation: cubic weights on a fixed lattice, at most three inputs",
        SOFTKI,
        "7-9",
        engine="closed_form",
        encoder="standardise",
        backbone="identity",
        expansion="ski",
        objective="mll",
        route="closed_form",
        posterior="solved",
        rank=400,
        use_when="one to three inputs that the data fill evenly; comparison",
        cost="O(n r^2)",
    ),
    Method(
        "gp-rbf",
        "exact GP with an RBF kernel, a lengthscale per input (GPyTorch)",
        DBK,
        "1",
        engine="exact",
        encoder="standardise",
        backbone="identity",
        expansion="exact",
        objective="mll",
        route="closed_form",
        posterior="solved",
        reverts_to_prior=True,
        use_when="up to a few thousand rows: the reference that the others approximate",
        cost="O(n^3) a step, O(n^2) memory",
    ),
    Method(
        "dkl",
        "exact deep kernel learning: an RBF kernel on a network's output (GPyTorch)",
        DBK,
        "1, 7",
        engine="exact",
        expansion="exact",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="up to a few thousand rows; comparison",
        cost="O(n^3) a step, O(n^2) memory",
    ),
    Method(
        "svdbk",
        "deep basis with a diagonal correction, by stochastic variational inference",
        LRDKD,
        "8-12",
        backbone="mlp",
        expansion="linear",
        residual="unit",
        objective="elbo",
        use_when="many rows and one noise level; comparison of the correction with its ablations",
    ),
    Method(
        "svdbk-c",
        "svdbk without the variance correction (ablation)",
        LRDKD,
        "8-10",
        backbone="mlp",
        expansion="linear",
        objective="elbo",
        use_when="ablation",
    ),
    Method(
        "svdbk-r",
        "svdbk with a single basis function (ablation)",
        LRDKD,
        "8-12, r = 1",
        backbone="mlp",
        expansion="linear",
        residual="unit",
        objective="elbo",
        rank=1,
        use_when="ablation",
        cost="O(n h^2)",
    ),
    Method(
        "svdbk-cr",
        "svdbk with a single basis function and without the variance correction (ablation)",
        LRDKD,
        "8-10, r = 1",
        backbone="mlp",
        expansion="linear",
        objective="elbo",
        rank=1,
        use_when="ablation",
        cost="O(n h^2)",
    ),
    Method(
        "dbk-corrected",
        "deep basis with a diagonal correction in fit and prediction, by exact inference",
        LRDKD,
        "5, 11, 12",
        engine="closed_form",
        backbone="mlp",
        expansion="linear",
        residual="unit",
        objective="collapsed_elbo",
        route="closed_form",
        posterior="solved",
        use_when="up to some 10^5 rows with one noise level; comparison with its ablations",
    ),
    Method(
        "dbk-corrected-c",
        "dbk-corrected without the variance correction (ablation)",
        LRDKD,
        "5, 6",
        engine="closed_form",
        backbone="mlp",
        expansion="linear",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="ablation",
    ),
    Method(
        "dbk-corrected-r",
        "dbk-corrected with a single basis function (ablation)",
        LRDKD,
        "5, 11, 12, r = 1",
        engine="closed_form",
        backbone="mlp",
        expansion="linear",
        residual="unit",
        objective="collapsed_elbo",
        route="closed_form",
        posterior="solved",
        rank=1,
        use_when="ablation",
        cost="O(n h^2)",
    ),
    Method(
        "dbk-corrected-cr",
        "dbk-corrected with a single basis function and without the correction (ablation)",
        LRDKD,
        "5, 6, r = 1",
        engine="closed_form",
        backbone="mlp",
        expansion="linear",
        objective="mll",
        route="closed_form",
        posterior="solved",
        rank=1,
        use_when="ablation",
        cost="O(n h^2)",
    ),
    Method(
        "fmgp",
        "fixed-mean GP: the variance of a sparse GP around a predictor that stays as it is",
        FMGP,
        "20-30",
        engine="fixed_mean",
        encoder="standardise",
        backbone="identity",
        expansion="rbf",
        residual="nystrom",
        objective="fixed_mean",
        reverts_to_prior=True,
        rank=100,
        use_when="a good predictor exists (a network, LightGBM, a raster) and only its variance is missing",
        cost="O(n (predictor + r (d + r)))",
    ),
    Method(
        "dnn",
        "a plain network on squared error, its noise fitted afterwards",
        DBK,
        "appendix B (DNN)",
        engine="network",
        expansion="last_layer",
        objective="mse",
        posterior="point",
        use_when="baseline: the mean alone",
        cost="O(n h^2)",
    ),
    Method(
        "map",
        "a plain network, maximum a posteriori with its noise",
        FMGP,
        "section V (MAP)",
        engine="network",
        expansion="last_layer",
        objective="map",
        posterior="point",
        use_when="baseline: the mean alone",
        cost="O(n h^2)",
    ),
    Method(
        "lla",
        "last-layer Laplace: a plain network whose output weights get a covariance afterwards",
        FMGP,
        "section V (last-layer LLA)",
        engine="network",
        expansion="last_layer",
        objective="mse",
        posterior="laplace",
        use_when="a quick latent sd for a network; baseline",
        cost="O(n h^2), once more for the covariance",
    ),
    Method(
        "dnn-s",
        "a sparse GP on the output of a network trained before",
        LOWRANK,
        "36, 37, appendix D (DNN+S)",
        engine="pretrained",
        backbone="mlp",
        latent=(1,),
        expansion="rbf",
        residual="nystrom",
        objective="collapsed_elbo",
        route="closed_form",
        posterior="solved",
        use_when="comparison: what training network and GP together is worth",
    ),
    Method(
        "dnn-m",
        "a Mercer GP on the output of a network trained before",
        LOWRANK,
        "36, 37, appendix D (DNN+M)",
        engine="pretrained",
        backbone="mlp",
        latent=(1,),
        expansion="hermite",
        residual="none",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="comparison: what training network and GP together is worth",
        rank=15,
    ),
    Method(
        "dnn-f",
        "a Fourier GP on the output of a network trained before",
        LOWRANK,
        "36, 37, appendix D (DNN+F)",
        engine="pretrained",
        backbone="mlp",
        latent=(1,),
        expansion="fourier",
        residual="none",
        objective="mll",
        route="closed_form",
        posterior="solved",
        use_when="comparison: what training network and GP together is worth",
        rank=40,
    ),
    Method(
        "cox",
        "Cox process: a log-normal intensity of counts",
        LRDKD,
        "appendix A.5",
        engine="cox",
        residual="none",
        noise="constant",
        objective="poisson",
        use_when="where people measure: target tests, for the support of every other map",
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


#: The formula of each choice, as the reference pages print it.
_FORMULAS = {
    "expansion": {
        "silu": "φ(h) = a ∘ silu(W h + b)",
        "rbf": "φ(h) = K_ZZ^(-1/2) k_Z(h)",
        "softki": "φ(h) = L' s(h), K_ZZ = L L', s the softmax of -‖h/T - z‖",
        "ski": "φ(h) = L' w(h), w cubic weights on a lattice",
        "fourier": "φ(h) = sqrt(2/r) [cos(Ω h), sin(Ω h)]",
        "hermite": "φ_n(h) = sqrt(λ_n) e_n(h), Hermite functions",
        "linear": "φ(h) = W h + b",
        "last_layer": "φ(h) = [h, 1]",
        "exact": "k(x, x') = s² exp(-½ ‖(h - h')/ℓ‖²), no basis",
    },
    "residual": {
        "none": "var r(x) = 0",
        "nystrom": "var r(x) = k~(x, x) - ‖φ(x)‖²",
        "unit": "var r(x) = max ‖φ‖² - ‖φ(x)‖²",
        "distance": "var r(x) = a (1 - exp(-d(x) / ρ))",
        "local": "r a Gaussian process conditioned on the nearest observations",
    },
    "objective": {
        "dppgp": "mean -log N(y; μ, σ_f² + σ²) + α trace + β/n KL",
        "ppgp": "mean -log N(y; μ, σ_f² + σ²) + β/n KL",
        "elbo": "mean -log N(y; μ, σ²) + σ_f²/(2σ²) + KL/n",
        "mll": "-log N(y; m, Φ Φ' + σ² I)",
        "collapsed_elbo": "-log N(y; m, Φ Φ' + σ² I) + tr(C)/(2σ²)",
        "softki": "-log N(y; m, Φ Φ' + σ² I) of a batch",
        "fixed_mean": "the α = 1 bound of q (mean given) and of the auxiliary q*",
        "poisson": "mean exp(μ + σ_f²/2) - y μ, + KL/n",
        "mse": "mean ½ (y - μ)²",
        "map": "mean -log N(y; μ, σ²) + ‖w‖²/(2n)",
    },
}


def page(name: str) -> str:
    """The reference page of a method in markdown: formula, choices, when to use it, cost, source.

    Made from its row and from the docstrings of its choices, so that it cannot lag behind them.

    Raises
    ------
    ImpossibleCombination
        for a name that is not in the table.

    Examples
    --------
    >>> page("sgpr").splitlines()[0]
    '# sgpr'
    """
    row = method(name)
    lines = [f"# {row.name}", "", f"{row.summary[:1].upper()}{row.summary[1:]}.", ""]
    lines += ["## Formula", "", "    y | f ~ noise(f(x), n),  f(x) = m + φ(x)'w + r(x),  w ~ N(0, I)"]
    for kind, table in _FORMULAS.items():
        formula = table.get(getattr(row, kind))
        if formula:
            lines.append(f"    {kind + ':':<11}{formula}")
    lines += ["", "## Choices", "", "| choice | value | what it is |", "|---|---|---|"]
    lines += [f"| {kind} | {value} | {words} |" for kind, value, words in _choices(row)]
    sizes = [f"rank {row.rank}" if row.rank else "", f"{row.steps} steps" if row.steps else ""]
    own = ", ".join(s for s in sizes if s)
    lines += [
        "",
        "## When to use it",
        "",
        f"{row.use_when[:1].upper()}{row.use_when[1:]}." if row.use_when else "-",
    ]
    far = (
        "Far from data its latent variance returns to the prior."
        if row.reverts_to_prior
        else "Far from data its latent variance need not return to the prior (`reverts_to_prior: false`): a fit warns."
    )
    lines += ["", far, "", "## Cost", "", f"{row.cost}, n rows, rank r, hidden width h, d inputs."]
    if own:
        lines += ["", f"Its own defaults: {own}."]
    lines += ["", "## Source", "", row.paper if row.paper != "-" else "This library."]
    if row.equations != "-":
        lines[-1] += f": equations {row.equations}." if row.equations[0].isdigit() else f": {row.equations}."
    lines += ["", "## Use", "", f'    geogp.GPRegressor(method="{row.name}").fit(X, y)']
    lines += [f"    geogp fit obs.parquet --target download --method {row.name} -o run/"]
    return "\n".join(lines) + "\n"


def _choices(row: Method) -> list[tuple[str, str, str]]:
    """(kind, value, first line of the docstring) of each choice of a row."""
    from geogp.backbones import BACKBONES
    from geogp.expansions import EXPANSIONS
    from geogp.noise import NOISES
    from geogp.objectives import BATCH_EVIDENCES, EVIDENCES, OBJECTIVES
    from geogp.posterior import POSTERIORS
    from geogp.residuals import RESIDUALS

    encoders = {
        "fourier": "standardised inputs and multi-scale Fourier features of the position",
        "standardise": "inputs with mean 0 and sd 1",
        "none": "coordinates in spacings of the places, time in spans of the data",
    }
    noises = {"auto": "tau^2 + s^2 / n when counts are given, else one noise variance"}
    registries: dict[str, dict] = {
        "backbone": dict(BACKBONES),
        "expansion": dict(EXPANSIONS),
        "residual": dict(RESIDUALS),
        "noise": dict(NOISES),
        "objective": {**OBJECTIVES, **EVIDENCES, **BATCH_EVIDENCES},
        "posterior": dict(POSTERIORS),
    }
    # Choices that are an engine's own rather than an entry of a registry.
    own = {
        ("expansion", "none"): "no basis: the field is all residual",
        ("expansion", "exact"): "the kernel itself, no basis",
        ("residual", "local"): "a Gaussian process conditioned on the nearest observations on all sides",
        ("objective", "vecchia"): "conditional (Vecchia) likelihood, then the likelihood of held-out rows",
        ("posterior", "solved"): "computed from the data, not trained",
    }
    out = [("encoder", row.encoder, encoders.get(row.encoder, ""))]
    for kind, registry in registries.items():
        value = getattr(row, kind)
        words = noises.get(value, "") if kind == "noise" else own.get((kind, value), "")
        for part in value.split("+"):
            doc = getattr(registry.get(part), "__doc__", None) or ""
            words = words or doc.strip().split("\n")[0].rstrip(".:").replace("|", "\\|")
        out.append((kind, value, words))
    return [*out, ("route", row.route.replace("_", " "), "how the weights get their distribution")]
