"""What the page's script makes of planes whose new measurements are on a bent scale, in Chromium: what the model says."""

import shutil
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import maps
from app.workflow import distributions
from geogp.predictive import Predictive
from geogp.transforms import Identity, Warp, Warped
from maps.packing import base64_of, packs_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # playwright's own pipes
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Of logarithms of speeds: values pile up at 10.
WARP = Warp(np.array([-1.0, 0.8, 1.0, 1.2, 3.0]), np.ones(5), np.array([1.0, 0.5, 7.0, 0.5, 1.0]), (0.0, -0.2), 2.0)  # fmt: skip
COUNTS = (1.0, 5.0)


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


def parts_of(scales: list[Any]) -> xr.Dataset:
    """Of four places, as `app.workflow.distributions` tells them, for each count the same but for the scale."""
    run = SimpleNamespace(
        model=SimpleNamespace(engine_=SimpleNamespace(least=-np.inf)),
        target=SimpleNamespace(from_score=lambda u: 10.0**u),
    )
    location, width = np.array([0.7, 1.0, 1.4, 2.2]), np.array([0.3, 0.5, 0.2, 0.4])
    planes = {
        "location": location, "scale": width, "inverse_df": np.full(4, 0.2), "log_skewness": np.full(4, 0.1), "latent_sd": 0.3 * width,
    }  # fmt: skip
    by_count = {name: (("count", "place"), np.stack([v] * len(COUNTS))) for name, v in planes.items()}
    surface = {"surface": location, "surface_sd": 0.3 * width, "prior_sd": np.ones(4)}
    working = distributions._nodes(location, width, location, width)
    values = {"value": ("node", distributions._values(run, working, Identity()))}
    if scales:
        told = [distributions._values(run, working, scale) for scale in scales]
        values["value_of_new"] = (("count", "node"), np.stack(told))
    return xr.Dataset(
        by_count | {n: ("place", v) for n, v in surface.items()} | values
        | {"known": (("y", "x"), np.ones((2, 2), bool)), "working": ("node", working)},
        coords={"count": list(COUNTS)},
        attrs={"tests": 5.0, "quarter": "2023Q4"},
    )  # fmt: skip


SAID = """async ([packs, tests]) => {
    const atlas = atlasOf(await Promise.all(packs.map((text) => unpack(bytesOf(text)))));
    const s = { tests, level: 0.9, threshold: 9.0 }, out = {};
    for (const name of ["median", "lower", "upper", "exceedance", "latent_median"])
        out[name] = [...await atlas.plane({ id: name, formula: name }, s)];
    const one = await Promise.all([0, 1, 2, 3].map((i) => atlas.at(i, s, [])));
    out.at = ["median", "lower", "upper", "exceedance", "latent_median"].map((name) => one.map((v) => v[name]));
    const [location, scale, a, skew] = [1.0, 0.5, 0.2, 0.1];
    out.of = atlas.of({ location, scale, inverse_df: a, log_skewness: skew }, s);
    return out;
}"""


@pytest.mark.parametrize("bent", [True, False])
def test_the_page_computes_what_the_model_says(blank: Any, bent: bool) -> None:
    scales = [Warped(Identity(), WARP, WARP.strength(n)) if bent else Identity() for n in COUNTS]
    parts = parts_of(scales if bent else [])
    packs = [base64_of(pack) for pack in packs_of(parts) if pack is not None]
    assert len(packs) == 2
    for n, scale in zip(COUNTS, scales):
        said = blank.evaluate(SAID, [packs, n])
        p = Predictive(
            parts["location"].values[0], parts["scale"].values[0], np.full(4, 5.0), scale, np.full(4, 0.1)
        )
        lower, upper = p.interval(0.9)
        expected = {
            "median": 10.0 ** p.median(), "lower": 10.0**lower, "upper": 10.0**upper, "exceedance": p.exceedance(np.log10(9.0)),
            "latent_median": 10.0 ** parts["surface"].values,
        }  # fmt: skip
        for (name, values), at in zip(expected.items(), said["at"], strict=True):
            np.testing.assert_allclose(said[name], values, rtol=4e-3, atol=2e-3)
            np.testing.assert_allclose(at, values, rtol=4e-3, atol=2e-3)
        assert said["of"]["upper"] == pytest.approx(float(10.0 ** upper[1]), rel=4e-3)
    # Of the median of single tests the bend is most of what there is to see.
    straight = 10.0 ** Predictive(p.location, p.scale, p.degrees_of_freedom, Identity(), p.log_skewness).median()  # fmt: skip
    told = blank.evaluate(SAID, [packs, 1.0])["median"]
    assert (np.abs(np.log(told / straight)).max() > 0.1) == bent
