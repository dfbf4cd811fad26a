"""The reference page of each method, made from its row and the docstrings of its choices.

So it cannot lag behind them. What a page says of places far from data was checked by fitting every method and
looking there (`tests/geogp/test_pages.py`).
"""

from geogp.methods import METHODS, Method, method

_MODEL = "y | f ~ noise(f(x), n),  f(x) = m + φ(x)'w + r(x),  w ~ N(0, I)"
#: The formula of each choice.
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
    },
    "residual": {
        "none": "var r(x) = 0",
        "nystrom": "var r(x) = k~(x, x) - ‖φ(x)‖²",
        "unit": "var r(x) = max ‖φ‖² - ‖φ(x)‖²",
        "distance": "var r(x) = a (1 - exp(-d(x) / ρ))",
        "local": "r a Gaussian process conditioned on the nearest observations",
    },
    "objective": {
        "dppgp": "mean -log N(y; μ, σ_f² + σ²) + α mean (max ‖φ‖² - ‖φ‖²)/(2σ²) + β KL/n + c log CRPS",
        "ppgp": "mean -log N(y; μ, σ_f² + σ²) + β KL/n",
        "elbo": "mean -log N(y; μ, σ²) + σ_f²/(2σ²) + KL/n",
        "mll": "-log N(y; m, Φ Φ' + σ² I)",
        "collapsed_elbo": "-log N(y; m, Φ Φ' + σ² I) + tr(C)/(2σ²), C the residual variances",
        "softki": "-log N(y; m, Φ Φ' + σ² I) of a batch",
        "fixed_mean": "the α = 1 bound of q (mean given) and of the auxiliary q*",
        "poisson": "mean of -E_q log NegBin(N; exp f, c), + KL/n; c = 0 is Poisson: exp(μ + σ_f²/2) - N μ",
        "mse": "mean ½ (y - μ)²",
        "map": "mean -log N(y; μ, σ²) + ‖w‖²/(2n)",
    },
}
#: The model of engines that have no basis, or more than one.
_MODELS = {
    "local": [
        "y = β₀ + β₁ t + r(x, t) + b(n) + ε,  r ~ GP(0, sum of Matérn kernels)",
        "p(r | data) from the k nearest observations on all sides; far from all of them the prior",
    ],
    "exact": ["y | f ~ N(f(x), σ²),  f ~ GP(m, k),  k(x, x') = s² exp(-½ ‖(h - h')/ℓ‖²)"],
    "fixed_mean": [
        "y | f ~ noise(f(x), n),  E f(x) = the predictor's value,  var f(x) = var φ(x)'w + var r(x)"
    ],
    "network": ["y | f ~ noise(f(x), n),  f(x) = m + φ(x)'w,  w a point (lla: its Laplace distribution)"],
    "cox": ["N | f ~ Poisson(G exp f(x)),  G ~ Gamma(mean 1, variance c),  f(x) = m + φ(x)'w,  w ~ N(0, I)"],
}
_NOISE = {
    "geogp": "ε ~ skewed Student-t, squared scale τ²(x) + s²(x)/n: smooth functions of what surrounds x",
    "local-gp": "ε ~ Student-t, squared scale τ² + s²/n",
}
_EXACT_OBJECTIVE = "-log N(y; m, K + σ² I)"
_VECCHIA = "product over held-out rows of p(y | its neighbours), then of whole blocks and quarters left out"

_ENCODERS = {
    "fourier": "standardised inputs and multi-scale Fourier features of the position",
    "standardise": "inputs with mean 0 and sd 1",
    "none": "coordinates in spacings of the places, time in spans of the data",
}
_ROUTES = {
    "variational": "the distribution of the weights is learned with everything else, by minibatches",
    "closed_form": "the distribution of the weights is solved for, exactly, from all rows",
}
#: Words for choices that are an engine's own, or that a docstring's first line does not tell.
_WORDS = {
    ("backbone", "mlp"): "two hidden layers, tanh after each",
    ("expansion", "none"): "no basis: the field is all residual",
    ("expansion", "exact"): "the kernel itself, no basis",
    ("residual", "none"): "zero: the kernel is exactly the basis",
    ("residual", "local"): "a Gaussian process conditioned on the nearest observations on all sides",
    ("noise", "auto"): "tau^2 + s^2 / n when counts are given, else one noise variance",
    ("objective", "vecchia"): "conditional (Vecchia) likelihood, then the likelihood of held-out rows",
    ("posterior", "solved"): "computed from the data, not trained",
    ("posterior", "point"): "one value of each weight, no distribution",
    ("posterior", "laplace"): "the network's weights, with the Laplace covariance of the last layer",
    ("posterior", "dense"): "N(m, L L') with m and the triangular L learned",
}


