"""The reference page of each method, made from its row and from what its engine and its choices say of themselves.

So it cannot lag behind them. What a page says of places far from data was checked by fitting every method and
looking there (`tests/geogp/test_pages.py`).
"""

from geogp.basis.objectives import OBJECTIVES
from geogp.basis.residuals import RESIDUALS
from geogp.basis.spread import SPREADS
from geogp.engines import ENGINES
from geogp.engines.check import CHOICES, engine_of
from geogp.methods import METHODS, Method, method
from geogp.registry import words
from geogp.update import updatable

_ROUTES = {
    "variational": "the distribution of the weights is learned with everything else, by minibatches",
    "closed_form": "the distribution of the weights is solved for, exactly, from all rows",
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
    engine = engine_of(row)
    lines = list(engine.model_lines)
    for kind in engine.formulas_of:
        first = getattr(row, kind).split("+")[0]
        lines.append(f"{kind + ':':<11}{CHOICES[kind][first].formula}")
    if engine.rescales and SPREADS[row.spread].rescales:
        lines.append(
            f"{'spread:':<11}a var f(x) and b σ², a and b the likeliest on training and held-out rows"
        )
        if OBJECTIVES[row.objective].predictive:
            lines.append(f"{'':<11}plus c φ' Cov(w) φ in the noise, where held-out rows gain by it")
    return lines


def far(row: Method) -> list[str]:
    """What mean and latent sd come to far from all data: a paragraph each, and what to do about it."""
    engine = engine_of(row)
    mean, sd = engine.far(row)
    lines = [f"Mean: {mean}.", "", f"Latent sd: {sd}."]
    if row.reverts_to_prior:
        nothing = RESIDUALS[row.residual].explains_nothing_far
        how = (
            "falls to 0 where the map is only the prior"
            if nothing
            else "falls, but not to 0; judge a map there by its distance to data, too"
        )
        return [*lines, "", f"So `explained` {how}."]
    lines += ["", "The row says `reverts_to_prior: false`: a fit warns, and `explained` is no guide there."]
    if engine.leaves_over:
        lines[-1] += " `residual=local` brings it back to the prior."
    return lines


def choices(row: Method) -> list[tuple[str, str, str]]:
    """(kind, value, what it is) of each choice of a row."""
    engine = engine_of(row)
    out = []
    for kind, entries in CHOICES.items():
        if kind == "spread" and not engine.rescales:
            continue
        value = getattr(row, kind)
        entry = entries[value.split("+")[0]]
        said = engine.words.get(kind) or (entry if isinstance(entry, str) else words(entry))
        out.append((kind, value, said.replace("|", "\\|")))
    return [*out, ("route", engine.route.replace("_", " "), _ROUTES[engine.route])]


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
    option, keyword = ENGINES[row.engine].example_options
    target = ENGINES[row.engine].example_target
    python = f'geogp.GPRegressor(method="{row.name}"{keyword}).fit(X, y)'
    line = f"geogp fit obs.parquet --target {target} --method {row.name}{option} -o run/"
    how = {
        "statistics": "`geogp update` adds and forgets quarters: the weights are solved again from statistics.",
        "observations": "`geogp update` adds and forgets quarters: the field knows other observations.",
    }
    update = how.get(updatable().get(row.name, ""), "`geogp update` cannot change its runs: fit again.")
    return [f"    {python}", f"    {line}", "", update]
