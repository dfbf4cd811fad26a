"""What can be chosen about a local field, and the kernel its fit starts from."""

import math
from dataclasses import dataclass
from numbers import Integral

import torch

from geogp.errors import InvalidInput
from geogp.field.frame import SPACINGS, SPAN_SHARE, Frame
from geogp.field.kernel import LocalKernel
from geogp.field.mean.season import YEAR
from geogp.field.noise.members import PARTS

#: (smoothness, lengthscale in spacings, time lengthscale in spans) of each additive term: what is near and the wide
#: field. Both are smooth: a rough one takes a little of the noise for surface. What comes and goes at a place is noise:
#: nothing tells the two apart.
IN_TIME = (("matern32", 5.0, 4.0), ("matern32", 26.0, 4.0))
#: Below this many rows the smooth noise has too little to learn from; the constant one stays.
SMOOTH_FROM = 1000
#: A region may have half of the rows that are asked for: with fewer some would have no noise of their own.
LEAST_OF_A_REGION = 2 * SMOOTH_FROM
#: Lengthscale that a covariate starts with, in its standard deviations.
COVARIATE_LENGTH = 4.0
#: Over space alone all terms are rough instead where held-out rows ask for it.
IN_SPACE = (("matern32", 10.0, 1.0), ("matern32", 50.0, 1.0))
ROUGH = "matern12"
#: Along a line, what people measure is often smoother than any map.
SMOOTHER = "matern52"
#: Over time terms are exponential, which goes on with what is new each time; or smooth, as weather is from day to day.
SMOOTH_IN_TIME = "matern32"


@dataclass(frozen=True)
class FieldOptions:
    """Choices of a local field; the defaults are meant for every data set, whatever its size and units.

    neighbours : observations a prediction rests on
    components : (smoothness, lengthscale in spacings, time lengthscale in spans) of each additive term; None
        takes two, others for data in time than for data in space
    smooth : fit the smooth noise and its count shift; of fewer than 10,000 rows without time the noise may differ among up to twenty places
        besides, smoothly or with edges, where that makes all rows and those left out surely likelier; False keeps τ² + s²/n constant over space
    row_noise : observations that predictions rest on are as noisy as the places around say, else all alike but for their
        counts; together with the smooth noise
    testimony : the smooth noise sees what the neighbours measured one by one
    regional : range of the regional surface in spacings, None for no such surface
    varying : places over which lengthscale and variance of the local kernel may vary smoothly, tried and kept only
        where held-out rows gain; 0 for a stationary kernel, None for 16 of them on 10,000 rows or more without time; of 400
        to 999 rows without time both, and the noise, follow how near each other places are, where that makes all rows surely
        likelier and loses in no gap
    following : lengthscale and variance may follow what the places around say (level, busyness, density, scatter), in time,
        too; tried on 1,000 rows or more, and kept only where no kind of missing data speaks against it
    warp : new observations on a scale bent where values pile up, as single tests do at the plans that lines are sold by, where rows left
        out surely gain by it; with the smooth noise and validation rows, of one field without a basis below
    peak : a second peak of new observations, whose share, place and width differ with the surroundings, where rows left out surely
        gain by it; with the smooth noise of several members
    season : period, in the unit of time, of waves that the mean has where the means of the times surely show them; "year" is 1, or where
        times are whole numbers of months, weeks or days as many as a year has; None for none
    metric : learn in which direction the field is rougher, and how fast it changes where times are many
    n_targets : held-out rows of each kind; block_sizes : of left-out blocks, in spacings
    members, hidden, epochs : networks of the smooth noise side by side (a multiple of three), their width, and passes over
        their rows; fewer where the same rows were left out again and again (`geogp.field.noise.fit.passes`)
    steps, batch : of the kernel's fit
    region_rows : rows of a region, None for one field of all: more than so many are fitted as overlapping regions of that
        size, each a field of its own, merged without seams (`geogp.field.regions`); 2,000 or more

    Examples
    --------
    >>> FieldOptions(neighbours=24).neighbours
    24
    """

    neighbours: int = 48
    components: tuple[tuple[str, float, float], ...] | None = None
    smooth: bool = True
    row_noise: bool = True
    testimony: bool = True
    regional: float | None = 100.0
    varying: int | None = None
    following: bool = False
    warp: bool = True
    peak: bool = True
    season: float | str | None = YEAR
    metric: bool = True
    n_targets: int = 12000
    block_sizes: tuple[float, ...] = (10.0, 30.0)
    members: int = 6
    hidden: int = 48
    epochs: int = 15
    steps: int = 120
    batch: int = 128
    region_rows: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("neighbours", "n_targets", "hidden", "epochs", "steps", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise InvalidInput(f"{name} must be a whole number, at least 1; got {value!r}.")
        if self.members != 1 and (self.members < 1 or self.members % PARTS):
            raise InvalidInput(f"members is a multiple of {PARTS}, or 1; got {self.members}.")
        if not _is_period(self.season):
            raise InvalidInput(
                f"season is a period in the unit of time, such as 1 year or 12 months; got {self.season!r}: give a number above "
                f"0, {YEAR!r} for a year whatever the unit, or none for no season."
            )
        rows = self.region_rows
        if rows is not None and (type(rows) is not int or rows < LEAST_OF_A_REGION):
            raise InvalidInput(
                f"region_rows is a whole number of rows, {LEAST_OF_A_REGION} or more, for each region to have a noise of its "
                f"own; got {rows!r}: take more, or leave it out for one field."
            )

    def is_smooth(self, n_rows: int) -> bool:
        """Whether so many rows can tell a noise that differs from place to place."""
        return self.smooth and n_rows >= SMOOTH_FROM

    def n_regions(self, n_rows: int) -> int:
        """How many regions so many rows are fitted in, 1 for one field of all."""
        return 1 if self.region_rows is None else max(1, -(-n_rows // self.region_rows))

    def starting_kernel(self, frame: Frame) -> LocalKernel:
        """The kernel before it is fitted, in the coordinates of a frame."""
        in_time = frame.time_axis is not None
        components = self.components or (IN_TIME if in_time else IN_SPACE)
        others = [COVARIATE_LENGTH] * len(frame.other_units)
        lengths = [
            [size / SPACINGS] * 2 + ([span / SPAN_SHARE] if in_time else []) + others
            for _, size, span in components
        ]
        # The wide and the lasting parts carry most; the network sees what is left either way.
        variance = [0.15] * len(components)
        return LocalKernel(
            torch.tensor(lengths, dtype=torch.float64).log(),
            torch.tensor(variance, dtype=torch.float64).log(),
            tuple(name for name, _, _ in components),
            frame.time_axis,
        )


def _is_period(season: float | str | None) -> bool:
    if season is None or isinstance(season, str):
        return season is None or season == YEAR
    return season > 0 and math.isfinite(season)
