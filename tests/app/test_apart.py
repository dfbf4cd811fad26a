"""Work in a process of its own: its memory, its crashes, and scripts that have no guard."""

import importlib
import os
import signal
import subprocess
import sys
import threading
from multiprocessing import active_children

import pytest

from app.commands.options import bytes_of
from app.errors import Failed, InvalidInput
from app.workflow.apart import apart
from app.workflow.machine import peak_rss_mb


@pytest.mark.parametrize(
    ("work", "arguments", "error", "words"),
    [
        (bytes_of, {"text": "lots"}, InvalidInput, "--max-memory is a size such as 2GiB; got 'lots'."),
        (importlib.import_module, {"name": "nowhere"}, Failed, "Fitting x failed: ModuleNotFoundError: No"),
        (os._exit, {"status": 7}, Failed, "Fitting x failed: it ended with status 7"),
        (os.abort, {}, Failed, "Fitting x failed: it ended with status -6"),
        (threading.Lock, {}, Failed, "Fitting x failed: TypeError: cannot pickle '_thread.lock'"),
    ],
)
def test_an_error_is_one_sentence(work, arguments, error, words, capfd):
    with pytest.raises(error) as caught:
        apart(work, "Fitting x", **arguments)
    assert str(caught.value).startswith(words)
    assert capfd.readouterr().err == ""  # what a fit says while it works is not for the leaderboard


def test_its_memory_is_its_own():
    here = b"\1" * (700 * 2**20)  # torch built for GPUs takes 500 alone
    theirs = apart(peak_rss_mb, "Measuring")
    assert theirs + 100 < len(here) / 2**20 < peak_rss_mb()  # torch and all, but not what lies here


def test_whoever_stops_the_caller_stops_it(monkeypatch):
    """An interruption is an exception in the caller, wherever it waits."""
    module = importlib.import_module("app.workflow.apart")
    waiting = []

    def interrupt(*arguments):
        waiting.extend(active_children())
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_received", interrupt)
    with pytest.raises(KeyboardInterrupt):
        apart(signal.pause, "Waiting")
    assert [child.exitcode for child in waiting] == [-signal.SIGKILL]


def test_a_script_without_a_guard_is_not_run_again(table, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "print('once', flush=True)\n"
        "from app.workflow import compare\n"
        f"found = compare({str(table)!r}, methods=['knn'], split='random')\n"
        "print(found.evaluations[0].document['method'], len(found.rows()))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "once\nknn 1\n"
