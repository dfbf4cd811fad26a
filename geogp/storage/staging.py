"""Outputs that appear whole or not at all: staged under a hidden name, flushed to disk, named in one rename.

Three packages that never import each other hold this very file (a test compares them). A hidden name tells the
process that made it, so that the next one that writes beside sweeps what a dead process left.
"""

import ctypes
import errno
import hashlib
import os
import re
import resource
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Of renameat2(2): paths as from here; exchange both names.
_HERE, _EXCHANGE = -100, 2
#: What another machine left is dead after so many seconds.
_LONG = 86_400.0
#: `.geogp-new-..` is not finished; `.geogp-old-..` stood aside while two folders changed names.
_NAME = re.compile(
    r"\.geogp-(?P<kind>new|old)-(?P<host>\w+)-(?P<pid>\d+)-(?P<start>\d+)-\w+\.(?P<target>.*)", re.DOTALL
)
#: In a folder whose files are being renamed into the one around it: the renames are to be finished.
_COMMIT = ".commit"
#: What makes a folder a finished run; and names of folders in which one is being made.
_OF_RUN, _UNFINISHED = ("run.json", "SHA256SUMS"), re.compile(r"\.geogp-.*|\..+\.partial", re.DOTALL)
#: A disk with less than this left is full.
_LEFT = 1 << 16
#: Hidden names in use by this process.
_mine: set[str] = set()

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: What a system says where nobody, or not everybody, may write.
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
#: How libraries that swallow the number say that a disk is full.
_FULL_WORDS = re.compile(
    r"no space left|disk quota exceeded|file too large|(err(or|no)|os error)\W*(28|27|122)\b", re.IGNORECASE
)


# -- names ----------------------------------------------------------------------------------------------


def hidden(target: Path, kind: str = "new") -> Path:
    """A hidden name beside `target`, with its ending, that tells this process."""
    whole = target.name if kind == "old" else target.name[-100:]
    made = f".geogp-{kind}-{_host()}-{os.getpid()}-{_start(os.getpid())}-{secrets.token_hex(4)}.{whole}"
    return target.with_name(made)


@contextmanager
def staged(target: Path, inside: bool = False) -> Iterator[Path]:
    """A hidden path beside `target` (or in it) to build it at; gone at the end unless renamed, whatever happens."""
    path = hidden(target / (target.name or "files") if inside else target)
    sweep(path.parent)
    _mine.add(path.name)
    try:
        yield path
    finally:
        remove(path)
        _mine.discard(path.name)


def sweep(folder: Path) -> list[Path]:
    """Remove what dead processes left in a folder, or finish it where it was being given its names."""
    gone = []
    try:
        found = [p for p in folder.iterdir() if p.name.startswith(".geogp-")]
    except OSError:
        return []
    for path in found:
        match = _NAME.fullmatch(path.name)
        if not match or not _dead(path, match):
            continue
        with suppress(OSError):  # another process sweeps the same, or may not
            if (path / _COMMIT).is_file():
                _rename_into(path, folder)
            if match["kind"] == "old" and not (folder / match["target"]).exists():
                os.rename(path, folder / match["target"])
            remove(path)
            gone.append(path)
    return gone


def remove(path: Path) -> None:
    """A file or a folder goes; nothing there is as good, also where a disk that is only read refuses to remove nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        with suppress(FileNotFoundError):
            path.unlink()


def refuse_within_run(path: Path) -> None:
    """Refuse a name anywhere in a finished run, which says which files it has and opens with no others.

    Raises
    ------
    WithinRun
    """
    folder = path.absolute().parent.resolve()
    for place in (folder, *folder.parents):
        if not _UNFINISHED.fullmatch(place.name) and all((place / name).is_file() for name in _OF_RUN):
            raise WithinRun(
                f"The output would lie in the run {place}, which opens with no files but its own; name another place."
            )


def _dead(path: Path, match: re.Match[str]) -> bool:
    if match["host"] != _host():
        return time.time() - path.stat().st_mtime > _LONG
    pid = int(match["pid"])
    if pid == os.getpid() and match["start"] == str(_start(pid)):
        return path.name not in _mine
    return _start(pid) != int(match["start"])


def _host() -> str:
    """This machine since it was started, and this container of it."""
    parts = [os.uname().nodename]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:8]


def _start(pid: int) -> int:
    """When a process began, in ticks since the machine did; -1 for one that is gone."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return -1
    return -1 if state in "ZX" else int(rest[18])