def page(name: str) -> str:
    """The reference page of a method in markdown: formula, choices, when to use it, far from data, cost, source.

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
    lines = [f"# {row.name}", "", f"{_sentence(row.summary)}", "", "## Formula", ""]
    lines += [f"    {line}" for line in formula(row)]
    lines += ["", "## Choices", "", "| choice | value | what it is |", "|---|---|---|"]
    lines += [f"| {kind} | {value} | {words} |" for kind, value, words in choices(row)]
    lines += ["", "## When to use it", "", _sentence(row.use_when)]
    lines += ["", "## Far from data", "", *far(row)]
    lines += ["", "## Cost", "", f"{row.cost}; n rows, rank r, hidden width h, d inputs."]
    sizes = [f"rank {row.rank}" if row.rank else "", f"{row.steps} steps" if row.steps else ""]
    if own := ", ".join(s for s in sizes if s):
        lines += ["", f"Its own defaults: {own}."]
    lines += ["", "## Source", "", _source(row), "", "## Use", "", *_use(row)]
    return "\n".join(lines) + "\n"


def formula(row: Method) -> list[str]:
    """The model and what its choices put into it, a line each."""
    lines = list(_MODELS.get(row.engine, [_MODEL]))
    if row.engine == "exact":
        where = "h = x" if row.backbone == "identity" else "h the network's output"
        return [*lines, f"{where}", f"objective: {_EXACT_OBJECTIVE}"]
    if row.engine == "local":
        return [*lines, f"noise:     {_NOISE[row.name]}", f"objective: {_VECCHIA}"]
    for kind, table in _FORMULAS.items():
        if kind == "residual" and row.engine in ("network", "cox"):
            continue
        if (words := table.get(getattr(row, kind))) is not None:
            lines.append(f"{kind + ':':<11}{words}")
    return lines


def far(row: Method) -> list[str]:
    """What mean and latent sd come to far from all data: a paragraph each, and what to do about it."""
    mean, sd = _far(row)
    lines = [f"Mean: {mean}.", "", f"Latent sd: {sd}."]
    if row.reverts_to_prior:
        return [*lines, "", "So `explained` falls to 0 where the map is only the prior."]
    lines += ["", "The row says `reverts_to_prior: false`: a fit warns, and `explained` is no guide there."]
    if row.engine in ("lowrank", "closed_form"):
        lines[-1] += " `residual=local` brings it back to the prior."
    return lines


def _far(row: Method) -> tuple[str, str]:
    network = row.backbone in ("resnet", "mlp")
    extrapolated = "what the network makes of inputs it has not seen, bounded by its last layer"
    if row.engine == "local":
        return (
            "the level and trend of all rows",
            "the prior's, within a few lengthscales of the last observation",
        )
    if row.engine == "fixed_mean":
        return "the predictor's own value, to the bit; none outside a raster", "the prior's"
    if row.engine == "network" and row.posterior == "point":
        return extrapolated, "0, as everywhere: the interval is the noise alone"
    if row.expansion == "fourier" and not network:
        return (
            "the waves go on; what they add up to there means nothing",
            "larger than at the data but below the prior's: the prior variance is the same everywhere, and what the "
            "data say of the waves holds everywhere, too",
        )
    if row.expansion == "hermite" and not network:
        return (
            "the constant: all basis functions die out beyond the data",
            "0, and so is the prior's: the map looks certain where it knows nothing",
        )
    if row.expansion in ("softki", "ski"):
        border = "inducing points" if row.expansion == "softki" else "lattice points"
        return (
            f"that of the outermost {border}",
            f"that of the outermost {border}: up to the prior's where they lie beyond the data",
        )
    if not network:
        return "the constant", "the prior's"
    if row.residual == "unit":
        return (
            extrapolated,
            "between that at the data and the prior's, which is the same everywhere by construction",
        )
    if row.residual == "nystrom" or row.expansion == "exact":
        return (
            extrapolated,
            "distance counts on the network's output, where a far place may lie next to data: somewhere between that at "
            "the data and the prior's",
        )
    of = "of the log intensity: " if row.engine == "cox" else ""
    return (
        extrapolated if row.engine != "cox" else f"{of}{extrapolated}",
        f"{of}little more than at the data: the network's output is bounded, and so is what its basis leaves open",
    )


def choices(row: Method) -> list[tuple[str, str, str]]:
    """(kind, value, first line of the docstring) of each choice of a row."""
    from geogp.basis.backbones import BACKBONES
    from geogp.basis.expansions import EXPANSIONS
    from geogp.basis.noise import NOISES
    from geogp.basis.objectives import BATCH_EVIDENCES, EVIDENCES, OBJECTIVES
    from geogp.basis.posterior import POSTERIORS
    from geogp.basis.residuals import RESIDUALS

    registries: dict[str, dict] = {
        "backbone": dict(BACKBONES),
        "expansion": dict(EXPANSIONS),
        "residual": dict(RESIDUALS),
        "noise": dict(NOISES),
        "objective": {**OBJECTIVES, **EVIDENCES, **BATCH_EVIDENCES},
        "posterior": dict(POSTERIORS),
    }
    special = {
        (
            "noise",
            "geogp",
        ): "tau^2(x) + s^2(x) / n, smooth functions of neighbours and regional level, learned from rows held out",
        ("noise", "cox"): "one variance c of the gamma factor, on the scale of counts",
        ("objective", "gp-rbf"): _EXACT_OBJECTIVE + ", all rows at once",
        ("objective", "dkl"): _EXACT_OBJECTIVE + ", all rows at once",
        ("objective", "cox"): "-ELBO / n of the counts, the KL as it is",
    }
    out = [("encoder", row.encoder, _ENCODERS.get(row.encoder, ""))]
    for kind, registry in registries.items():
        value = getattr(row, kind)
        words = special.get((kind, row.name)) or _WORDS.get((kind, value), "")
        for part in value.split("+"):
            doc = getattr(registry.get(part), "__doc__", None) or ""
            words = words or doc.strip().split("\n")[0].rstrip(".:").replace("|", "\\|")
        out.append((kind, value, words))
    return [*out, ("route", row.route.replace("_", " "), _ROUTES[row.route])]


def _sentence(text: str) -> str:
    """Text as a sentence; a method's name at its head stays as it is written."""
    first = text.split(" ", 1)[0]
    return (text if first in METHODS else f"{text[:1].upper()}{text[1:]}") + "."


def _source(row: Method) -> str:
    if not row.equations[0].isdigit():
        return f"{row.paper}: {row.equations}."
    several = any(c in row.equations.split(";")[0] for c in ",-")
    return f"{row.paper}: equation{'s' if several else ''} {row.equations}."


def _use(row: Method) -> list[str]:
    from geogp.update import updatable

    target = "tests" if row.engine == "cox" else "download"
    python = f'geogp.GPRegressor(method="{row.name}").fit(X, y)'
    line = f"geogp fit obs.parquet --target {target} --method {row.name} -o run/"
    if row.engine == "fixed_mean":
        python = f'geogp.GPRegressor(method="{row.name}", options={{"predictor": model}}).fit(X, y)'
        line = line.replace(" -o", " --predictor map.tif -o")
    how = {
        "statistics": "`geogp update` adds and forgets quarters: the weights are solved again from statistics.",
        "observations": "`geogp update` adds and forgets quarters: the field knows other observations.",
    }
    update = how.get(updatable().get(row.name, ""), "`geogp update` cannot change its runs: fit again.")
    return [f"    {python}", f"    {line}", "", update]
