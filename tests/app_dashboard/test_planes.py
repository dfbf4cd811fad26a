"""What the page's script makes of planes, in Chromium, is what the model says: where the scale of new measurements is bent,
and where they have a second peak."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import maps
from app.workflow import distributions
from geogp.predictive import Peak, Predictive
from geogp.transforms import Identity, Warp, Warped
from maps.packing import base64_of, packs_of, unpack

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # playwright's own pipes
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Of logarithms of speeds: values pile up at 10.
WARP = Warp(np.array([-1.0, 0.8, 1.0, 1.2, 3.0]), np.ones(5), np.array([1.0, 0.5, 7.0, 0.5, 1.0]), (0.0, -0.2), 2.0)  # fmt: skip
COUNTS = (1.0, 5.0)
LOCATION, WIDTH = np.tile([0.7, 1.0, 1.4, 2.2], 2), np.tile([0.3, 0.5, 0.2, 0.4], 2)
N = len(LOCATION)
#: Above and below, narrow and wide; single measurements alone have it.
PEAK = {
    "peak_share": np.array([0.0, 0.1, 0.5, 0.9, 0.9, 0.5, 0.1, 0.0]),
    "peak_offset": np.array([0.9, 0.8, 0.4, 0.7, -1.1, -0.3, -0.9, -0.5]),
    "peak_scale": np.array([0.3, 0.06, 0.5, 0.06, 0.5, 0.06, 0.5, 0.3]),
}


@pytest.fixture(scope="module")
def blank() -> Iterator[Any]:
    """A page that knows the scripts of planes."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    folder = next(iter(maps.__path__)) + "/page/"
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        for name in ("words.js", "predictive.js", "planes.js"):
            page.add_script_tag(path=folder + name)
        yield page
        browser.close()


