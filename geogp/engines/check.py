"""Which engine carries a row, and which of its choices cannot go together."""

from dataclasses import replace

from geogp.basis.expansions import EXPANSIONS, expansion_named
from geogp.basis.noise import NOISES
from geogp.basis.objectives import OBJECTIVES
from geogp.basis.residuals import RESIDUALS
from geogp.basis.spread import SPREADS
from geogp.engines import ENGINES, Engine
from geogp.errors import ImpossibleCombination
from geogp.methods import METHODS, Method
from geogp.registry import REGISTRIES, choose, parts, registered

#: The choices of a row, and what each value must be one of.
CHOICES: dict[str, dict] = {kind: registered(kind) for kind in REGISTRIES}


def engine_of(row: Method) -> type[Engine]:
    """What carries a row: its engine, or that of a residual which is a process of its own."""
    own = choose(RESIDUALS, "residual", row.residual).carried_by
    return choose(ENGINES, "engine", own or row.engine)


def check(row: Method, *, stored: bool = False) -> None:
    """Refuse impossible choices by name.

    stored : of a fit that was stored, whose choices may be some that change nothing: they were not refused once

    Raises
    ------
    ImpossibleCombination
    """
    for kind, entries in CHOICES.items():
        for name in parts(kind, getattr(row, kind)):
            choose(entries, kind, name)
    engine = choose(ENGINES, "engine", row.engine)
    carrier = engine_of(row)
    if carrier is not engine:
        if not engine.leaves_over:
            able = sorted({m.name for m in METHODS.values() if ENGINES[m.engine].leaves_over})
            raise ImpossibleCombination(
                f"residual {row.residual!r} cannot go with method {row.name!r}, which has no basis to leave something "
                f"over: take one of {', '.join(able)}, or a method that is that residual alone."
            )
        # It is fitted to what the rest of the row leaves over.
        noise = row.noise if NOISES[row.noise].of_basis else "auto"
        row = replace(row, residual="none", noise=noise)
    _check_objective(row, engine)
    _check_posterior(row, engine)
    if engine.has_basis:
        _check_pieces(row, engine)
    elif not stored:
        _check_read(row, engine)
    if SPREADS[row.spread].rescales and not engine.rescales:
        other = next(m.name for m in METHODS.values() if ENGINES[m.engine].rescales)
        raise ImpossibleCombination(
            f"spread {row.spread!r} cannot go with method {row.name!r}, whose variances are read in its own way: take "
            f"'learned', or a method with a learned basis such as {other!r}."
        )


def _check_objective(row: Method, engine: type[Engine]) -> None:
    does = OBJECTIVES[row.objective].does
    if does in engine.objectives_do:
        return
    fitting = [name for name, o in OBJECTIVES.items() if o.does in engine.objectives_do]
    others = [m.name for m in METHODS.values() if does in ENGINES[m.engine].objectives_do]
    raise ImpossibleCombination(
        f"objective {row.objective!r} {does} and method {row.name!r} {engine.objectives_do[0]}: take objective "
        f"{', '.join(map(repr, fitting))}, or a method that {does}, such as {others[0]!r}."
    )


def _check_posterior(row: Method, engine: type[Engine]) -> None:
    if row.posterior not in engine.posteriors:
        raise ImpossibleCombination(
            f"posterior {row.posterior!r} cannot go with method {row.name!r}, which {engine.objectives_do[0]}: take "
            f"{' or '.join(map(repr, engine.posteriors))}."
        )
    if row.posterior == "laplace" and row.expansion != "last_layer":
        raise ImpossibleCombination(
            f"posterior 'laplace' cannot go with expansion {row.expansion!r}: it is the covariance of a network's "
            "last layer; take expansion 'last_layer', or posterior 'dense' with objective 'dppgp'."
        )


def _check_read(row: Method, engine: type[Engine]) -> None:
    """Refuse what an engine without a basis would not look at."""
    for kind in ("backbone", "expansion", "residual", "noise", "objective"):
        asked, known = getattr(row, kind), set(engine.reads.get(kind, ()))
        known |= {getattr(m, kind) for m in METHODS.values() if m.engine == row.engine}
        if asked not in known:
            other = next(m.name for m in METHODS.values() if ENGINES[m.engine].rescales)
            raise ImpossibleCombination(
                f"{kind} {asked!r} cannot go with method {row.name!r}, where it would change nothing: leave it out "
                f"(here it is {' or '.join(map(repr, sorted(known)))}), or take a method with a learned basis such as {other!r}."
            )


def _check_pieces(row: Method, engine: type[Engine]) -> None:
    expansion_named(row.expansion)
    expansion, residual = EXPANSIONS.get(row.expansion), RESIDUALS[row.residual]
    if not NOISES[row.noise].of_basis:
        basis = ", ".join(repr(name) for name, n in NOISES.items() if n.of_basis)
        raise ImpossibleCombination(
            f"noise {row.noise!r} cannot go with method {row.name!r}: only a local field fits it; take {basis}, or "
            "residual 'local' as well."
        )
    if residual.needs_base_kernel and not (expansion is not None and expansion.has_base_kernel):
        raise ImpossibleCombination(
            f"residual {row.residual!r} cannot go with expansion {row.expansion!r}, which approximates no base "
            "kernel: take expansion 'rbf', or residual 'none', 'unit' or 'local'."
        )
    if residual.learns_by_trial and not engine.has_trials:
        other = next(m.name for m in METHODS.values() if ENGINES[m.engine].has_trials)
        raise ImpossibleCombination(
            f"residual {row.residual!r} cannot go with method {row.name!r}, of whose variance no places left out can tell: "
            f"take another residual, or a method such as {other!r}."
        )
    if OBJECTIVES[row.objective].exact_variance and not residual.needs_base_kernel:
        raise ImpossibleCombination(
            f"objective {row.objective!r} needs the exact variance of a base kernel, which residual {row.residual!r} does "
            "not give: take objective 'dppgp', or residual 'nystrom' with expansion 'rbf'."
        )
