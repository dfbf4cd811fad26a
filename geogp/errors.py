"""The errors that callers catch. Everything else is a ValueError or a bug."""


class InvalidInput(ValueError):
    """Bad data or a bad file: one sentence that says what was wrong, what was got, what to do."""

    exit_code = 3


class ImpossibleCombination(ValueError):
    """Two choices of the method table that cannot work together; the message names both."""

    exit_code = 2


class NumericalFailure(ArithmeticError):
    """A factorisation or an optimisation that failed even after its bounded remedies."""

    exit_code = 1


class NotDistanceAware(UserWarning):
    """A method whose latent sd does not return to the prior far from data has been fitted."""
