"""What a reproduction returns: a table of ours beside the paper's, notes, and lines to draw."""

from dataclasses import asdict, dataclass, field

#: What a paper's deep basis kernels do not do and ours do; said wherever these stand beside printed numbers.
READING = (
    "Unlike the paper's, our DBKs take their spread from validation rows (a factor on the weights' covariance, one on the "
    "noise) and, where these rows ask for it, read new observations as Student-t; SVGP, PPGP and VBLL rows do neither."
)


@dataclass(frozen=True)
class Line:
    """y over x, with an optional half-width of a band; `points` for rows of data rather than a curve."""

    label: str
    x: list[float]
    y: list[float]
    band: list[float] | None = None
    points: bool = False


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Result:
    """A table or figure of a paper, reproduced.

    columns, rows : numbers ours beside the paper's (NaN where the paper prints none)
    notes : what differs, and where a printed setting cannot give its printed number
    panels : what the figure shows
    """

    name: str
    title: str
    columns: list[str]
    rows: list[list]
    notes: list[str] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)

    def to_dict(self) -> dict:
        """Plain lists and numbers."""
        return asdict(self)

    def markdown(self) -> str:
        """The table and its notes."""
        lines = [
            f"# {self.title}",
            "",
            "| " + " | ".join(self.columns) + " |",
            "|" + "---|" * len(self.columns),
        ]
        lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
