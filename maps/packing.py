"""Planes of numbers in one run of bytes that a page unpacks: quantised, deflated, only the pixels that have any.

    "GGP1", the header's length (4 bytes, little-endian), the header as JSON, the planes one after the other

A plane of n pixels is n codes of 16 bits: 0 no value, 1..steps evenly (on a log or linear scale) between low and high.
The differences of neighbouring codes are stored, their high bytes and then their low bytes, deflated.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Num
from numpy.typing import NDArray

from maps.colours import Scale
from maps.words import exact

MAGIC = b"GGP1"
#: What a distribution is told by, see `geogp.predictive.Predictive`, and where it has a second peak what that is.
FIELDS = ("location", "scale", "inverse_df", "log_skewness", "latent_sd")
PEAK = ("peak_share", "peak_offset", "peak_scale")
#: Codes of a plane: 0.2% of a value over three decades; of what every printed digit hangs on, 0.01%.
STEPS, FINE = 4094, 65534


def pack(
    known: Bool[np.ndarray, "H W"],
    planes: Mapping[str, tuple[Num[np.ndarray, " n"], str, int, tuple[float, float] | None]],
    about: Mapping[str, Any],
) -> bytes:
    """Planes of the n known pixels, row by row, as bytes.

    Parameters
    ----------
    known : which pixels of the grid have any value
    planes : name -> (values, NaN where there is none; "log" or "linear"; steps; ends, or None for the values' own)
    about : what else the header says, JSON-able

    Examples
    --------
    >>> known = np.array([[True, False, True]])
    >>> header, values = unpack(pack(known, {"a": (np.array([1.0, 3.0]), "linear", STEPS, None)}, {"quarter": "2023Q4"}))
    >>> header["quarter"], values["a"].tolist(), values["known"].tolist()
    ('2023Q4', [1.0, 3.0], [[True, False, True]])
    """
    chunks = [zlib.compress(np.packbits(known).tobytes(), 9)]
    header: dict[str, Any] = {
        **about,
        "shape": list(known.shape),
        "n": int(known.sum()),
        "known": {"at": 0, "bytes": len(chunks[0])},
        "planes": {},
    }
    start = len(chunks[0])
    for name, (values, scale, steps, ends) in planes.items():
        plane, data = quantise(values, scale, steps, ends)
        header["planes"][name] = {**plane, "at": start, "bytes": len(data)}
        chunks.append(data)
        start += len(data)
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([MAGIC, len(text).to_bytes(4, "little"), text, *chunks])


def quantise(
    values: Num[np.ndarray, " n"], scale: str, steps: int = STEPS, ends: tuple[float, float] | None = None
) -> tuple[dict[str, Any], bytes]:
    """How to read a plane, and its deflated codes. With 4,094 steps over three decades a value returns within 0.1%.

    A "log" scale needs values above 0, else it is linear; `ends` are stretched to hold all values.
    """
    v = np.asarray(values, dtype=np.float64).ravel()
    finite = v[np.isfinite(v)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if ends is not None:
        low, high = min(low, ends[0]), max(high, ends[1])
    kind = "log" if scale == "log" and low > 0 else "linear"
    if high <= low:
        high = low * 1.001 if low > 0 else low + 1.0
    t = Scale(low, high, kind).fraction(v)
    codes = np.where(np.isfinite(v), 1 + np.rint(np.nan_to_num(t) * (steps - 1)), 0).astype(np.uint16)
    deltas = np.diff(codes, prepend=np.uint16(0)).astype(np.uint16)
    packed = (deltas >> 8).astype(np.uint8).tobytes() + (deltas & 255).astype(np.uint8).tobytes()
    return {"low": low, "high": high, "kind": kind, "steps": steps}, zlib.compress(packed, 6)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What the page's script makes of `pack`: the header, each plane (n,), NaN where there is no value, and `known`."""
    length = int.from_bytes(data[4:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]

    def chunk(entry: Mapping[str, Any]) -> NDArray[np.uint8]:
        return np.frombuffer(zlib.decompress(body[entry["at"] : entry["at"] + entry["bytes"]]), np.uint8)

    shape, n = header["shape"], header["n"]
    bits = np.unpackbits(chunk(header["known"]), count=shape[0] * shape[1])
    out: dict[str, NDArray[Any]] = {"known": bits.astype(bool).reshape(shape)}
    for name, plane in header["planes"].items():
        high, low = chunk(plane).reshape(2, n)
        codes = np.cumsum(high.astype(np.uint16) << 8 | low, dtype=np.uint16)
        t = (codes.astype(float) - 1) / (plane["steps"] - 1)
        ends = plane["low"], plane["high"]
        log = plane["kind"] == "log"
        v = ends[0] * (ends[1] / ends[0]) ** t if log else ends[0] + t * (ends[1] - ends[0])
        out[name] = np.where(codes == 0, np.nan, v)
    return header, out


def packs_of(
    parts: xr.Dataset, extra: Mapping[str, Any] | None = None, about: Mapping[str, Any] | None = None
) -> tuple[bytes, bytes | None]:
    """Planes of a quarter: at the usual number of tests, and at the others, if there are any.

    Parameters
    ----------
    parts : from `app.workflow.distributions`
    extra : further planes by name, (values, scale, steps, ends) as `pack` takes them
    about : what else the headers say, JSON-able
    """
    known = parts["known"].values

    def plane(name: str, values: Any) -> Any:
        log = name in ("scale", "latent_sd", "surface_sd", "prior_sd", "nearest_m", "peak_scale")
        # Between two peaks, where few values are, a quantile moves far with the share.
        fine = name in ("location", "scale", "surface", "peak_share", "peak_offset")
        v = np.maximum(values, 1.0) if name == "nearest_m" else values
        return (v, "log" if log else "linear", FINE if fine else STEPS, None)

    working = parts["working"].values
    header = {
        **(about or {}),
        "quarter": str(parts.attrs.get("quarter") or ""),
        "least": parts.attrs.get("least"),
        "table": {
            "low": float(working[0]),
            "high": float(working[-1]),
            "values": _values(parts["value"].values),
        },
    }
    first: dict[str, Any] = {}
    others: dict[str, Any] = {}
    # Where the scale of new observations is bent: their values, by the number of tests as planes are named.
    bent: tuple[dict[str, str], dict[str, str]] = {}, {}
    usual = parts.attrs.get("tests")
    for i in range(parts.sizes["count"]):
        n = None if "count" not in parts.coords else float(parts["count"].values[i])
        mark = "" if n is None else f"_{short(n)}"
        into = first if n is None or n == usual else others
        second = PEAK if "peak_share" in parts and parts["peak_share"].values[i].any() else ()
        into.update({name + mark: plane(name, parts[name].values[i]) for name in (*FIELDS, *second)})
        if "value_of_new" in parts:
            bent[into is others][mark] = _values(parts["value_of_new"].values[i])
    for name in ("surface", "surface_sd", "prior_sd", "nearest_m"):
        if name in parts:
            first[name] = plane(name, parts[name].values)
    first |= dict(extra or {})

    def packed(planes: dict[str, Any], own: dict[str, str]) -> bytes:
        return pack(known, planes, header | ({"table": header["table"] | {"new": own}} if own else {}))

    return packed(first, bent[0]), packed(others, bent[1]) if others else None


def _values(nodes: Any) -> str:
    return base64_of(nodes.astype("<f8").tobytes())


def short(value: float) -> str:
    """A number as the page's script writes it: `short` of words.js.

    >>> short(25.0), short(4.2e13), short(4e-7)
    ('25', '42000000000000', '4e-7')
    """
    said = float(f"{value:.10g}")
    if said == 0 or 1e-6 <= abs(said) < 1e21:
        return np.format_float_positional(said, trim="-")
    return exact(said)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
