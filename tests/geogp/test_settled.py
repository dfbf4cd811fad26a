"""When a search for what makes all rows likely ends."""

from scipy.optimize import OptimizeResult

from geogp.field.likelihood import together


def passes(reached, *, wanted=0.0, start=10.0):
    """After how many it ends; None where the last of them does not end it."""
    after = together._until_settled([start], wanted)
    for done, loss in enumerate(reached, start=1):
        try:
            after(OptimizeResult(fun=loss))
        except StopIteration:
            return done
    return None


def test_a_search_ends_where_two_passes_gain_next_to_nothing():
    assert passes([9.0, 8.0, 7.9, 7.899, 7.898, 7.897]) == 5
    assert passes([9.0 - 0.1 * i for i in range(12)]) is None


def test_it_ends_where_the_first_passes_promise_too_little():
    steady = [9.0 - 0.1 * i for i in range(12)]  # 1.7 nats after eight
    assert passes(steady, wanted=6.0) is None
    assert passes(steady, wanted=8.0) == together.GIVEN_UP_AFTER