# -- publishing -----------------------------------------------------------------------------------------


def publish_file(staged: Path, target: Path) -> None:
    """Flush a finished file and give it its name in one rename."""
    _sync(staged)
    os.replace(staged, target)
    _sync(target.parent)


def replace_folder(staged: Path, target: Path) -> None:
    """Flush a finished folder beside `target` and let it take its place, old or new whole at any moment.

    What was there has the name `staged` afterwards, for the caller to remove.
    """
    target = target.resolve()
    _sync_tree(staged)
    if target.is_dir():
        with suppress(OSError):
            os.chmod(staged, target.stat().st_mode & 0o7777)
        swap(staged, target)
    else:
        os.rename(staged, target)
    _sync(target.parent)


def publish_files(staged: Path, target: Path, *, drop: Iterable[str] = ()) -> None:
    """Let the files of a finished folder appear in `target` at once, beside what else is there.

    Parameters
    ----------
    staged : made by `staged`, beside `target`; or inside it, where the folder itself cannot be renamed: its files
        are then renamed one by one, "manifest.json" gone first and back last, and a kill between is made good by
        the next `sweep`
    drop : names of files in `target` that do not stay
    """
    target = target.resolve()
    refuse_within_run(target / "any")
    if staged.parent == target:
        _sync_tree(staged)
        with alone(target):
            gone = {name for name in drop if not _hidden(Path(name))} - {p.name for p in staged.iterdir()}
            (staged / _COMMIT).write_text("\n".join(sorted(gone)), encoding="utf-8")
            _sync(staged / _COMMIT)
            _rename_into(staged, target)
        return
    with alone(target.parent):
        if target.is_dir():
            link_missing(target, staged, leave_out=set(drop))
        replace_folder(staged, target)


def renames_whole(target: Path) -> bool:
    """Whether a folder can be replaced as one: not a mount, not where this process stands, its parent writable."""
    try:
        target = target.resolve()
        here = Path.cwd()
    except OSError:
        return False
    if target.exists() and (target.is_mount() or here.is_relative_to(target)):
        return False
    parent = next((p for p in target.parents if p.exists()), target)
    return os.access(parent, os.W_OK | os.X_OK)


def link_missing(source: Path, into: Path, *, leave_out: set[str]) -> None:
    """What a folder has and the other lacks, but for `leave_out`: links where the file system has them, else copies."""
    skipped = {p for name in leave_out for p in (source / name, *(source / name).rglob("*"))}
    for file in sorted(p for p in source.rglob("*") if p.is_symlink() or not p.is_dir()):
        name = file.relative_to(source)
        if file in skipped or os.path.lexists(into / name) or _hidden(name):
            continue
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, into / name, follow_symlinks=False)
        except OSError:
            shutil.copy2(file, into / name, follow_symlinks=False)


def swap(a: Path, b: Path) -> None:
    """Exchange the names of two folders of one file system, in one step where the system can (Linux)."""
    a, b = a.resolve(), b.resolve()  # what a link points to, not the link
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        done = rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0
    except AttributeError:
        done = False
    if not done:
        aside = hidden(b, "old")  # after a kill here, `sweep` gives it its name back
        _mine.add(aside.name)
        os.rename(b, aside)
        os.rename(a, b)
        os.rename(aside, a)
        _mine.discard(aside.name)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time gives names in a folder; where folders cannot be locked, all go on."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _rename_into(staged: Path, target: Path) -> None:
    """Rename the files of a committed folder into the one around it; may be begun again at any point."""
    last = "manifest.json"
    if (staged / last).exists():
        remove(target / last)
    for name in (staged / _COMMIT).read_text(encoding="utf-8").splitlines():
        remove(target / name)
    for path in sorted(staged.iterdir(), key=lambda p: p.name == last):
        if path.name == _COMMIT:
            continue
        if path.is_dir():
            remove(target / path.name)
        os.replace(path, target / path.name)
    _sync(target)
    remove(staged / _COMMIT)


