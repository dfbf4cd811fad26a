"""What a sorted copy of a published quarter says of itself: where it is from, and the keys of each of its row groups.

A copy is a file in the bucket's layout with the published columns but `tile`, sorted by quadkey, in small row groups, with
the centres as GeoParquet points and their covering. Its pages have checksums; what its footer says here is sealed.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from data_pipelines.errors import InvalidInput

KEY, VERSION = b"geogp_sorted", 1
SEAL = "seal"


@dataclass(frozen=True)
class Copied:
    """A copy's account.

    origin : record of the published file
    rows_read, undecodable : rows that were published, and those left out because their key is none
    ends : first and last key of each row group; sizes : how many rows it has
    """

    origin: dict[str, Any]
    rows_read: int
    undecodable: int
    ends: tuple[tuple[str, str], ...]
    sizes: tuple[int, ...]
    version: int = VERSION

    def metadata(self) -> bytes:
        """As it stands in the file."""
        told = asdict(self)
        return json.dumps({**told, SEAL: _seal(told)}).encode()

    def check(self, group: int, keys: pa.Array) -> None:
        """Refuse a row group that is not the one that was written.

        Raises
        ------
        ValueError
        """
        first, last = self.ends[group]
        if len(keys) != self.sizes[group] or (keys[0].as_py(), keys[-1].as_py()) != (first, last):
            raise ValueError(f"row group {group} is not the one that was written")


def copied(metadata: dict[bytes, bytes] | None, name: str) -> Copied | None:
    """The account in a file's metadata; None of a file that is no copy.

    Raises
    ------
    InvalidInput
        It is not what was written, or is of a later version.
    """
    told = (metadata or {}).get(KEY)
    if told is None:
        return None
    try:
        document = json.loads(told)
        seal = document.pop(SEAL)
        version = int(document["version"])
        whole = seal == _seal(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        version, whole = VERSION, False
    if not whole:
        raise InvalidInput(
            f"{name} is damaged (what it says of itself is not what was written); sort it again."
        )
    if version > VERSION:
        raise InvalidInput(
            f"{name} is a sorted copy of version {version}, newer than {VERSION}; read it with the GeoGP that made it."
        )
    ends = tuple((first, last) for first, last in document.pop("ends"))
    return Copied(ends=ends, sizes=tuple(document.pop("sizes")), **document)


def _seal(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
