"""What is staged, swept, swapped and refused, step by step; kills and full disks are played in tests/faults."""

import errno
import os
import resource
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from geogp.storage import staging
from geogp.storage.staging import (
    NoRoom,
    NotWritable,
    WithinRun,
    alone,
    check_room,
    filled,
    free_bytes,
    hidden,
    is_full,
    link_missing,
    no_room,
    publish_file,
    publish_files,
    refuse_within_run,
    remove,
    renames_whole,
    replace_folder,
    room_for,
    staged,
    sweep,
)


def made_by(target: Path, pid: int, start: int, *, kind: str = "new", host: str | None = None) -> Path:
    """A hidden file as a process would name it."""
    name = f".geogp-{kind}-{host or staging._host()}-{pid}-{start}-0a1b2c3d.{target.name}"
    path = target.with_name(name)
    path.write_text("unfinished")
    return path


@pytest.fixture
def gone():
    """The number and start of a process that has ended."""
    with subprocess.Popen(["sleep", "60"]) as process:
        start = staging._start(process.pid)
        process.kill()
    return process.pid, start


# -- names ----------------------------------------------------------------------------------------------


def test_a_hidden_name_tells_its_process_and_keeps_its_ending(tmp_path) -> None:
    target = tmp_path / ("x" * 200 + ".parquet")
    for kind in ("new", "old"):
        path = hidden(target, kind)
        match = staging._NAME.fullmatch(path.name)
        assert path.parent == tmp_path and path.suffix == ".parquet" and match["kind"] == kind
        assert int(match["pid"]) == os.getpid() and int(match["start"]) == staging._start(os.getpid()) > 0
        assert match["host"] == staging._host() and hidden(target, kind) != path
    # A name that is to be given back is whole; another is short enough for the file system.
    assert match["target"] == target.name
    assert staging._NAME.fullmatch(hidden(target).name)["target"] == target.name[-100:]


def test_what_dead_processes_left_goes_and_what_is_in_use_stays(tmp_path, gone) -> None:
    target, (pid, start) = tmp_path / "maps", gone
    dead = [
        made_by(target, pid, start),
        made_by(target, os.getppid(), staging._start(os.getppid()) + 1),  # its number was given out again
        made_by(target, os.getpid(), staging._start(os.getpid())),  # ours, and nothing that we know of
    ]
    others = [
        made_by(target, os.getppid(), staging._start(os.getppid())),
        made_by(target, pid, start, host="elsewhere"),
        tmp_path / ".geogp-notes",
        tmp_path / f"geogp-new-{staging._host()}-{pid}-{start}-0a1b2c3d.maps",
    ]
    for path in others[2:]:
        path.touch()
    with staged(target) as mine:
        mine.mkdir()
        assert set(tmp_path.iterdir()) == {*others, mine}
        assert sweep(tmp_path) == []
    assert set(tmp_path.iterdir()) == set(others)
    # Of another machine nobody knows whether its process lives: a day is enough.
    for age, left in ((staging._LONG - 60, True), (staging._LONG + 60, False)):
        os.utime(others[1], (time.time() - age,) * 2)
        assert sweep(tmp_path) == ([] if left else [others[1]])
        assert others[1].exists() == left
    assert not any(path.exists() for path in dead)
    assert sweep(tmp_path / "nowhere") == []


def test_a_process_is_known_by_when_it_began() -> None:
    """In ticks of the clock since the machine started, field 22 of its line; the next one, its memory, changes."""
    ticks = os.sysconf("SC_CLK_TCK")
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    with subprocess.Popen(["sleep", "60"]) as process:
        began = staging._start(process.pid)
        process.kill()
    assert abs(began - ticks * uptime) < 30 * ticks


def test_a_process_that_has_ended_and_was_not_asked_for_is_gone() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert staging._start(process.pid) == -1
    process.wait()
    assert staging._start(process.pid) == -1 and staging._start(2**22 + 1) == -1


