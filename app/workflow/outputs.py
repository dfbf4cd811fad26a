"""What workflows write: refused where something is, and told as a manifest tells it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_pipelines.sources import SOURCES
from geogp.errors import check_new
from geogp.run import Run
from geogp.storage import clock
from geogp.storage.staging import refuse_within_run
from geogp.targets import Target, target
from maps.atomic import sha256
from maps.words import exact


def refuse_taken(path: Path, overwrite: bool) -> None:
    """Refuse an output that exists already: called before the work, not after.

    Raises
    ------
    InvalidInput
    WithinRun
        it would lie among the files of a run.
    """
    refuse_within_run(path)
    check_new(path, overwrite)


def surface_of(run: Run) -> str:
    """What a run's surface is the level of, in words; "" where nothing was counted."""
    n = run.model.reference_count_
    if n is None:
        return ""
    counted = counted_by(run.target, run.facts.get("counts", "tests"))
    of = {"count": f"a count of {exact(n)}"}.get(
        counted, f"{exact(n)} {counted.removesuffix('s') if n == 1 else counted}"
    )
    noun = run.target.noun if run.target.of_averages else "averages"
    return f"{noun} of {of} (the reference count)"


def level_words(target: Target) -> str:
    """What the level of a surface is, for those who might take it for single tests or for averages as measured.

    Examples
    --------
    >>> from geogp.targets import TARGETS
    >>> level_words(TARGETS["download"]), level_words(TARGETS["value"])
    ('what many tests at each place would average to', 'what many measurements at each place would average to')
    """
    return f"what many {'tests' if target.of_averages else 'measurements'} at each place would average to"


def no_shares(target: Target) -> str:
    """What shares of a surface's level are not of.

    Examples
    --------
    >>> from geogp.targets import TARGETS
    >>> no_shares(TARGETS["value"])
    'of measurements, which scatter around the level'
    """
    single = "tests or of measured averages" if target.of_averages else "measurements"
    return f"of {single}, which scatter around the level"


def place_noun(goal: Target) -> str:
    """What measurements of a target are of, where their places are counted: "tile" or "place"."""
    return "tile" if goal.noun.startswith("tile ") else "place"


def level_note(facts: Mapping[str, Any]) -> str:
    """What the level and the shares of a table of areas are, and are not; facts: of the table."""
    goal, over = target(facts["target"]), facts.get("ranked_by")  # of a change there are no shares
    said = f"the level is {level_words(goal)}"
    if over is None or not shares_words(facts):
        return said
    return f"{said}; shares are of the {'people' if over == 'people' else 'ground'}, not {no_shares(goal)}"


def shares_words(facts: Mapping[str, Any]) -> list[str]:
    """Heads of the columns of shares of a table of areas."""
    below = [f"level below {exact(c)}" for c in facts["thresholds"]]
    return below + ["either missed"] if "with" in facts else below


def counted_by(target: Target, counts: str) -> str:
    """What is counted behind a value, as words begin with it: tests, devices, or "count" for both; for others measurements."""
    if not target.of_averages:
        return "measurements"
    return "count" if counts == "both" else counts


def titled(run: Run) -> str:
    """The title of a run's maps: what was measured, of which type, and where or in which table."""
    data = run.data
    kind = str(data.get("type") or "")
    what = f"{kind[0].upper()}{kind[1:]} {run.target.words}" if kind else run.target.heading
    place = place_of(data) or Path(_table(run)).stem
    return what + (f", {place}" if place else "")


def place_of(data: Mapping[str, Any]) -> str:
    """Where a table's measurements lie, in words: a region's name, or the ends of a box; "" where nothing was named.

    Examples
    --------
    >>> place_of({"region": "HI"}), place_of({"region": "bbox", "bbox": [-116, 44.36, 3, 49]})
    ('HI', '116° W to 3° E, 44.4° N to 49° N')
    """
    box = data.get("bbox")
    if data.get("region") != "bbox" or not box:
        return str(data.get("region") or "")

    def degrees(value: float, signs: str) -> str:
        return f"{round(abs(value), 1):g}° {signs[value < 0]}"

    west, south, east, north = box
    return f"{degrees(west, 'EW')} to {degrees(east, 'EW')}, {degrees(south, 'NS')} to {degrees(north, 'NS')}"


def _table(run: Run) -> str:
    """The name of the one file that a run's measurements were read from; "" of published tiles."""
    read = [str(record.get("path") or record.get("url") or "") for record in run.data.get("sources") or []]
    source = SOURCES.get(run.data.get("source") or "")
    return Path(read[0]).name if source and source.takes_file and len(read) == 1 else ""


def attribution(run: Run) -> dict[str, str]:
    """Who measured what a run has learned from, as its source wants to be named, with its page and licence; an unknown
    source goes by its name, a table by whom it was said to be from, else by its file's."""
    name, method = run.data.get("source"), f"GeoGP method {run.model.method}"
    source = SOURCES.get(name or "")
    file = _table(run)
    credit = run.data.get("credit") or (f"{source.credit}{f' ({file})' * bool(file)}" if source else name)
    out = {"source": f"{credit}; {method}" if credit else method}
    if source and source.reference:
        out["references"] = source.reference
    return {**out, "license": source.licence} if source and source.licence else out


def now() -> str:
    """Now, as manifests write it."""
    return f"{clock.now():%Y-%m-%dT%H:%M:%SZ}"


def file_entry(folder: Path, path: Path, kind: str, layers: Sequence[str] = ()) -> dict[str, Any]:
    """A manifest's line for a file: path relative to the folder, kind, size, SHA-256."""
    return {
        "path": path.relative_to(folder).as_posix(),
        "kind": kind,
        "layers": list(layers),
        "bytes": path.stat().st_size,
        "sha256": sha256(path),
    }
