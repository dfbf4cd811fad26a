"""Work on a Dask cluster comes to the same files as work here, whoever does it and whoever is killed on the way."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from multiprocessing import forkserver
from pathlib import Path

import pytest
import rasterio

from app import cluster
from app.errors import Interrupted, InvalidInput, Unfinished
from app.workflow import areas, change, compare, export
from data_pipelines.observations import ingest
from geogp.run import load
from tests.app.test_areas import HALVES, boxes

pytestmark = [
    pytest.mark.slow,
    # Dask opens loops and sockets that end with the process
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
#: Four windows and more.
WANTED = {"formats": ["cog", "netcdf"], "layers": ["median", "latent_sd"], "resolution_m": 240.0}


def written(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def members(group: int) -> list[str]:
    """What is left of a process group."""
    lines = [p.read_text().rpartition(")") for p in Path("/proc").glob("[0-9]*/stat") if p.exists()]
    return [head for head, _, rest in lines if rest.split()[2] == str(group) and rest.split()[0] not in "ZX"]


@pytest.fixture(autouse=True)
def one_time(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


@pytest.fixture(scope="module")
def here(run, tmp_path_factory) -> dict[str, bytes]:
    """What an export writes that this process computes."""
    folder = tmp_path_factory.mktemp("here") / "maps"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        export(run, folder, **WANTED)
    return written(folder)


@pytest.fixture(scope="module", autouse=True)
def imported_once():
    """Workers are forked from a process that has imported what they work with: each took four seconds to."""
    import dask
    from distributed import utils

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([
        "distributed", "distributed.nanny", "distributed.worker", "app.cluster.own", "app.workflow.steps.areas",
        "app.workflow.steps.change", "app.workflow.steps.compare", "app.workflow.steps.export", "data_pipelines.observations",
    ])  # fmt: skip
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        pytest.MonkeyPatch.context() as p,
    ):
        p.setattr(utils, "_forkserver_preload_set", True)
        yield
    forkserver._forkserver._stop()


@pytest.fixture(scope="module")
def own():
    """A cluster of one process, which a test may make two."""
    with warnings.catch_warnings():  # pipes of processes that have ended
        warnings.simplefilter("ignore")
        with cluster.started(1) as found:
            yield found
        del found
        gc.collect()


# -- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["local", "local:0", "local:two", "nowhere", "tcp://", "10.0.0.1", "http://a:1", ""]
)
def test_what_names_no_scheduler_is_refused(cli, run, tmp_path, text):
    result = cli("export", run, "-o", tmp_path / "out", "--scheduler", text)
    assert result.code == 3 and repr(text) in result.err and result.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["local:1", "tcp://10.0.0.5:8786", "tls://a.b-c:8786", "10.0.0.5:8786", "[::1]:8786", None]
)
def test_what_names_one_passes(text):
    cluster.check_scheduler(text)


@pytest.mark.parametrize(
    "command", [("export", "run"), ("ingest", "--root", "."), ("areas", "run", "--areas", "a.gpkg")]
)
def test_without_dask_a_sentence_names_the_extra(cli, tmp_path, monkeypatch, command):
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    result = cli(*command, "-o", tmp_path / "out.parquet", "--scheduler", "local:2")
    assert result.code == 3 and ".[distributed]" in result.err and result.err.count("\n") == 1


def test_an_address_where_nobody_answers_is_told_in_time(cli, run, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "ANSWERS", 1)
    started = time.monotonic()
    result = cli("export", run, "-o", tmp_path / "out", "--scheduler", "127.0.0.1:9")
    assert result.code == 3 and "No Dask scheduler answers at 127.0.0.1:9" in result.err
    assert time.monotonic() - started < 20 and not list(tmp_path.iterdir())


def test_workers_share_the_memory(cli, run, tmp_path):
    result = cli("export", run, "-o", tmp_path / "out", "--scheduler", "local:50")
    assert result.code == 3 and "by 51 processes" in result.err and "fewer workers" in result.err


def test_nothing_that_works_elsewhere_is_imported_unless_asked(run, tmp_path):
    """xarray itself looks into dask where that is installed."""
    script = (
        "import sys\nfrom app.cli import main\n"
        f"code = main(['export', {str(run)!r}, '-o', {str(tmp_path / 'out')!r}, '--resolution', '6000', '-q'])\n"
        "sys.exit(code or 'distributed' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


# -- the same files -------------------------------------------------------------------------------------


def test_one_worker_writes_the_same_bytes(own, here, run, tmp_path):
    with rasterio.MemoryFile(here["median.tif"]) as file, file.open() as src:
        assert src.width > 512 and src.height > 512  # several windows
    export(run, tmp_path / "out", scheduler=own.scheduler_address, **WANTED)
    assert written(tmp_path / "out") == here


def test_two_workers_of_which_one_is_killed_write_the_same_bytes(own, here, run, tmp_path):
    """It is begun anew."""
    from distributed import Client

    own.scale(2)
    with Client(own.scheduler_address, set_as_default=False) as client:
        client.wait_for_workers(2)
        before = client.run(os.getpid)

        def kill(done, total, words):
            if done == 1:
                os.kill(sorted(before.values())[0], signal.SIGKILL)

        export(run, tmp_path / "out", scheduler=own.scheduler_address, progress=kill, **WANTED)
        client.wait_for_workers(2, timeout=60)
        assert set(client.run(os.getpid).values()) != set(before.values())
    assert written(tmp_path / "out") == here


def test_a_stopped_export_goes_on_without_a_scheduler(own, here, run, tmp_path, monkeypatch):
    def stop(done, total, words):
        assert "worker" in words
        raise Interrupted

    with pytest.raises(Interrupted, match="goes on after 1 of"):
        export(run, tmp_path / "out", scheduler=own.scheduler_address, progress=stop, **WANTED)
    assert [p.name for p in tmp_path.iterdir()] == [".out.windows"]
    kept = len(list((tmp_path / ".out.windows").glob("*.bin")))
    asked, engine = [], type(load(run).model.engine_)
    moments = engine.moments
    monkeypatch.setattr(engine, "moments", lambda self, *a, **k: (asked.append(1), moments(self, *a, **k))[1])
    export(run, tmp_path / "out", **WANTED)
    assert kept >= 1 and asked and written(tmp_path / "out") == here


def test_a_change_is_the_same(own, run, world, tmp_path):
    boxes(world, *HALVES).to_file(tmp_path / "boxes.geojson")
    wanted = {
        "resolution_m": 2000.0,
        "at_least": [0.0, 10.0],
        "polygons": tmp_path / "boxes.geojson",
        "n_samples": 90,
    }
    for name, scheduler in (("here", None), ("there", own.scheduler_address)):
        change(run, *load(run).quarters[:2], tmp_path / name, scheduler=scheduler, **wanted)
    made = written(tmp_path / "there")
    assert made == written(tmp_path / "here") and "areas.gpkg" in made


def test_a_comparison_comes_to_the_same_scores(own, table, tmp_path, compared_here):
    wanted = {"methods": ["sv-rbf", "knn"], "model": {"epochs": 1, "rank": 8}}
    here, there = (
        compare(table, keep=tmp_path / name, scheduler=scheduler, **wanted).document()["rows"]
        for name, scheduler in (("here", None), ("there", own.scheduler_address))
    )
    assert [row["method"] for row in there] == [row["method"] for row in here]
    for a, b in zip(there, here):
        assert a["scores"] == pytest.approx(b["scores"], rel=1e-6)  # threads add in another order
    with pytest.raises(InvalidInput, match="rank must be a whole number"):
        compare(table, scheduler=own.scheduler_address, methods=["sv-rbf"], model={"rank": 0})


def test_a_table_is_the_same_though_a_worker_is_killed(own, world_folder, table, tmp_path):
    with cluster.workers(own.scheduler_address) as others:
        victims = list(others.client.run(os.getpid).values())

        def kill(done, total, words):
            if words.startswith("fixed") and victims:
                os.kill(victims.pop(), signal.SIGKILL)

        there = tmp_path / "there.parquet"
        ingest(source="synthetic", root=world_folder, output=there, workers=others, progress=kill)
    assert not victims and there.read_bytes() == table.read_bytes()


def test_sorted_copies_are_the_same(own, cli, world_folder, tmp_path):
    copies = []
    for name, more in (("here", ()), ("there", ("--scheduler", own.scheduler_address))):
        line = ("--root", world_folder, "--quarters", "2023Q3..2023Q4", "--sort-into", tmp_path / name)
        made = cli("ingest", *line, *more)
        assert made.code == 0 and made.err.count(f"{name}/parquet") == 2
        copies.append([p.read_bytes() for p in sorted((tmp_path / name).rglob("*.parquet"))])
    assert copies[0] == copies[1]


def test_what_no_worker_reads_is_refused(cli, tmp_path):
    for line in (("--list",), ("x.csv", "--source", "csv", "-o", tmp_path / "o.parquet")):
        result = cli("ingest", *line, "--scheduler", "local:1")
        assert result.code == 2 and "--scheduler has quarters read side by side" in result.err
        assert result.err.count("\n") == 1


def test_areas_are_the_same_though_a_worker_is_killed(own, run, world, tmp_path):
    boxes(world, *HALVES).to_file(tmp_path / "boxes.geojson")
    with cluster.workers(own.scheduler_address) as others:
        victims = list(others.client.run(os.getpid).values())

    def kill(done, total, words):
        if done == 64:
            os.kill(victims.pop(), signal.SIGKILL)

    for name, more in (("here", {}), ("there", {"scheduler": own.scheduler_address, "progress": kill})):
        (tmp_path / name).mkdir()
        areas(run, tmp_path / "boxes.geojson", tmp_path / name / "a.csv", **more)
    made = written(tmp_path / "there")
    assert made == written(tmp_path / "here") and len(made) == 2


def test_another_version_is_told(own, run, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "__version__", "0.0.9")
    with pytest.raises(InvalidInput, match=r"A worker has GeoGP .* and this is 0\.0\.9"):
        export(run, tmp_path / "out", scheduler=own.scheduler_address, **WANTED)
    assert not (tmp_path / "out").exists()


def test_ctrl_c_takes_the_workers_down(command, run, tmp_path):
    """As a terminal sends it: to every process of the group."""
    line = [*command, "export", str(run), "-o", str(tmp_path / "out"), "--format", "cog,netcdf"]
    line += [
        "--layers",
        "median,latent_sd",
        "--resolution",
        "240",
        "--scheduler",
        "local:1",
        "--max-memory",
        "8GiB",
    ]
    environment = {**os.environ, "GEOGP_PROGRESS": "lines"}
    process = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert process.stderr is not None
    said = ""
    for said in process.stderr:
        if said.startswith("@progress 1 "):
            os.killpg(process.pid, signal.SIGINT)
            break
    assert "1 worker" in said
    rest = process.stderr.read()
    assert process.wait(timeout=60) == 130, rest
    last = [text for text in rest.splitlines() if not text.startswith("@progress")]
    assert len(last) == 1 and "the same command goes on after" in last[0], rest
    end = time.monotonic() + 20
    while (left := members(process.pid)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left and [p.name for p in tmp_path.iterdir()] == [".out.windows"]


def test_a_scheduler_that_goes_leaves_what_goes_on(own, run, tmp_path):
    def close(done, total, words):
        own.close(timeout=5)

    with pytest.raises(Unfinished, match="is gone; the same command goes on"):
        export(run, tmp_path / "out", scheduler=own.scheduler_address, progress=close, **WANTED)
    assert [p.name for p in tmp_path.iterdir()] == [".out.windows"]
