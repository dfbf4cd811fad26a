"""Planes in the making: one at a time, the latest first, what nobody waits for ended, what is ahead in nobody's way."""

import threading
from collections.abc import Callable

import pytest

from app.dashboard.making import Job, Making, Superseded, answer

WAIT = 20


class Slow:
    """Makes an answer in steps, each when it is let."""

    def __init__(self) -> None:
        self.begun: list[str | None] = []
        self.steps = threading.Semaphore(0)
        self.started = threading.Semaphore(0)
        self.making = Making(self.make)

    def make(self, key: str | None, step: Callable[[int, int], None]) -> str:
        self.begun.append(key)
        self.started.release()
        for k in range(3):
            assert self.steps.acquire(timeout=WAIT)
            step(k + 1, 3)
        return f"made {key}"

    def let(self, n: int = 1000) -> None:
        self.steps.release(n)

    def begin(self, key: str, *, ahead: bool = False) -> Job[str]:
        job = self.making.want(key, ahead=ahead)
        assert self.started.acquire(timeout=WAIT)
        return job


def done(job: Job[str]) -> str:
    assert job.over.wait(WAIT)
    return answer(job)


def test_what_is_asked_for_twice_is_made_once() -> None:
    slow = Slow()
    jobs = [slow.begin("a"), slow.making.want("a")]
    slow.let()
    assert [done(job) for job in jobs] == ["made a", "made a"] and slow.begun == ["a"]


def test_the_latest_comes_first_and_those_left_are_never_begun() -> None:
    slow = Slow()
    first = slow.begin("1")
    others = [slow.making.want(key) for key in "2345"]
    for job in [first, *others[:-1]]:
        slow.making.leave(job)
    last = others[-1]
    slow.let()
    assert done(last) == "made 5"
    assert slow.begun == ["1", "5"]  # the first was begun, and ended at its next step
    with pytest.raises(Superseded):
        done(others[0])
    with pytest.raises(Superseded):
        done(first)


def test_what_is_made_ahead_steps_aside_and_is_made_later() -> None:
    slow = Slow()
    ahead = slow.begin("next", ahead=True)
    asked = slow.making.want("now")
    slow.let()
    assert done(asked) == "made now" and done(ahead) == "made next"
    assert slow.begun == ["next", "now", "next"]


def test_what_is_asked_for_is_not_ended_for_another() -> None:
    slow = Slow()
    first = slow.begin("a")
    second = slow.making.want("b")
    slow.let()
    assert done(first) == "made a" and done(second) == "made b" and slow.begun == ["a", "b"]


def test_progress_is_told_of_each() -> None:
    slow = Slow()
    job = slow.begin("a")
    slow.making.want("b")
    assert slow.making.progress("a")[0] == "Computing the map"
    assert slow.making.progress("b")[0] == "Waiting to compute the map"
    assert slow.making.progress("c") == ("", 0, 0)
    slow.let()
    done(job)


def test_a_failure_is_told_and_the_next_is_made() -> None:
    def make(key: str | None, step: object) -> str:
        if key == "bad":
            raise ValueError("no such quarter")
        return "made"

    making = Making(make)
    with pytest.raises(ValueError, match="no such quarter"):
        done(making.want("bad"))
    assert done(making.want("good")) == "made"
