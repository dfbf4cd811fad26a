"""A run as one page that a director reads, with an appendix for reviewers; one file, printable, nothing asked outside."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import InvalidInput
from app.workflow import certifying
from app.workflow.certifying import certificate_of
from app.workflow.drawing import picture_of
from app.workflow.evidence import alike, doubts_of, near_m_of
from app.workflow.grids import grid_of, length_words
from app.workflow.means import of_draws
from app.workflow.outputs import attribution, level_note, level_words, no_shares, now, surface_of, titled
from app.workflow.page import legend_of, usual_page
from app.workflow.pixels import Pixels, pixels_of
from app.workflow.rasters.covariates import opened
from app.workflow.reviewing.held_out import Picture, errors_by_cell, pit, reliability, widths
from app.workflow.reviewing.learned import basis_functions, slices
from app.workflow.rows import Rows, labels, observations_of
from app.workflow.scoring import strata
from app.workflow.steps.areas import areas
from app.workflow.steps.compare import LEADERBOARD
from app.workflow.steps.export import prediction
from data_pipelines.atomic import atomic_path, refuse_existing
from data_pipelines.words import many
from geogp.areas import missed, surface
from geogp.errors import check_level, check_threshold
from geogp.run import Run
from maps.figures import map_figure
from maps.render import in_memory
from maps.words import exact, padded

Array = NDArray[np.float64]

#: Pixels of the ground that the sentences speak of, about, and of a figure.
SPOKEN, DRAWN, DRAWS = 2000, 100_000, 300


@dataclass(frozen=True)
class Report:
    """What was written: `facts` are the numbers of its sentences."""

    path: Path
    facts: dict[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """What `geogp report --json` prints."""
        return {"schema": 1, "file": self.path.name, **self.facts, "notes": list(self.notes)}

    def summary(self) -> str:
        """One line for people."""
        return f"{self.path}: {self.path.stat().st_size / 2**20:.1f} MiB, {self.seconds:.1f} s"


def report(
    run: str | Path | Run,
    path: str | Path,
    *,
    polygons: str | Path | None = None,
    key: str | None = None,
    weights: str | Path | None = None,
    quarter: str | None = None,
    thresholds: Sequence[float] | None = None,
    level: float = 0.95,
    data: str | Path | None = None,
    leaderboard: str | Path | None = None,
    overwrite: bool = False,
) -> Report:
    """Write a run's report as one HTML page; a browser prints it as PDF.

    Parameters
    ----------
    path : .html
    polygons, key, weights : of a table of areas, see `geogp areas`
    quarter, thresholds, level : as for `export`
    data : the run's observations, if they were moved; without them the appendix lacks what needs held-out rows
    leaderboard : what `geogp compare --json` printed: its table goes to the appendix. Default: of the comparison that kept
        the run (`geogp compare -o`)

    Raises
    ------
    InvalidInput
        an output that exists or is no .html, a malformed option, areas outside the region.
    """
    import jinja2

    started = time.perf_counter()
    run, path = opened(run), Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(
            f"The report is written as .html, which a browser prints as PDF; name it so, not {path.name}."
        )
    refuse_existing(path, overwrite)
    check_level(level, "--level")
    chosen = run.thresholds if thresholds is None else tuple(float(c) for c in thresholds)
    for c in chosen:
        check_threshold(c, "--thresholds")
        run.target.to_score(c)
    board = _leaderboard(run, None if leaderboard is None else Path(leaderboard))
    when, notes = run.quarter(quarter), list[str]()
    table = None
    if polygons is not None:
        with TemporaryDirectory() as folder:
            found = areas(
                run, polygons, Path(folder) / "areas.parquet", key=key, weights=weights, quarter=quarter,
                level=level, thresholds=chosen, data=data,
            )  # fmt: skip
        note = level_note(found.facts)
        table = {
            "title": found.title,
            "header": found.header,
            "rows": found.rows(),
            "note": note[:1].upper() + note[1:],
        }
    spoken, certificate = _spoken(run, when, chosen, level), certificate_of(run)
    grid = grid_of(run)
    ds = prediction(run, grid, quarter=quarter, thresholds=chosen, level=level)
    picture = picture_of(run, ds, grid)
    small = in_memory(
        picture.ds,
        geometry=picture.boundary,
        layers=["median", "lower", "upper"],
        max_pixels=int(DRAWN / picture.fill),
    )[0]
    legend = legend_of(usual_page(run))
    words = f"Median {run.target.words}; the paler, the less is known of it ({100 * level:g}% prediction interval)."
    faded = map_figure(
        small,
        "faded",
        geometry=picture.boundary,
        limits=legend.limits,
        suppressed=legend.faded,
        note=picture.note,
    )
    figures, tables = [], []
    if certificate is not None:
        title, header, rows, foot = certifying.table(certificate)
        tables.append({"title": title, "header": header, "rows": rows, "notes": foot})
        figures.append(reliability(certificate))
    elif labels(run, "test").any():
        notes.append(f"The run was never evaluated: geogp evaluate {run.path} gives it a certificate.")
    if board is not None:
        tables.append(board)
    try:
        observed = observations_of(run, data)
    except InvalidInput as error:
        if data is not None:
            raise
        notes.append(f"Figures of held-out rows are left out: {error}")
    else:
        figures += _held_out(run, observed)
        if not labels(run, "test").any():
            notes.append(
                "The run holds no rows out, so nothing shows how good it is; fit it with --split for that."
            )
    learned = [
        basis_functions(run, grid_of(run, resolution_m=_coarse(run)), quarter),
        slices(run, (spoken.pixels.xy, spoken.far), quarter),
    ]
    wide = [picture for picture in learned if picture is not None]
    credit = attribution(run)
    link = credit.get("references", "")
    page = {
        "title": titled(run),
        "subtitle": _subtitle(run, when),
        "sentences": spoken.sentences(run, certificate),
        "maps": [Picture.of(faded, words, dpi=130)],
        "table": table,
        "cautions": _cautions(run, when, spoken, certificate),
        "credit": credit,
        "link": link if link.startswith(("https://", "http://")) else "",
        "notes": notes,
        "tables": tables,
        "figures": figures,
        "wide": wide,
        "made": f"Made by GeoGP, {now()}; run {run.path.name}, weights {(run.weights_sha256 or '')[:16]}.",
    }
    source = files("app.workflow").joinpath("report.html.j2").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = environment.from_string(source).render(page)
    with atomic_path(path, overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")
    facts = {
        "target": run.target.name, "quarter": when, "level": level, "unit": run.unit, **spoken.facts,
        "n_figures": len(figures) + len(wide) + 1,
    }  # fmt: skip
    return Report(path, facts, time.perf_counter() - started, tuple(notes))


@dataclass(frozen=True, eq=False)
class Spoken:
    """The numbers that the sentences are made of; `far` (n,) metres of each pixel from the nearest data."""

    pixels: Pixels
    far: Array
    near_m: float
    facts: dict[str, Any]

    def sentences(self, run: Run, certificate: Mapping[str, Any] | None) -> list[str]:
        """Three: how it is, how sure that is, what it rests on."""
        f, unit = self.facts, run.target.unit_words(run.unit)
        middle, low, high = (padded(f[name]) for name in ("mean", "mean_lower", "mean_upper"))
        mean = f"{middle} ({low} to {high}) {unit}".rstrip()
        side = "above" if run.target.better == "lower" else "below"
        first = (
            f"Over the ground the level of {run.target.words}, {level_words(run.target)}, has the mean {mean}"
        )
        shares = [
            f"{side} {exact(row['threshold'])} {unit}".rstrip()
            + f" on {100 * row['share']:.0f}% ({100 * row['lower']:.0f} to {100 * row['upper']:.0f}%)"
            for row in f["missed"]
        ]
        if shares and not alike(run):
            first += (
                f"; it lies {', '.join(shares)} of the ground. These are no shares {no_shares(run.target)}"
            )
        first += "."
        if certificate is None:
            second = "How often its intervals hold has not been checked yet."
        else:
            at = len(certificate["levels"]) - 1
            held = 100 * certificate["groups"]["all"]["achieved"][at]
            second = (
                f"Of {many(certificate['n'], 'measurement')} that it never saw, its {100 * certificate['levels'][at]:g}% intervals "
                f"held {held:.1f}%."
            )
        third = (
            f"{100 * f['share_near']:.0f}% of the ground has a measured place within {length_words(self.near_m)}; the rest is "
            "filled in by the model."
        )
        return [first, second, third]


def _spoken(run: Run, when: str | None, thresholds: Sequence[float], level: float) -> Spoken:
    """Joint draws at some thousand pixels of the region: mean and shares that miss a threshold, with intervals."""
    plain = grid_of(run)
    side = plain.resolution * run.crs.axis_info[0].unit_conversion_factor
    grid = grid_of(run, resolution_m=side * max(1.0, math.sqrt(plain.n_inside / SPOKEN)))
    pixels = pixels_of(run, grid, "the report's sentences")
    found = surface(run.model, run.inputs(pixels.xy, when))
    draws = []
    scores = [float(run.target.to_score(c)) for c in thresholds]
    for t in found.batches(DRAWS, 0):
        shares = (missed(t, c, run.target.better).mean(axis=0) for c in scores)
        draws.append(np.stack([run.target.from_score(t).mean(axis=0), *shares]))
    said = of_draws(np.concatenate(draws, axis=1), level)
    mean, low, high = (said[name].tolist() for name in ("mean", "lower", "upper"))
    near_m = near_m_of(run)
    far = run.support.distances_m(pixels.xy)
    facts: dict[str, Any] = {
        "mean": mean[0], "mean_lower": low[0], "mean_upper": high[0],
        "missed": [
            {"threshold": float(c), "share": mean[i], "lower": low[i], "upper": high[i]}
            for i, c in enumerate(thresholds, 1)
        ],
        "share_near": float((far <= near_m).mean()), "n_points": len(pixels),
    }  # fmt: skip
    return Spoken(pixels, far, near_m, facts)


def _subtitle(run: Run, when: str | None) -> str:
    """When, by what, of how many rows."""
    fitted = (run.facts.get("rows") or {}).get("fitted")
    parts = [
        when or "",
        f"method {run.model.method}",
        f"learned from {many(fitted, 'row')}" if fitted else "",
        surface_of(run),
    ]
    return " · ".join(part for part in parts if part)


def _cautions(run: Run, when: str | None, spoken: Spoken, certificate: Mapping[str, Any] | None) -> list[str]:
    """What a reader must know before trusting a number."""
    out = doubts_of(run)
    if (filled := 1 - spoken.facts["share_near"]) > 0.005:
        out.append(
            f"On {100 * filled:.0f}% of the ground nobody measured within {length_words(spoken.near_m)}: look at the paleness of "
            "the map before its colour."
        )
    if run.target.of_averages:
        out.append(
            "It maps measured averages, not service on offer: people test where and when they have a reason to. A household "
            "is not a tile."
        )
    if when is not None and run.quarters and when not in run.quarters:
        out.append(
            f"{when} is not among the quarters measured, {run.quarters[0]} to {run.quarters[-1]}: it rests on their trend."
        )
    elif when is not None and run.quarters and when not in (learned := run.learned):
        rests = (
            f"it rests on the trend of {learned[0]} to {learned[-1]}."
            if len(learned) > 1
            else f"it rests on {learned[0]} alone, in which no trend shows."
        )
        out.append(f"All rows of {when} were held out: {rests}")
    if certificate is not None:
        at = len(certificate["levels"]) - 1
        promised = certificate["levels"][at]
        for name, group in certificate["groups"].items():
            if group["judged"] and group["within"][at] is False and group["achieved"][at] < promised:
                out.append(
                    f"Among {name} rows the {100 * promised:g}% intervals held only {100 * group['achieved'][at]:.1f}%."
                )
        if certificate["split"] == "random":
            out.append(
                "The rows held out were drawn at random, so most have measured neighbours: far from data less is known of how "
                "good it is."
            )
    return out or ["Nothing beyond what the intervals say."]


def _held_out(run: Run, rows: Rows) -> list[Picture]:
    """What reviewers look at of predictions of held-out rows; nothing where there are none."""
    chosen = rows.usable & labels(run, "test")
    if not chosen.any():
        return []
    X, t, counts = rows.select(chosen)
    predictive = run.model.predictive(X, counts)
    found = [
        pit(predictive, t),
        widths(
            predictive,
            run.target.from_score,
            strata(rows, chosen, run.support),
            run.target.unit_words(run.unit),
        ),
        errors_by_cell(predictive, t, X[:, :2]),
    ]
    return [picture for picture in found if picture is not None]


def _coarse(run: Run) -> float:
    """A side of pixels that makes some ten thousand."""
    plain = grid_of(run)
    side = plain.resolution * run.crs.axis_info[0].unit_conversion_factor
    return side * max(1.0, math.sqrt(plain.n_inside / 15_000))


def _leaderboard(run: Run, path: Path | None) -> dict[str, Any] | None:
    """The table of `geogp compare`: of a file of `--json`, else of the comparison that made the run, if one did."""
    beside = run.path.parent / LEADERBOARD
    if path is None and not beside.is_file():
        return None
    try:
        document = json.loads((path or beside).read_text("utf-8"))
        rows, names = [], []
        for row in document["rows"]:
            scores = [f"{row['scores'][name]:.3f}" for name in ("nll", "crps", "mae")]
            took = row.get("fit_seconds")
            names.append(row["method"])
            rows.append(
                [
                    row["method"] + (" (this run)" if row["method"] == run.model.method else ""),
                    *scores,
                    f"{100 * row['scores']['coverage95']:.1f}%",
                    "" if took is None else f"{took:,.0f}",
                ]
            )
        target, split = document["target"], document["split"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"{path or beside} is not what `geogp compare --json` prints ({type(error).__name__}); give that file."
        ) from None
    if path is None and (target != run.target.name or run.model.method not in names):
        return None
    header = ["method", "NLL", "CRPS", "MAE", "95% held", "seconds"]
    foot = "Scores of the same held-out rows, smaller is better, on the standardised scale of the model."
    title = f"Beside other methods: {target}, split {split}"
    return {"title": title, "header": header, "rows": rows, "notes": [foot]}
