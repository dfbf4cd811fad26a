"""What this package raises beside the errors of the three it wires together.

Every exception with an `exit_code` becomes one sentence on stderr and that exit status; others keep their traceback.
"""

from geogp.errors import InvalidInput


class Usage(ValueError):
    """Options that do not go together."""

    exit_code = 2


class Failed(RuntimeError):
    """The work ended, and its result is not good enough, or something it needs is not there."""

    exit_code = 1


class Unfinished(RuntimeError):
    """Stopped on the way with a checkpoint: the same command goes on from there."""

    exit_code = 4


class Interrupted(BaseException):
    """SIGINT or SIGTERM. Not an Exception, so that only clean-up code sees it."""

    exit_code = 130

    def __init__(self, words: str = "", *, terminated: bool = False):
        super().__init__(words)
        self.words, self.terminated = words, terminated


__all__ = ["Failed", "Interrupted", "InvalidInput", "Unfinished", "Usage"]
