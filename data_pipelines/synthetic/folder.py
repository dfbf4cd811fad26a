"""A folder that holds a written world: a root for `ingest`.

folder/parquet/performance/type=../year=../quarter=../..parquet   tiles, both types
folder/census/cb_halcyon_state_500k.zip, tl_halcyon_uac20.zip      states, urban areas (NAD83 shapefiles)
folder/truth.json, truth_fixed.parquet, truth_mobile.parquet       the truth, for each row and everywhere
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_pipelines.atomic import atomic_path
from data_pipelines.errors import InvalidInput
from data_pipelines.sources.ookla import OOKLA
from data_pipelines.synthetic import census, tiles
from data_pipelines.synthetic.world import World


def write_world(folder: str | Path, *, seed: int = 0, size: str = "demo", overwrite: bool = False) -> World:
    """Write the world of a seed into a folder in the published formats; about 2 s for "demo".

    `truth.json` is written last: a folder that has it is complete. The same world already there is left as
    it is; another one is refused unless `overwrite`.

    Parameters
    ----------
    folder : made when it does not exist; it is then a root for `ingest`
    seed, size : see `World`

    Raises
    ------
    InvalidInput
        The folder holds another world and `overwrite` is False.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     world = write_world(folder, size="small")
    ...     load_world(folder) == world
    True
    """
    folder, world = Path(folder), World(seed=seed, size=size)
    mark = folder / "truth.json"
    if mark.exists() and not overwrite:
        if load_world(folder) == world:
            return world
        raise InvalidInput(
            f"The folder {folder} holds another synthetic world; choose another or allow overwriting."
        )
    mark.unlink(missing_ok=True)
    census.write_states(world, world.states_file(folder))
    census.write_counties(world, world.counties_file(folder))
    census.write_urban(world, world.urban_file(folder))
    for type in OOKLA.types:
        tiles.write_tiles(world, folder, type)
    with atomic_path(mark, overwrite=True) as temporary:
        temporary.write_text(json.dumps(world.to_json(), indent=1), encoding="utf-8")
    return world


def load_world(folder: str | Path) -> World:
    """The world a folder was written from, regenerated from its seed."""
    mark = Path(folder) / "truth.json"
    try:
        found = json.loads(mark.read_text(encoding="utf-8"))
        return World(seed=int(found["seed"]), size=str(found["size"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{folder} holds no complete synthetic world (no readable truth.json).") from error


@contextmanager
def world_folder(
    root: str | Path | None, *, seed: int = 0, size: str = "demo"
) -> Iterator[tuple[World, Path]]:
    """A written world to read: the one in `root`, made there when missing, or a temporary one for None."""
    if root is None:
        with tempfile.TemporaryDirectory(prefix="geogp-world-") as temporary:
            yield write_world(temporary, seed=seed, size=size), Path(temporary)
    elif (Path(root) / "truth.json").exists():
        yield load_world(root), Path(root)
    else:
        yield write_world(root, seed=seed, size=size), Path(root)
