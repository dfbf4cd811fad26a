"""`--counts devices|both`: another count than tests behind the noise, the same from the fit to its scores."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from app.errors import InvalidInput
from app.workflow.rows import labels, read_rows
from geogp.run import load


def test_devices_or_both_count_the_measurements(table):
    tests, devices, both = (read_rows(table, "download", c).counts for c in ("tests", "devices", "both"))
    assert (devices <= tests).all() and (devices < tests).any()
    np.testing.assert_allclose(both, np.sqrt(tests * devices))
    with pytest.raises(InvalidInput, match="one of tests, devices, both; got 'visits'"):
        read_rows(table, "download", "visits")


def test_a_table_without_devices_says_so(table, tmp_path):
    bare = tmp_path / "bare.parquet"
    whole = pq.read_table(table)
    pq.write_table(whole.drop_columns(["devices"]), bare)
    with pytest.raises(InvalidInput, match=r"has no devices to count by; take --counts tests"):
        read_rows(bare, "download", "both")


def test_the_run_remembers_what_it_counted_by(cli, table, tmp_path, kernels_in_parts):
    run = tmp_path / "run"
    quick = "options={n_targets=300, steps=8, epochs=2, metric=false}"
    plain = ("--method", "local-gp", "--split", "random", "--set", quick)
    assert cli("fit", table, "--counts", "devices", *plain, "-o", run, "-q").code == 0
    facts = json.loads((run / "run.json").read_text())
    assert facts["counts"] == facts["arguments"]["counts"] == "devices"
    rows = read_rows(table, "download", "devices")
    document = json.loads(cli("evaluate", run, "--json").out)
    single = document["certificate"]["groups"]["devices 1"]["n"]
    assert single == int((rows.counts[labels(load(run), "test") & rows.usable] == 1).sum())