def test_a_folder_that_stood_aside_gets_its_name_back_unless_there_is_one(tmp_path, gone) -> None:
    target = tmp_path / "run"
    made_by(target, *gone, kind="old")
    assert len(sweep(tmp_path)) == 1 and target.read_text() == "unfinished"
    made_by(target, *gone, kind="old").write_text("older")
    sweep(tmp_path)
    assert target.read_text() == "unfinished" and list(tmp_path.iterdir()) == [target]
    target.unlink()
    made_by(target, *gone, kind="new")
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_staged_is_gone_at_the_end_unless_it_got_its_name(tmp_path, inside) -> None:
    target = tmp_path / "maps"
    target.mkdir()
    around = target if inside else tmp_path
    with pytest.raises(KeyError), staged(target, inside) as path:
        assert path.parent == around and path.name in staging._mine and path.name.endswith(".maps")
        path.mkdir()
        (path / "a").touch()
        raise KeyError
    assert path.name not in staging._mine and list(tmp_path.iterdir()) == [target]
    with staged(target, inside) as path:
        path.write_text("whole")
        path.rename(tmp_path / "named")
    assert (tmp_path / "named").read_text() == "whole" and not path.exists()


def test_in_the_root_is_a_hidden_name_too() -> None:
    with staged(Path("/"), inside=True) as path:
        assert path.parent == Path("/") and path.name.endswith(".files")


