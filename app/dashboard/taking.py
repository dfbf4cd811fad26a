"""Download of what the map shows: a command of `geogp` for the layer, the setting and the window, and its files."""

import io
import shlex
import zipfile
from collections.abc import Mapping

from app.dashboard.atlas import Atlas
from app.dashboard.holding import held
from app.dashboard.jobs import OUT, Job, jobs
from app.dashboard.setting import place, window
from app.errors import InvalidInput
from geogp.targets import digits
from maps.layers import LAYERS

#: Formats to choose from.
FORMATS = ("cog", "gpkg", "csv")
#: Layers that only the page has -> those of the files that say the same.
INSTEAD = {"within": ("median", "lower", "upper"), "measured": ("explained",)}
SIMILAR, EITHER = "similar", "either"


def arguments(atlas: Atlas, params: Mapping[str, str], run: str, out: str) -> list[str]:
    """The command line behind `geogp` that writes what is shown.

    Parameters
    ----------
    params : of the page's address: layer, q, n, level, t, `other` and `ot` of either limit, `box` W,S,E,N or none for
        the whole region, `lat` and `lon` of what places are similar to; and `format`
    run, out : as they stand in the line

    Raises
    ------
    InvalidInput
        a format, layer or window that is none.
    """
    kind = params.get("format", "cog")
    if kind not in FORMATS:
        raise InvalidInput(f"There is no format {kind[:20]!r}; choose from {', '.join(FORMATS)}.")
    setting, layer = atlas.choices.read(params), params.get("layer", "median")
    if layer == SIMILAR:
        lat, lon = place(params)
        return ["slice", run, "--at", f"{lon:.5f}", f"{lat:.5f}", "-o", f"{out}_similar.tif"]
    line = ["export", run, "-o", out, "--format", kind]
    line += ["--quarter", setting.quarter] if setting.quarter else []
    if layer == EITHER:
        other = held(params.get("other", ""))
        limit = other.atlas().choices.read({"t": params.get("ot", "")}).threshold
        line += ["--with", str(other.path.resolve() if run != str(atlas.run.path) else other.path)]
        return [*line, "--below", digits(setting.threshold), "--with-below", digits(limit), "--layers", "either_missed", *_box(params)]  # fmt: skip
    line += ["--tests", digits(setting.tests)] if setting.tests is not None else []
    line += ["--level", digits(setting.level), "--thresholds", digits(setting.threshold)]
    names = INSTEAD.get(layer, (layer,))
    if layer not in INSTEAD and layer not in LAYERS:
        raise InvalidInput(f"There is no layer {layer[:30]!r} to download.")
    return [*line, "--layers", ",".join(names), *_box(params)]


def _box(params: Mapping[str, str]) -> list[str]:
    if not params.get("box"):
        return []
    return ["--bounds", *(f"{v:.4f}" for v in window(params))]


def start(atlas: Atlas, params: Mapping[str, str]) -> Job:
    """The job that writes what is shown.

    Raises
    ------
    InvalidInput
    """
    line = arguments(atlas, params, str(atlas.run.path.resolve()), OUT)
    shown = shlex.join(["geogp", *arguments(atlas, params, str(atlas.run.path), "maps")])
    return jobs().start("download", line, name="maps", shown=shown, of=atlas.id)


def packed(job: Job) -> bytes:
    """Its files in one, with the command that made them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(job.folder.glob("maps*")):
            for file in [path] if path.is_file() else sorted(path.rglob("*")):
                if file.is_file():
                    archive.write(file, file.name)
        archive.writestr("COMMAND.txt", job.shown + "\n")
    return out.getvalue()