def parts_of(scales: list[Any], peak: bool) -> xr.Dataset:
    """Of some places, as `app.workflow.distributions` tells them, for each count the same but for the scale and the peak."""
    run = SimpleNamespace(
        model=SimpleNamespace(engine_=SimpleNamespace(least=-np.inf)),
        target=SimpleNamespace(from_score=lambda u: 10.0**u),
    )
    planes = {
        "location": LOCATION, "scale": WIDTH, "inverse_df": np.full(N, 0.2), "log_skewness": np.full(N, 0.1), "latent_sd": 0.3 * WIDTH,
    }  # fmt: skip
    by_count = {name: (("count", "place"), np.stack([v] * len(COUNTS))) for name, v in planes.items()}
    if peak:
        by_count |= {
            name: (("count", "place"), np.stack([v, 0 * v if name == "peak_share" else v]))
            for name, v in PEAK.items()
        }
    surface = {"surface": LOCATION, "surface_sd": 0.3 * WIDTH, "prior_sd": np.ones(N)}
    working = distributions._nodes(
        (LOCATION, 8 * WIDTH), (LOCATION + PEAK["peak_offset"], 5 * PEAK["peak_scale"])
    )
    values = {"value": ("node", distributions._values(run, working, Identity()))}
    if scales:
        told = [distributions._values(run, working, scale) for scale in scales]
        values["value_of_new"] = (("count", "node"), np.stack(told))
    return xr.Dataset(
        by_count | {n: ("place", v) for n, v in surface.items()} | values
        | {"known": (("y", "x"), np.ones((2, N // 2), bool)), "working": ("node", working)},
        coords={"count": list(COUNTS)},
        attrs={"tests": 5.0, "quarter": "2023Q4"},
    )  # fmt: skip


NAMES = ["median", "lower", "upper", "exceedance", "noise_sd", "latent_median"]
SAID = """async ([packs, tests, names, place]) => {
    const atlas = atlasOf(await Promise.all(packs.map((text) => unpack(bytesOf(text)))));
    const s = { tests, level: 0.9, threshold: 9.0 }, out = {};
    for (const name of names) out[name] = [...await atlas.plane({ id: name, formula: name }, s)];
    const one = await Promise.all([...Array(atlas.n).keys()].map((i) => atlas.at(i, s, [])));
    out.at = names.map((name) => one.map((v) => v[name]));
    out.of = atlas.of(place, s);
    out.kinds = one.map((v) => v.kinds ? [v.kinds.share, ...v.kinds.medians] : null);
    out.words = one.map((v) => v.kinds ? kindsText(v.kinds, " ms") : null);
    return out;
}"""


def told(parts: xr.Dataset) -> list[str]:
    return [base64_of(pack) for pack in packs_of(parts) if pack is not None]


@pytest.mark.parametrize("bent", [True, False])
@pytest.mark.parametrize("peak", [True, False])
def test_the_page_computes_what_the_model_says(blank: Any, bent: bool, peak: bool) -> None:
    scales = [Warped(Identity(), WARP, WARP.strength(n)) if bent else Identity() for n in COUNTS]
    parts = parts_of(scales if bent else [], peak)
    packs = told(parts)
    assert len(packs) == 2
    one = {name: float(parts[name].values[0, 1]) for name in parts if parts[name].dims == ("count", "place")}
    for n, scale in zip(COUNTS, scales):
        said = blank.evaluate(SAID, [packs, n, NAMES, one])
        second = Peak(PEAK["peak_share"], LOCATION + PEAK["peak_offset"], PEAK["peak_scale"])
        tails, skew = np.full(N, 5.0), np.full(N, 0.1)
        p = Predictive(LOCATION, WIDTH, tails, scale, skew, peak=second if peak and n == COUNTS[0] else None)
        lower, upper = p.interval(0.9)
        sd = replace(p, transform=Identity()).sd()
        expected = {
            "median": 10.0 ** p.median(), "lower": 10.0**lower, "upper": 10.0**upper, "exceedance": p.exceedance(np.log10(9.0)),
            "noise_sd": np.sqrt(sd**2 - (0.3 * WIDTH) ** 2), "latent_median": 10.0**LOCATION,
        }  # fmt: skip
        for (name, values), at in zip(expected.items(), said["at"], strict=True):
            np.testing.assert_allclose(said[name], values, rtol=4e-3, atol=2e-3)
            np.testing.assert_allclose(at, values, rtol=4e-3, atol=2e-3)
        if n == COUNTS[0]:
            assert said["of"]["upper"] == pytest.approx(float(10.0 ** upper[1]), rel=4e-3)
    # Of the median of single tests the bend is most of what there is to see.
    p = Predictive(LOCATION, WIDTH, tails, Identity(), skew, peak=second if peak else None)
    single = blank.evaluate(SAID, [packs, 1.0, ["median"], one])["median"]
    assert (np.abs(np.log(single / 10.0 ** p.median())).max() > 0.1) == bent


def test_two_kinds_of_values_are_told_where_they_stand_apart(blank: Any) -> None:
    """Not where there is one peak, where the two are one hump, or where hardly any value is of the second."""
    said = blank.evaluate(SAID, [told(parts_of([], True)), 1.0, [], {}])
    apart = np.abs(PEAK["peak_offset"]) > np.sqrt(2.0 * (WIDTH**2 + PEAK["peak_scale"] ** 2))
    apart &= PEAK["peak_share"] > 0
    assert 2 <= apart.sum() < (PEAK["peak_share"] > 0).sum()
    assert [v is not None for v in said["kinds"]] == apart.tolist() == [v is not None for v in said["words"]]
    i = int(np.flatnonzero(apart)[0])
    first = Predictive(LOCATION, WIDTH, np.full(N, 5.0), Identity(), np.full(N, 0.1)).median()[i]
    medians = 10.0 ** np.array([first, LOCATION[i] + PEAK["peak_offset"][i]])
    np.testing.assert_allclose(said["kinds"][i], [PEAK["peak_share"][i], *medians], rtol=4e-3)
    assert said["words"][i] == "90% around 12, 10% around 63 ms"
    rare = parts_of([], True)
    rare["peak_share"] = rare["peak_share"].clip(max=0.019)
    assert not any(blank.evaluate(SAID, [told(rare), 1.0, [], {}])["kinds"])


def test_where_no_share_is_above_0_a_second_peak_changes_nothing(blank: Any) -> None:
    parts = parts_of([], True)
    assert not {name for name in unpack(packs_of(parts)[0])[1] if name.startswith("peak")}
    without = parts.drop_vars(list(PEAK))
    said, plain = (blank.evaluate(SAID, [told(v), 1.0, NAMES, {}]) for v in (parts, without))
    for name in NAMES:
        same = np.equal(said[name], plain[name])
        assert same[PEAK["peak_share"] == 0].all() and (name == "latent_median") == same.all()