def test_what_cannot_be_removed_stays(tmp_path, monkeypatch) -> None:
    """Of a folder; and where there is nothing nobody is asked, for a disk that is only read would refuse."""
    folder = filled_folder(tmp_path / "folder", a="1")

    def refuses(path: object, **named: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(os, "unlink", refuses)
    monkeypatch.setattr(Path, "unlink", refuses)
    remove(folder)
    remove(tmp_path / "nothing")
    assert texts(folder) == {"a": "1"}
    with pytest.raises(OSError, match="Read-only"):
        remove(folder / "a")


def test_removing_a_link_leaves_what_it_points_to(tmp_path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").touch()
    (tmp_path / "link").symlink_to(folder)
    for name in ("link", "nothing"):
        remove(tmp_path / name)
    assert (folder / "a").exists() and list(tmp_path.iterdir()) == [folder]
    remove(folder / "a")
    remove(folder)
    assert not folder.exists()


def test_no_output_lies_in_a_finished_run(tmp_path) -> None:
    run = tmp_path / "run"
    (run / "deep").mkdir(parents=True)
    (run / "run.json").touch()
    for path in (run / "a.tif", run / "deep" / "er" / "a.tif"):
        refuse_within_run(path)  # not finished: no sums
    (run / "SHA256SUMS").touch()
    (tmp_path / "link").symlink_to(run)
    for path in (run / "a.tif", run / "deep" / "er" / "a.tif", tmp_path / "link" / "a.tif"):
        with pytest.raises(WithinRun, match=f"would lie in the run {run}, which opens") as caught:
            refuse_within_run(path)
        assert caught.value.exit_code == 3
    refuse_within_run(run)  # beside it, or in its place
    for name in (".run.partial", ".geogp-new-a"):  # one that is being made
        (tmp_path / name).mkdir()
        for file in ("run.json", "SHA256SUMS"):
            (tmp_path / name / file).touch()
        refuse_within_run(tmp_path / name / "weights")


# -- publishing -----------------------------------------------------------------------------------------


def filled_folder(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def texts(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_a_file_is_flushed_and_no_longer_open(tmp_path, monkeypatch) -> None:
    flushed: list[str] = []
    flush = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda number: (flushed.append(os.readlink(f"/proc/self/fd/{number}")), flush(number))
    )
    (tmp_path / "new").write_text("new")
    before = len(os.listdir("/proc/self/fd"))
    publish_file(tmp_path / "new", tmp_path / "file")
    assert flushed == [str(tmp_path / "new"), str(tmp_path)]
    assert len(os.listdir("/proc/self/fd")) == before


def test_all_that_gets_a_name_is_on_the_disk_before(tmp_path, monkeypatch) -> None:
    """fsync of each file, then the rename, then fsync of the folder around: in this order."""
    done: list[str] = []
    sync, replace, rename = staging._sync, os.replace, os.rename
    monkeypatch.setattr(staging, "_sync", lambda p: (done.append(f"sync {p.name}"), sync(p)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(f"name {Path(b).name}"), replace(a, b)))
    monkeypatch.setattr(os, "rename", lambda a, b: (done.append(f"name {Path(b).name}"), rename(a, b)))
    (tmp_path / "new").write_text("new")
    publish_file(tmp_path / "new", tmp_path / "file")
    assert done == ["sync new", "name file", f"sync {tmp_path.name}"]
    done.clear()
    made = filled_folder(tmp_path / "made", a="1")
    (made / "link").symlink_to("nowhere")
    replace_folder(made, tmp_path / "folder")
    assert done == ["sync a", "sync made", "name folder", f"sync {tmp_path.name}"]


def test_files_that_get_their_names_one_by_one_are_on_the_disk_before_the_first(
    tmp_path, monkeypatch
) -> None:
    """With what they are to replace, so that a kill, or a loss of power, between two of them is made good."""
    target = filled_folder(tmp_path / "maps", **{"a": "old", "b": "old", "manifest.json": "old"})
    work = filled_folder(hidden(target / target.name), **{"a": "new", "manifest.json": "new"})
    done: list[str] = []
    sync, replace, gone = staging._sync, os.replace, staging.remove
    monkeypatch.setattr(staging, "_sync", lambda p: (done.append(f"sync {p.name}"), sync(p)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(f"name {Path(b).name}"), replace(a, b)))
    monkeypatch.setattr(staging, "remove", lambda p: (done.append(f"remove {p.name}"), gone(p)))
    publish_files(work, target, drop=["b"])
    first = done.index("sync .commit")
    assert sorted(done[:first]) == sorted(["sync a", "sync manifest.json", f"sync {work.name}"])
    assert done[first + 1 :] == [
        "remove manifest.json", "remove b", "name a", "name manifest.json", "sync maps", "remove .commit",
    ]  # fmt: skip
    assert list(work.iterdir()) == []  # nothing is left that would be begun again
    assert texts(target) == {"a": "new", "manifest.json": "new"}


def test_two_folders_change_names_in_one_step_where_the_system_can(tmp_path, monkeypatch) -> None:
    a, b = filled_folder(tmp_path / "a", one="1"), filled_folder(tmp_path / "b", two="2")
    (tmp_path / "link").symlink_to(b)
    monkeypatch.setattr(os, "rename", None)
    staging.swap(a, tmp_path / "link")
    assert texts(a) == {"two": "2"} and texts(b) == {"one": "1"} and (tmp_path / "link").is_symlink()


def test_elsewhere_nobody_sweeps_the_folder_that_stands_aside_meanwhile(tmp_path, monkeypatch) -> None:
    """Neither another thread of this process, between any two of the three renames."""
    a, b, before = (
        filled_folder(tmp_path / "a", one="1"),
        filled_folder(tmp_path / "b", two="2"),
        set(staging._mine),
    )
    monkeypatch.setattr(staging.ctypes, "CDLL", lambda *args, **named: object())
    rename, swept = os.rename, []

    def renames(source, target) -> None:
        rename(source, target)
        swept.extend(sweep(tmp_path))

    monkeypatch.setattr(os, "rename", renames)
    staging.swap(a, b)
    assert texts(a) == {"two": "2"} and texts(b) == {"one": "1"} and swept == []
    assert staging._mine == before and len(list(tmp_path.iterdir())) == 2


def test_a_folder_takes_the_place_and_the_rights_of_another(tmp_path) -> None:
    old, new = filled_folder(tmp_path / "maps", a="old"), filled_folder(tmp_path / "new", a="new", b="new")
    old.chmod(0o2750)
    (tmp_path / "link").symlink_to(old)
    replace_folder(new, tmp_path / "link")
    assert texts(old) == {"a": "new", "b": "new"} and texts(new) == {"a": "old"}
    assert stat.S_IMODE(old.stat().st_mode) == 0o2750 and (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("inside", [False, True])
def test_files_appear_beside_what_else_is_there(tmp_path, inside) -> None:
    target = filled_folder(
        tmp_path / "maps", **{"a": "old", "b": "old", "manifest.json": "old", "notes": "mine"}
    )
    filled_folder(target / "tiles", x="old", y="old")
    with staged(target, inside) as work:
        filled_folder(work, **{"a": "new", "manifest.json": "new"})
        filled_folder(work / "tiles", x="new")
        (target / ".geogp-hidden").write_text("in use")
        publish_files(work, target, drop=["b", "tiles", "manifest.json", ".geogp-hidden"])
    found = texts(target)
    assert found.pop(".geogp-hidden", "in use") == "in use"
    assert found == {"a": "new", "manifest.json": "new", "tiles/x": "new", "notes": "mine"}
    assert not [p for p in tmp_path.iterdir() if p != target]


def test_renames_that_were_killed_are_finished_by_the_next_who_sweeps(tmp_path, monkeypatch, gone) -> None:
    """After every one of them; the manifest is gone from the first on and comes last."""
    for steps in range(4):
        target = filled_folder(
            tmp_path / f"maps{steps}", **{"a": "old", "b": "old", "c": "old", "manifest.json": "old"}
        )
        work = hidden(target / target.name)
        filled_folder(work, **{"a": "new", "b": "new", "manifest.json": "new"})
        work = work.rename(made_by(target / target.name, *gone).with_suffix(".folder"))
        left, replace = [steps], os.replace

        def stops(a, b, left=left, replace=replace):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            replace(a, b)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stops)
            if steps < 3:
                with pytest.raises(KeyboardInterrupt):
                    publish_files(work, target, drop=["c"])
                assert not (target / "manifest.json").exists() and not (target / "c").exists()
                assert sum(v == "new" and "/" not in k for k, v in texts(target).items()) == steps
            else:
                publish_files(work, target, drop=["c"])
        sweep(target)
        assert texts(target) == {"a": "new", "b": "new", "manifest.json": "new"}


def test_nothing_is_published_into_a_run(tmp_path) -> None:
    run = filled_folder(tmp_path / "run", **{"run.json": "{}", "SHA256SUMS": ""})
    work = filled_folder(tmp_path / "work", a="new")
    with pytest.raises(WithinRun):
        publish_files(work, run)
    assert texts(run) == {"run.json": "{}", "SHA256SUMS": ""}


def test_what_is_missing_is_linked_and_what_is_there_stays(tmp_path) -> None:
    source = filled_folder(tmp_path / "source", a="1", b="1", c="1", **{".geogp-x": "1"})
    (source / "deep").mkdir()
    filled_folder(source / "deep" / "er", d="1")
    filled_folder(source / "left", e="1")
    (source / "dangling").symlink_to("nowhere")
    into = filled_folder(tmp_path / "into", b="2")
    link_missing(source, into, leave_out={"c", "left"})
    assert texts(into) == {"a": "1", "b": "2", "deep/er/d": "1"} and not (into / "left").exists()
    assert os.readlink(into / "dangling") == "nowhere"
    assert (into / "a").samefile(source / "a")


def test_where_there_are_no_links_files_are_copied(tmp_path, monkeypatch) -> None:
    source, into = filled_folder(tmp_path / "source", a="1"), filled_folder(tmp_path / "into")
    (source / "dangling").symlink_to("nowhere")

    def refuses(*args: object, **named: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuses)
    link_missing(source, into, leave_out=set())
    assert texts(into) == {"a": "1"} and not (into / "a").samefile(source / "a")
    assert os.readlink(into / "dangling") == "nowhere"


def test_a_folder_one_stands_in_is_not_renamed(tmp_path, monkeypatch) -> None:
    here = filled_folder(tmp_path / "here")
    (here / "deeper").mkdir()
    assert renames_whole(here) and renames_whole(tmp_path / "new" / "er")
    for place in (here, here / "deeper"):
        monkeypatch.chdir(place)
        assert not renames_whole(here)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "cwd", lambda: (_ for _ in ()).throw(FileNotFoundError("it was removed")))
        assert not renames_whole(tmp_path / "new")
    assert not renames_whole(Path("/proc")) and renames_whole(here / "new")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK | os.X_OK)
    assert not renames_whole(here)


def test_one_at_a_time_gives_names_in_a_folder(tmp_path) -> None:
    order = []

    def second() -> None:
        order.append("asked")
        with alone(tmp_path):
            order.append("in")

    with alone(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("out")
    thread.join()
    assert order == ["asked", "out", "in"]


# -- room -----------------------------------------------------------------------------------------------


@pytest.fixture
def limited():
    """A process that may write files of 1 MiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
    yield 2**20
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_a_process_may_write_bounds_what_is_free(tmp_path, limited) -> None:
    place = tmp_path / "not" / "yet" / "there"
    assert free_bytes(place) == limited
    check_room(place, limited)
    with pytest.raises(
        NoRoom, match=r"there could not be written: it needs about 1\.0 MiB, and 1\.0 MiB are free"
    ):
        check_room(place, limited + 1)
    file = tmp_path / "file"
    for size, full in ((limited - staging._LEFT, False), (limited - staging._LEFT + 1, True)):
        with file.open("wb") as out:
            out.truncate(size)
        assert filled(tmp_path, [file]) == full and not filled(tmp_path, [])
    (tmp_path / "small").touch()
    assert filled(tmp_path, [file, tmp_path / "small"])  # the largest counts


def test_without_a_limit_the_disk_says_what_is_free(tmp_path, monkeypatch) -> None:
    free = [staging._LEFT]
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda p: type("", (), {"free": free[0], "of": p}))
    assert free_bytes(tmp_path / "a") == staging._LEFT and not filled(tmp_path, [])
    free[0] -= 1
    assert filled(tmp_path, [])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_known_by_number_by_words_and_by_what_it_came_from(number) -> None:
    assert is_full(OSError(number, "x")) and is_full(NoRoom("x"))
    for words in (
        "No space left on device",
        "Disk quota exceeded",
        "File too large",
        f"write failed: errno {number}",
    ):
        assert is_full(RuntimeError(words))
    try:
        try:
            raise OSError(number, "x")
        except OSError as error:
            raise ValueError("a library's own") from error
    except ValueError as error:
        assert is_full(error)
    try:
        try:
            raise OSError(number, "x")
        except OSError:
            raise ValueError("without saying from what")  # noqa: B904
    except ValueError as error:
        assert is_full(error)
    for other in (OSError(errno.EACCES, "x"), ValueError("errno 281"), KeyError(28), MemoryError()):
        assert not is_full(other)


def test_the_outermost_file_is_named_with_the_size_that_is_known(tmp_path) -> None:
    def full(needed: int | None) -> None:
        with room_for(tmp_path / "outer", needed), room_for(tmp_path / "inner", 3072):
            raise OSError(errno.ENOSPC, "x")

    with pytest.raises(NoRoom, match=r"outer could not be written: it needs about 3\.0 KiB") as caught:
        full(None)
    assert caught.value.needed == 3072 and caught.value.exit_code == 1
    with pytest.raises(NoRoom, match=r"outer could not be written: it needs about 2\.0 MiB"):
        full(2**21)
    with pytest.raises(KeyError), room_for(tmp_path / "outer"):
        raise KeyError("another")


def test_without_a_file_all_that_may_be_written_is_left(tmp_path, monkeypatch) -> None:
    may = [staging._LEFT]
    monkeypatch.setattr(resource, "getrlimit", lambda which: (may[0], resource.RLIM_INFINITY))
    assert not filled(tmp_path, [])
    may[0] -= 1
    assert filled(tmp_path, [])


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize(
    "said",
    [
        ("refused", ".geogp-new-aa-1-2-3c.own.parquet"),
        ("refused", ".run.partial"),
        ("refused", ".run.partial/weights.safetensors"),
        ("Failed to open '/there/.geogp-new-aa-1-2-3c.own.parquet'. Detail: none",),
    ],
    ids=lambda said: said[-1],
)
def test_where_nobody_may_write_the_outermost_file_is_named(tmp_path, number, said) -> None:
    """Whether the system says the hidden name, or a library says it among its words."""
    words = rf"^{tmp_path}/outer could not be written: {os.strerror(number)}; name another place, or ask"
    with (
        pytest.raises(NotWritable, match=words) as caught,
        room_for(tmp_path / "outer"),
        room_for(tmp_path / "inner"),
    ):
        raise OSError(number, *said)
    assert caught.value.exit_code == 3 and caught.value.why == os.strerror(number)


def test_what_else_is_refused_stays_as_it_was(tmp_path) -> None:
    hidden_name, plain = str(tmp_path / ".geogp-new-x.own.parquet"), str(tmp_path / "input.csv")
    for error in (
        OSError(errno.EACCES, "Permission denied", plain),  # what is read
        OSError(errno.ENOENT, "No such file or directory", hidden_name),
        OSError(f"{hidden_name} could not be read back"),
        ValueError(hidden_name),
    ):
        with pytest.raises(type(error)) as caught, room_for(tmp_path / "own.parquet"):
            raise error
        assert caught.value is error
    assert NotWritable().why == ""


def test_sizes_are_said_in_their_unit(tmp_path) -> None:
    said = {
        None: "more room than there is",
        1023: "1023 bytes",
        1024: "1.0 KiB",
        2**20 - 1: "KiB",
        2**20: "1.0 MiB",
    }
    for size, words in said.items():
        assert words in str(no_room(tmp_path / "a", size)).split(", and")[0]
    assert "3,072.0 MiB" in str(no_room(tmp_path / "a", 3 * 2**30))
