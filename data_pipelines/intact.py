"""Whether a file is whole, as far as its own format can say: Parquet footers, zip directories and checksums."""

import faulthandler
import os
import resource
import signal
import struct
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from data_pipelines.arrow import reason
from data_pipelines.errors import InvalidInput

#: Most bytes that a zip may unpack to, and that a Parquet footer may have.
MOST_UNPACKED, MOST_FOOTER = 8 * 2**30, 256 * 2**20
#: For reading a footer.
MOST_SECONDS = 20
#: By what GDAL knows, within the first bytes, files that have others opened: layers of other files, addresses, programs.
REACHING = (b"<OGRVRTDataSource", b"gdal_streamed_alg", b"<OGRWFSDataSource", b"<OGRCSWDataSource", b"<Product_Observational",
            b"PDS_VERSION_ID", b"LBLSIZE=", b"<VRTDataset", b"<GDAL_WMS", b"<MRF_META", b"<GMLASConfiguration")  # fmt: skip
FIRST = 64 * 2**10


class Damaged(InvalidInput):
    """A file that its own format says is not whole."""


def check_intact(path: Path, name: str | None = None) -> None:
    """Refuse a damaged zip or Parquet file, and a file, also in a folder or zip, by which GDAL would open others.

    Parameters
    ----------
    name : what to call it, whose ending counts; default the path

    Raises
    ------
    Damaged

    Notes
    -----
    Cost: a zip is unpacked once, in pieces, for its checksums; of Parquet the footer is read twice, first in a copy of the
    process.
    """
    name = name or str(path)
    if path.is_dir():
        for inner in (p for p in path.rglob("*") if p.is_file()):
            with inner.open("rb") as file:
                _check_alone(file.read(FIRST), str(inner))
    if not path.is_file():
        return
    with path.open("rb") as file:
        start = file.read(FIRST)
    if start[:4] != b"PAR1":
        _check_alone(start, name)
    ending = name.lower().rsplit(".", 1)[-1]
    if start[:2] == b"PK" or ending in ("zip", "shz"):
        _check_zip(path, name)
    elif start[:4] == b"PAR1" or ending in ("parquet", "geoparquet"):
        _check_parquet(path, name)


def _check_alone(start: bytes, name: str) -> None:
    if any(word in start for word in REACHING):
        raise Damaged(
            f"{name} has other files or addresses opened in its stead; give the file with the data itself."
        )


def _check_zip(path: Path, name: str) -> None:
    """Directory, sizes, names and the checksum of every member."""
    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
            unpacked = sum(member.file_size for member in members)
            if unpacked > MOST_UNPACKED:
                raise Damaged(
                    f"{name} unpacks to {unpacked / 2**30:.3g} GiB, more than {MOST_UNPACKED / 2**30:g}; unpack it "
                    "yourself if that is right."
                )
            for member in members:
                if member.filename.startswith("/") or ".." in Path(member.filename).parts:
                    raise Damaged(
                        f"{name} has a member outside of itself ({member.filename!r}); do not use it."
                    )
                _check_header(path, member)
                with file.open(member) as inside:
                    _check_alone(inside.read(FIRST), f"{name}/{member.filename}")
            bad = file.testzip()
    except Damaged:
        raise
    except Exception as error:  # zipfile, zlib and struct each have their own
        raise Damaged(f"{name} is damaged ({reason(error)}); fetch it again.") from error
    if bad is not None:
        raise Damaged(f"{name} is damaged (the checksum of {bad!r} is another); fetch it again.")


def _check_header(path: Path, member: zipfile.ZipInfo) -> None:
    """What stands before a member is what the directory says: readers differ in which of the two they believe."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        fields = struct.unpack("<4s5H3I2H", file.read(30))
    mark, version, flags, method, _, _, checksum, packed, unpacked, _, _ = fields
    said = (member.flag_bits, member.compress_type)
    streamed, large = flags & 8, unpacked == 0xFFFFFFFF
    sums = (checksum, packed, unpacked) == (member.CRC, member.compress_size, member.file_size)
    if mark != b"PK\x03\x04" or version > 63 or (flags, method) != said or not (sums or streamed or large):
        raise zipfile.BadZipFile(f"the header of {member.filename!r} differs from the directory")
    if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or flags & 0x61:
        raise zipfile.BadZipFile(f"{member.filename!r} is packed in a way that is not read")


def _check_parquet(path: Path, name: str) -> None:
    """Magic at both ends, a footer that can be read, column chunks that lie in the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(max(0, size - 8))
        footer, end = int.from_bytes(file.read(4), "little"), file.read(4)
    if start != b"PAR1" or end != b"PAR1" or not 0 < footer <= min(size - 12, MOST_FOOTER):
        raise Damaged(f"{name} is not a readable Parquet file (it has no whole footer); fetch it again.")
    if not _survives(lambda: _check_columns(path, name, size - footer - 8)):
        raise Damaged(f"{name} is damaged (its footer cannot be read); fetch it again.")
    try:
        _check_columns(path, name, size - footer - 8)
    except Damaged:
        raise
    except Exception as error:
        raise Damaged(f"{name} is damaged ({reason(error)}); fetch it again.") from error


def _check_columns(path: Path, name: str, end: int) -> None:
    """Every column chunk lies before the footer, which starts at byte `end`."""
    metadata = pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for at in range(group.num_columns):
            column = group.column(at)
            first = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset is not None:
                first = min(first, column.dictionary_page_offset)
            if first < 4 or column.total_compressed_size < 0:
                raise Damaged(f"{name} is damaged (a column lies nowhere); fetch it again.")
            if first + column.total_compressed_size > end:
                raise Damaged(f"{name} is damaged (a column ends beyond the file); fetch it again.")


def _survives(work: Callable[[], None]) -> bool:
    """Whether a process that does the work lives on: Arrow ends it over some footers (parquet::ParquetException).

    The process is a copy of this one and only reads a file; one that takes longer than `MOST_SECONDS` is ended.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the copy touches none
        child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            faulthandler.disable()
            work()
        except BaseException:
            pass  # this process, doing the same, says it in words
        finally:
            os._exit(0)
    for _ in range(MOST_SECONDS * 500):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.WIFEXITED(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False
