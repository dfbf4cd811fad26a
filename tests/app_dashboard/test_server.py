"""`serve` and `geogp app`: refusals before anything is served, and a live server."""

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from app.cli import main
from app.dashboard.server import serve, settings
from app.errors import InvalidInput
from geogp import __version__

from .conftest import LATITUDE, LONGITUDE, free_port


def test_a_missing_run_is_refused_with_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", str(tmp_path / "none"), "--port", str(free_port())]) == 3
    said = capsys.readouterr().err
    assert said.startswith("geogp: ") and "is not a run folder" in said and said.count("\n") == 1


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(ValueError, match="not a finished run") as caught:
        serve(tmp_path / "run", port=free_port())
    assert getattr(caught.value, "exit_code", None) == 3


def test_a_taken_port_is_refused_at_once(run_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidInput, match="another --port"):
            serve(run_path, port=taken.getsockname()[1])


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_does_not_exist(run_path: Path, port: int) -> None:
    with pytest.raises(InvalidInput, match="1 to 65535"):
        serve(run_path, port=port)


def test_nothing_is_reported_to_anyone() -> None:
    chosen = settings("127.0.0.1", 8501)
    assert chosen["browser.gatherUsageStats"] is False
    assert chosen["server.address"] == "127.0.0.1"
    assert chosen["client.showErrorLinks"] is False


def test_the_log_tells_version_and_failures_and_no_request() -> None:
    chosen = settings("127.0.0.1", 8501)
    assert (
        chosen["logger.messageFormat"].startswith(f"geogp {__version__}")
        and chosen["logger.level"] == "warning"
    )


def get(address: str) -> tuple[bytes, dict[str, str]]:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read(), {k.lower(): v for k, v in answer.headers.items()}


def test_streamlit_and_our_routes_share_one_origin(server: str) -> None:
    page, headers = get(server + "/")
    assert b"geogpPage(" in page and b"Streamlit" not in page
    assert "connect-src 'self'" in headers["content-security-policy"]
    value, headers = get(f"{server}/geogp/history?lat={LATITUDE}&lon={LONGITUDE}")
    assert [row["quarter"] for row in json.loads(value)] == ["2023Q3", "2023Q4"]
    assert "default-src 'none'" in headers["content-security-policy"]
    page, headers = get(server + "/pages/place")
    assert b"<title>Streamlit</title>" in page
    assert "default-src 'self'" in headers["content-security-policy"]
    assert get(server + "/pages/_stcore/health")[0] == b"ok"


@pytest.mark.parametrize(
    "path", ["/wp-admin", "/pages/nothing", "/_stcore/health", "/geogp/nothing", "/place"]
)
def test_nothing_is_answered_where_nothing_is(server: str, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(server + path)
    assert caught.value.code == 404
    caught.value.close()


@pytest.mark.parametrize("path", ["/", "/geogp/history", "/pages/place", "/pages/_stcore/host-config"])
def test_another_name_for_this_machine_is_turned_away(server: str, path: str) -> None:
    """A page elsewhere can have its own name resolve to 127.0.0.1: then it would read the maps."""
    asked = urllib.request.Request(server + path, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as caught, urllib.request.urlopen(asked, timeout=30):
        pass
    assert caught.value.code == 421
    caught.value.close()
