import torch

from app.dashboard.remembering import ROWS, Remembering
from geogp import GPRegressor


class Counting:
    def __init__(self, engine) -> None:
        self.engine, self.rows, self.plan = engine, [], engine.plan

    def moments(self, X, counts=None):
        self.rows.append(len(X))
        return self.engine.moments(X, counts)


def test_the_same_question_is_answered_once(fitted: tuple[GPRegressor, object]) -> None:
    counting = Counting(fitted[0].engine_)
    engine = Remembering(counting)  # type: ignore[arg-type]
    X = torch.rand(ROWS, 3, dtype=torch.float64)
    first, again = engine.moments(X, torch.ones(ROWS)), engine.moments(X.clone(), torch.ones(ROWS))
    assert again is first and counting.rows == [ROWS]
    engine.moments(X, 2 * torch.ones(ROWS))
    engine.moments(X)
    engine.moments(X + 1e-9, torch.ones(ROWS))
    assert counting.rows == [ROWS] * 4
    assert engine.plan is counting.plan


def test_small_questions_are_not_kept_and_memory_is_bounded(fitted: tuple[GPRegressor, object]) -> None:
    counting = Counting(fitted[0].engine_)
    engine = Remembering(counting, most_bytes=3 * 16 * ROWS)  # type: ignore[arg-type]
    for _ in range(2):
        engine.moments(torch.zeros(10, 3, dtype=torch.float64))
    assert counting.rows == [10, 10]
    for k in range(6):
        engine.moments(torch.full((ROWS, 3), float(k), dtype=torch.float64))
    assert len(engine._known) == 3 and engine._held <= 3 * 16 * ROWS