def _hidden(name: Path) -> bool:
    return name.parts[0].startswith(".geogp-")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            _sync(path)


# -- room -----------------------------------------------------------------------------------------------


class WithinRun(ValueError):
    """An output that would lie among the files of a run."""

    exit_code = 3


class NoRoom(OSError):
    """A disk is full: the sentence names the file, the size needed and what is free."""

    exit_code = 1
    #: Bytes, about; None where nobody can tell.
    needed: int | None = None


class NotWritable(OSError):
    """An output may not be written: the sentence names it, whichever hidden name was refused."""

    exit_code = 3
    #: What the system said.
    why: str = ""


def free_bytes(place: Path) -> int:
    """What a file at a place may take at most: what the disk has and what the process may write."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    free = shutil.disk_usage(_there(place)).free
    return free if limit == resource.RLIM_INFINITY else min(free, limit)


def filled(place: Path, files: Iterable[Path]) -> bool:
    """Whether a disk, or one of the files that a process wrote there, has come to its end."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    largest = max((f.stat().st_size for f in files), default=0)
    if limit != resource.RLIM_INFINITY and limit - largest < _LEFT:
        return True
    return shutil.disk_usage(_there(place)).free < _LEFT


def check_room(file: Path, needed: int) -> None:
    """Refuse to begin what cannot be finished.

    Raises
    ------
    NoRoom
    """
    if needed > free_bytes(file):
        raise no_room(file, needed)


@contextmanager
def room_for(file: Path, needed: int | None = None) -> Iterator[None]:
    """A full disk inside the block, by whichever library met it, becomes NoRoom of `file`, the outermost block's; a hidden name
    that the system refuses becomes NotWritable of it.

    Parameters
    ----------
    file : its final name
    needed : bytes it takes, about; None where nobody can tell
    """
    try:
        yield
    except Exception as error:
        if is_full(error):
            raise no_room(file, getattr(error, "needed", None) if needed is None else needed) from error
        if why := _refusal(error):
            raise _not_writable(file, why) from error
        raise


def is_full(error: BaseException) -> bool:
    """Whether an error, or what it came from, says that a disk or a quota is full."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, NoRoom) or (isinstance(seen, OSError) and seen.errno in _FULL):
            return True
        if _FULL_WORDS.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def no_room(file: Path, needed: int | None) -> NoRoom:
    """The error that says so of a file."""
    wants = "more room than there is" if needed is None else f"about {_mib(needed)}"
    error = NoRoom(
        f"{file} could not be written: it needs {wants}, and {_mib(free_bytes(file.parent))} are free there; make room "
        "or write elsewhere. What was there before is as it was."
    )
    error.needed = needed
    return error


def _refusal(error: Exception) -> str:
    """What the system said where it would not let a hidden name be made; "" for any other error."""
    if isinstance(error, NotWritable):
        return error.why
    if not isinstance(error, OSError) or error.errno not in _REFUSED:
        return ""
    named = Path(str(error.filename or error.strerror)).parts  # some libraries say the name among the words
    return os.strerror(error.errno) if any(map(_UNFINISHED.fullmatch, named)) else ""


def _not_writable(file: Path, why: str) -> NotWritable:
    error = NotWritable(
        f"{file} could not be written: {why}; name another place, or ask for the right to write there."
    )
    error.why = why
    return error


def _there(place: Path) -> Path:
    """A place, or the nearest folder above it that exists."""
    return next(p for p in (place, *place.absolute().parents) if p.exists())


def _mib(size: int) -> str:
    for unit, words in ((2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:,.1f} {words}"
    return f"{size} bytes"
