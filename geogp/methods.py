"""THE TABLE: a method is a row of choices.

Adding a method is adding a row here; `geogp.engines.check` refuses what cannot go together, and the row's engine
makes a model of it.
"""

from dataclasses import asdict, dataclass

from geogp.errors import ImpossibleCombination


@dataclass(frozen=True)
class Method:
    """One row: a name and the choices it stands for.

    engine : which class carries it, a key of `geogp.engines.ENGINES`; it says how the weights get their distribution
    encoder, backbone, expansion, residual, noise, objective, posterior, spread : keys of the registries in `geogp.basis`
    residual_of_features : the residual in place of that where columns have no position and none is asked for; "" for the same
    without_position : the row that takes over where the columns are generic features and have no position
    without_position_once : the row that did so in runs that do not say which
    most_rows, beyond : where it stands in for another row it is for so many rows, and for more the row `beyond` is
    instead : what to take where there are more rows than the row takes, in words
    reverts_to_prior : latent variance far from data is at least that at the data
    rank, steps : the row's own defaults of these, where they differ from everyone's
    rows_per_function : the default rank leaves at least so many rows to each basis function (but is never below 16)
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
    posterior: str = "dense"
    spread: str = "learned"
    residual_of_features: str = ""
    reverts_to_prior: bool = False
    rank: int | None = None
    rows_per_function: int = 1
    steps: int | None = None
    latent: tuple[int, ...] = ()
    without_position: str = ""
    without_position_once: str = ""
    most_rows: int | None = None
    beyond: str = ""
    instead: str = ""
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

# fmt: off
_ROWS = [
    Method("geogp",
        "local field with a level and a noise that know counts and surroundings, skewed Student-t, "
        "calibrated",
        OWN, "geogp/field; Vecchia 1988; Snelson et al. 2004; Katzfuss and Guinness 2021",
        engine="local", encoder="none", backbone="identity", expansion="none", residual="local",
        objective="vecchia", noise="smooth", posterior="solved", without_position="gp-averaged",
        without_position_once="dbk-rbf", reverts_to_prior=True,
        use_when="the default: most accurate where there are data, honest where there are none; one column is a line of "
        "places; rows with generic features and no position fall back to gp-averaged, more than it takes to dbk-rbf",
        cost="O(n log n + targets k^3 + cells K^3 + n_new K^2), k = 48 neighbours, K = 2 k to 5 k shared by a cell; "
        "with region_rows=200000 in regions of so many rows, one after another"),
    Method("local-gp",
        "local (Vecchia) Gaussian process with tau^2 + s^2/n noise, alone",
        OWN, "geogp/field; Vecchia 1988; Katzfuss and Guinness 2021",
        engine="local", encoder="none", backbone="identity", expansion="none", residual="local",
        objective="vecchia", noise="counts", posterior="solved", without_position="gp-averaged",
        without_position_once="dbk-rbf", reverts_to_prior=True,
        use_when="as geogp where one noise variance serves everywhere: half the time, no network; what the "
        "smooth noise of geogp is worth",
        cost="O(n log n + cells K^3 + n_new K^2), K = 96 to 256 neighbours shared by a cell"),
    Method("dbk-silu",
        "deep basis kernel with SiLU basis functions",
        DBK, "8, 13, 15",
        residual="distance", residual_of_features="none", spread="student", reverts_to_prior=True,
        use_when="many rows, and a pattern that changes its character across the map; the fastest of the "
        "deep ones, and the most likely to be wrong in gaps, where its intervals widen with the distance from data: "
        "residual 'none' is the published method, without"),
    Method("dbk-rbf",
        "deep basis kernel with an inducing-point basis on the network's output",
        DBK, "8, 12, 15",
        expansion="rbf", residual="distance", residual_of_features="none", spread="student",
        reverts_to_prior=True,
        use_when="as dbk-silu; usually a little more accurate, at 1.5 times the time"),
    Method("sv-rbf",
        "sparse variational GP (SVGP) with a stationary RBF kernel",
        DBK, "3-5",
        encoder="standardise", backbone="identity", expansion="rbf", residual="nystrom", objective="elbo",
        reverts_to_prior=True,
        use_when="a smooth field that varies alike everywhere, with more rows than sgpr takes; the baseline "
        "everyone knows",
        cost="O(n r (d + r))"),
    Method("sv-dkl",
        "sparse variational deep kernel learning",
        DBK, "3-5, 7",
        expansion="rbf", residual="nystrom", objective="elbo",
        use_when="the baseline that deep basis kernels are compared with: the same network, its output fed "
        "to a sparse GP"),
    Method("pp-rbf",
        "predictive-likelihood sparse GP (PPGP) with a stationary RBF kernel",
        DBK, "6",
        encoder="standardise", backbone="identity", expansion="rbf", residual="nystrom", objective="ppgp",
        reverts_to_prior=True,
        use_when="as sv-rbf where intervals matter more than the mean: trained for what is predicted; its "
        "latent sd may overfit the noise",
        cost="O(n r (d + r))"),
    Method("pp-dkl",
        "predictive-likelihood deep kernel learning",
        DBK, "6, 7",
        expansion="rbf", residual="nystrom", objective="ppgp",
        use_when="the stronger of the two deep baselines: sv-dkl trained for its predictions"),
    Method("vbll",
        "variational Bayesian last layer",
        DBK, "appendix B",
        objective="elbo",
        use_when="what the Bayesian last layer alone gives: dbk-silu by the ELBO, whose latent sd ignores "
        "how noise varies"),
    Method("dbk-silu-exact",
        "deep basis kernel with SiLU basis functions and its exact marginal likelihood",
        DBK, "8, 10, 11, 13, algorithms 1 and 2",
        engine="closed_form", objective="mll", posterior="solved",
        use_when="up to some 10^5 rows with one noise level, and a posterior that is to be exact; its latent "
        "sd is nearly the same everywhere, see dbk-silu"),
    Method("dbk-rbf-exact",
        "deep basis kernel with an inducing-point basis and its exact marginal likelihood",
        DBK, "8, 10, 11, 12, algorithms 1 and 2",
        engine="closed_form", expansion="rbf", objective="mll", posterior="solved",
        use_when="as dbk-silu-exact, with the basis of dbk-rbf"),
    Method("sgpr",
        "sparse GP regression (sGP, Titsias): inducing points with their optimal weights",
        LOWRANK + "; " + SOFTKI, "4-6 of the latter",
        engine="closed_form", encoder="standardise", backbone="identity", expansion="rbf", residual="nystrom",
        objective="collapsed_elbo", posterior="solved", reverts_to_prior=True,
        use_when="a smooth field that varies alike everywhere, up to some 10^5 rows: exact given its "
        "inducing points, no step size to choose, honest far from data",
        cost="O(n r (d + r))"),
    Method("sdkl",
        "sparse deep kernel learning with optimal weights",
        LRDKD, "section 5 (baseline)",
        engine="closed_form", expansion="rbf", residual="nystrom", objective="collapsed_elbo",
        posterior="solved",
        use_when="deep kernel learning with the weights solved instead of learned: what the variational "
        "route of sv-dkl costs"),
    Method("fgp",
        "Fourier GP: random Fourier features, drawn once and fixed",
        LOWRANK, "section 4.1 and 5",
        engine="closed_form", encoder="standardise", backbone="identity", expansion="fourier",
        objective="mll", posterior="solved",
        use_when="comparison of low-rank approximations: its error falls as 1/sqrt(r), slower than inducing "
        "points for smooth fields",
        cost="O(n r (d + r))"),
    Method("dfgp",
        "deep Fourier GP: random Fourier features of a network's four outputs",
        LOWRANK, "appendix D",
        engine="closed_form", backbone="mlp", latent=(4,), expansion="fourier", objective="mll",
        posterior="solved",
        use_when="comparison of low-rank approximations on a network's output; rough fields that few "
        "inducing points cannot follow"),
    Method("mgp",
        "Mercer GP: Hermite eigenfunctions of the Gaussian kernel on a learned projection",
        LOWRANK, "33-35, section 4.2 and 5",
        engine="closed_form", encoder="standardise", backbone="linear", latent=(3, 5, 7), expansion="hermite",
        objective="mll", posterior="solved",
        use_when="few directions of the inputs matter and the field is smooth: needs the lowest rank of all "
        "approximations there; no good outside the data's range. The projection goes on learning while the constants "
        "that standardise it, which the paper renews, stay those of its start",
        cost="O(n r (d + r)), once for each projection tried"),
    Method("dmgp",
        "deep Mercer GP: Hermite eigenfunctions of a network's one output",
        LOWRANK, "33-35, appendix D",
        engine="closed_form", backbone="mlp", latent=(1,), expansion="hermite", objective="mll",
        posterior="solved", rank=15,
        use_when="comparison of low-rank approximations: 15 basis functions on one learned direction"),
    Method("softki",
        "soft kernel interpolation: softmax weights on learned points",
        SOFTKI, "10-12, 13, 15, 17, 18, 20-22, algorithm 1",
        engine="closed_form", encoder="standardise", backbone="identity", expansion="softki",
        objective="softki", posterior="solved", rank=512, rows_per_function=16, steps=240,
        use_when="about ten features and many rows, when the mean matters most; points that lattices cannot "
        "cover",
        cost="O(n r (d + r)), and r^3 a batch"),
    Method("ski",
        "structured kernel interpolation: cubic weights on a fixed lattice, at most three inputs",
        SOFTKI, "7-9",
        engine="closed_form", encoder="standardise", backbone="identity", expansion="ski", objective="mll",
        posterior="solved", rank=400,
        use_when="one to three inputs that the data fill evenly; the lattice that softki replaces by learned "
        "points",
        cost="O(n r^2)"),
    Method("gp-rbf",
        "exact GP with an RBF kernel, a lengthscale per input (GPyTorch)",
        DBK, "1",
        engine="exact", encoder="standardise", backbone="identity", expansion="exact", objective="mll",
        posterior="solved", reverts_to_prior=True,
        instead="'sgpr' for the same kernel or 'dbk-rbf' for a learned one",
        use_when="up to a few thousand rows: the reference that the sparse methods approximate",
        cost="O(n^3) a step, O(n^2) memory"),
    Method("gp-averaged",
        "exact GP, a lengthscale per input, averaged over what the rows leave open of its kernel and noise",
        OWN, "geogp/engines/averaged; Rasmussen and Williams 2006, 5.4.1; Geweke 1989",
        engine="averaged", encoder="standardise", backbone="identity", expansion="exact", objective="mll",
        posterior="solved", reverts_to_prior=True, most_rows=2000, beyond="dbk-rbf",
        instead="'sgpr', or 'dbk-rbf' for a learned kernel",
        use_when="tables of features with up to some thousand rows, few of them above all: intervals that know how little "
        "fifty rows tell of ten lengthscales; what geogp is where no columns are a position",
        cost="O(n^3) a step, on at most 1,000 rows; O(n^2) memory, and n^2 a new row; below 400 rows 24 times"),
    Method("dkl",
        "exact deep kernel learning: an RBF kernel on a network's output (GPyTorch)",
        DBK, "1, 7",
        engine="exact", expansion="exact", objective="mll", posterior="solved",
        instead="'sdkl' for the same kernel or 'dbk-rbf' for another learned one",
        use_when="up to a few thousand rows: the reference that the sparse deep methods approximate; "
        "overfits where rows are few",
        cost="O(n^3) a step, O(n^2) memory"),
    Method("svdbk",
        "deep basis with a diagonal correction, by stochastic variational inference",
        LRDKD, "8-12",
        backbone="mlp", expansion="linear", residual="unit", objective="elbo",
        use_when="many rows and one noise level; with its ablations it tells what the diagonal correction is "
        "worth"),
    Method("svdbk-c",
        "svdbk without the variance correction (ablation)",
        LRDKD, "8-10",
        backbone="mlp", expansion="linear", objective="elbo",
        use_when="never for a map: beside svdbk it tells what the variance correction is worth"),
    Method("svdbk-r",
        "svdbk with a single basis function (ablation)",
        LRDKD, "8-12, r = 1",
        backbone="mlp", expansion="linear", residual="unit", objective="elbo", rank=1,
        use_when="never for a map: beside svdbk it tells what more than one basis function is worth",
        cost="O(n h^2)"),
    Method("svdbk-cr",
        "svdbk with a single basis function and without the variance correction (ablation)",
        LRDKD, "8-10, r = 1",
        backbone="mlp", expansion="linear", objective="elbo", rank=1,
        use_when="never for a map: beside svdbk it tells what correction and rank are worth together",
        cost="O(n h^2)"),
    Method("dbk-corrected",
        "deep basis with a diagonal correction in fit and prediction, by exact inference",
        LRDKD, "5, 11, 12",
        engine="closed_form", backbone="mlp", expansion="linear", residual="unit", objective="collapsed_elbo",
        posterior="solved",
        use_when="up to some 10^5 rows with one noise level, when the posterior is to be exact; with its "
        "ablations it tells what the correction is worth"),
    Method("dbk-corrected-c",
        "dbk-corrected without the variance correction (ablation)",
        LRDKD, "5, 6",
        engine="closed_form", backbone="mlp", expansion="linear", objective="mll", posterior="solved",
        use_when="never for a map: beside dbk-corrected it tells what the variance correction is worth"),
    Method("dbk-corrected-r",
        "dbk-corrected with a single basis function (ablation)",
        LRDKD, "5, 11, 12, r = 1",
        engine="closed_form", backbone="mlp", expansion="linear", residual="unit", objective="collapsed_elbo",
        posterior="solved", rank=1,
        use_when="never for a map: beside dbk-corrected it tells what more than one basis function is worth",
        cost="O(n h^2)"),
    Method("dbk-corrected-cr",
        "dbk-corrected with a single basis function and without the correction (ablation)",
        LRDKD, "5, 6, r = 1",
        engine="closed_form", backbone="mlp", expansion="linear", objective="mll", posterior="solved", rank=1,
        use_when="never for a map: beside dbk-corrected it tells what correction and rank are worth together",
        cost="O(n h^2)"),
    Method("fmgp",
        "fixed-mean GP: the variance of a sparse GP around a predictor that stays as it is",
        FMGP, "20-30",
        engine="fixed_mean", encoder="standardise", backbone="identity", expansion="rbf", residual="nystrom",
        objective="fixed_mean", reverts_to_prior=True, rank=100,
        use_when="a predictor exists (a network, LightGBM, a raster somebody published) that must stay as it "
        "is, and only its intervals are missing",
        cost="O(n (predictor + r (d + r)))"),
    Method("dnn",
        "a plain network on squared error, its noise fitted afterwards",
        DBK, "appendix B (DNN)",
        engine="network", expansion="last_layer", objective="mse", posterior="point",
        use_when="the baseline for the mean: what a network does without a Gaussian process around it",
        cost="O(n h^2)"),
    Method("map",
        "a plain network, maximum a posteriori with its noise",
        FMGP, "section V (MAP)",
        engine="network", expansion="last_layer", objective="map", posterior="point",
        use_when="as dnn, with noise and network trained together",
        cost="O(n h^2)"),
    Method("lla",
        "last-layer Laplace: a plain network whose output weights get a covariance afterwards",
        FMGP, "section V (last-layer LLA)",
        engine="network", expansion="last_layer", objective="mse", posterior="laplace",
        use_when="a latent sd for a network that is trained already, in one more pass; a baseline for vbll. Its mean "
        "minimises squared error, so it is the posterior mode of no prior, and the noise, fitted to held-out rows, is "
        "not the likelihood's: the covariance is Laplace's at that mean and that noise",
        cost="O(n h^2), once more for the covariance"),
    Method("dnn-s",
        "a sparse GP on the output of a network trained before, beside the paper's DNN+M and DNN+F",
        LOWRANK, "36, 37, appendix D, with inducing points in place of its bases",
        engine="pretrained", backbone="mlp", latent=(1,), expansion="rbf", residual="nystrom",
        objective="collapsed_elbo", posterior="solved",
        use_when="what training network and GP together is worth: here one comes after the other. It is not the "
        "paper's DNN+S, an isotropic Gaussian around the network: that is dnn with backbone 'mlp' and noise 'constant'"),
    Method("dnn-m",
        "a Mercer GP on the output of a network trained before",
        LOWRANK, "36, 37, appendix D (DNN+M)",
        engine="pretrained", backbone="mlp", latent=(1,), expansion="hermite", residual="none",
        objective="mll", posterior="solved", rank=15,
        use_when="as dnn-s with 15 Mercer functions in place of inducing points"),
    Method("dnn-f",
        "a Fourier GP on the output of a network trained before",
        LOWRANK, "36, 37, appendix D (DNN+F)",
        engine="pretrained", backbone="mlp", latent=(1,), expansion="fourier", residual="none",
        objective="mll", posterior="solved", rank=40,
        use_when="as dnn-s with 40 Fourier features in place of inducing points"),
    Method("cox",
        "Cox process: counts of a log-normal intensity, with bursts",
        LRDKD, "appendix A.5",
        engine="cox", residual="none", noise="constant", objective="poisson",
        use_when="where people measure (target tests): the number of tests to expect of a tile that has any, "
        "for the support of every other map"),
]
# fmt: on

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}

#: The row that is taken where none is named.
DEFAULT = "geogp"


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
