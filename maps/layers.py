"""What can be drawn: one entry per layer of a prediction Dataset.

To add a layer, add an entry to `LAYERS`: nothing else is edited. It then is in `bands`, figures, pages, the
dashboard's list, exports and `ds.geogp`. A layer that follows from variables of the Dataset says how in `derive`.

Layers of one *quantity* share a unit, a scale and one legend, so that the eye can compare them.
"""

import inspect
import re
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from maps.derived import Formula
from maps.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Layer:
    """How one Dataset variable is named, explained, coloured and listed.

    `title` and `about` may use {target}, {of}, {surface}, {scale}, {level}, {tail}, {unit} and {threshold}; `short` is for
    a narrow list.

    Examples
    --------
    A new layer, the ratio of the interval's ends, is this entry and no more:

    >>> factor = Layer(
    ...     title="Ratio of the ends of the {level} prediction interval",
    ...     short="How sure, as a factor",
    ...     about="upper divided by lower end, for new {of}",
    ...     quantity="factor", colours="lajolla_r", scale="log", group="How sure",
    ...     heading="factor", listed=45, by_level=True, derive=lambda lower, upper: upper / lower,
    ... )
    >>> factor.needs
    ('lower', 'upper')
    """

    title: str
    short: str
    about: str
    quantity: str  # layers of one quantity share a legend
    colours: str  # a cmcrameri map; layers of quantity VALUES take the Dataset's `target_colours` where it has them
    scale: Literal["log", "linear"]
    group: str  # heading in a list of layers
    limits: tuple[float, float] | None = None  # fixed ends of the legend, or None: from the data
    from_zero: bool = False  # the legend starts at 0
    about_zero: bool = False  # the legend is as long below 0 as above
    central: bool = False  # the legend is made for this layer; intervals' ends stretch it only half way
    heading: str = ""  # over the legend of a pure number
    steps: int | None = None  # a page keeps so many between the limits; None: 4094 between the data's ends
    listed: int | None = None  # place in the short lists of dashboard and page; None: not in them
    embedded: bool = True  # if listed, also in a page where none is named; each costs a byte a pixel
    by_level: bool = False  # its values change with the level of the intervals
    by_threshold: bool = False  # one plane for each threshold
    of_surface: bool = False  # describes the surface, at the run's reference count, not new measurements
    judged: bool = False  # its colours say good and bad: reversed where `target_better` is "lower", others where it is ""
    derive: Formula | None = None  # computes it from the variables that its parameters name
    unit: str = "1"  # of a derived layer; "target" for the target's own

    @property
    def needs(self) -> tuple[str, ...]:
        """The variables that a derived layer is computed from."""
        return () if self.derive is None else tuple(inspect.signature(self.derive).parameters)

    @property
    def dims(self) -> tuple[str, ...]:
        return ("threshold", "y", "x") if self.by_threshold else ("y", "x")


VALUES = "level"  # the quantity of layers that hold what to expect of the target itself
ENDS = (
    "ends"  # of the ends of its intervals, far wider: in one legend with them what to expect has one colour
)
SLICE, CHANGE, AT_ONCE = "Kernel slice", "What changed", "All at once"
#: Headings in the order of a list; others come after them.
GROUPS = ("What to expect", "How likely", "How sure", "The surface itself", CHANGE, AT_ONCE, SLICE)

LAYERS: dict[str, Layer] = {
    "median": Layer(
        title="Median {target}",
        short="Median",
        about="half of new {of} lie above this value",
        quantity=VALUES,
        colours="batlow",
        scale="log",
        group="What to expect",
        central=True,
        listed=10,
    ),
    "mean": Layer(
        title="Mean {target}",
        short="Mean",
        about="the average of new {of}, values held within the range of the training data, beyond it to their middle half",
        quantity=VALUES,
        colours="batlow",
        scale="log",
        group="What to expect",
        central=True,
        listed=100,
        embedded=False,
    ),
    "lower": Layer(
        title="Lower end of the {level} prediction interval",
        short="Lower bound",
        about="{tail} of new {of} fall below this",
        quantity=ENDS,
        colours="batlow",
        scale="log",
        group="How sure",
        listed=40,
        by_level=True,
    ),
    "upper": Layer(
        title="Upper end of the {level} prediction interval",
        short="Upper bound",
        about="{tail} of new {of} lie above this",
        quantity=ENDS,
        colours="batlow",
        scale="log",
        group="How sure",
        listed=50,
        by_level=True,
    ),
    "pi_width": Layer(
        title="Width of the {level} prediction interval",
        short="Interval width",
        about="upper minus lower end, for new {of}",
        quantity="width",
        colours="lajolla_r",
        scale="log",
        group="How sure",
        listed=20,
        by_level=True,
    ),
    "latent_median": Layer(
        title="Median of the {target} surface",
        short="Surface median",
        about="the surface itself, the level of {surface}, without their noise",
        of_surface=True,
        quantity=VALUES,
        colours="batlow",
        scale="log",
        group="The surface itself",
        central=True,
        listed=70,
        embedded=False,
    ),
    "latent_lower": Layer(
        title="Lower end of the surface's {level} credible interval",
        short="Surface lower",
        about="for the surface itself, the level of {surface}, not for a new one",
        of_surface=True,
        quantity=ENDS,
        colours="batlow",
        scale="log",
        group="The surface itself",
        by_level=True,
    ),
    "latent_upper": Layer(
        title="Upper end of the surface's {level} credible interval",
        short="Surface upper",
        about="for the surface itself, the level of {surface}, not for a new one",
        of_surface=True,
        quantity=ENDS,
        colours="batlow",
        scale="log",
        group="The surface itself",
        by_level=True,
    ),
    "latent_sd": Layer(
        title="Standard deviation of the surface",
        short="Surface sd",
        about="how well the surface, the level of {surface}, is known, on the model's scale ({scale})",
        of_surface=True,
        quantity="sd",
        colours="lajolla_r",
        scale="linear",
        group="The surface itself",
        from_zero=True,
        heading="sd",
        listed=80,
    ),
    "noise_sd": Layer(
        title="Standard deviation of the noise",
        short="Noise sd",
        about="scatter of new {of} about the surface, on the model's scale ({scale})",
        quantity="sd",
        colours="lajolla_r",
        scale="linear",
        group="How sure",
        from_zero=True,
        heading="sd",
        listed=90,
    ),
    "explained": Layer(
        title="Share explained by the data",
        short="Explained by data",
        about="1 - latent variance / prior variance: 1 where the map is data, 0 where it is only the prior",
        of_surface=True,
        quantity="share",
        colours="davos_r",
        scale="linear",
        group="How sure",
        limits=(0.0, 1.0),
        heading="share",
        steps=1001,
        listed=60,
    ),
    "exceedance": Layer(
        title="Probability that {target} exceeds {threshold} {unit}",
        short="P(> {threshold} {unit})",
        about="for new {of}",
        quantity="probability",
        colours="vik_r",
        scale="linear",
        group="How likely",
        limits=(0.0, 1.0),
        heading="probability",
        steps=1001,
        listed=30,
        by_threshold=True,
        judged=True,  # exceeding is good, red where it is unlikely; where lower is better it is bad
    ),
    "either_missed": Layer(
        title="Probability that either of two targets misses its limit",
        short="P(either missed)",
        about="of the surfaces of two runs, their errors counted together; `either_missed` of the file names the limits",
        of_surface=True,
        quantity="shortfall",
        colours="vik",
        scale="linear",
        group="How likely",
        limits=(0.0, 1.0),
        heading="probability",
        steps=1001,
    ),
    "change": Layer(
        title="Change of {target}",
        short="Change",
        about="median of what {surface} differ by, the later less the earlier (run: second less first)",
        of_surface=True,
        quantity="change",
        colours="vik_r",
        scale="linear",
        group=CHANGE,
        about_zero=True,
        central=True,
        judged=True,
    ),
    "change_lower": Layer(
        title="Lower end of the {level} credible interval of the change",
        short="Change, lower",
        about="{tail} of what the change may be lies below this",
        of_surface=True,
        quantity="change",
        colours="vik_r",
        scale="linear",
        group=CHANGE,
        about_zero=True,
        by_level=True,
        judged=True,
    ),
    "change_upper": Layer(
        title="Upper end of the {level} credible interval of the change",
        short="Change, upper",
        about="{tail} of what the change may be lies above this",
        of_surface=True,
        quantity="change",
        colours="vik_r",
        scale="linear",
        group=CHANGE,
        about_zero=True,
        by_level=True,
        judged=True,
    ),
    "improved": Layer(
        title="Probability that {target} has {improved} by at least {threshold} {unit}",
        short="P({improved} by {threshold} {unit})",
        about="of {surface}, between two quarters or two runs",
        of_surface=True,
        quantity="improvement",
        colours="vik_r",
        scale="linear",
        group=CHANGE,
        limits=(0.0, 1.0),
        heading="probability",
        steps=1001,
        by_threshold=True,
    ),
    "excursion": Layer(
        title="Joint probability beyond {threshold} {unit}",
        short="All beyond {threshold} {unit}",
        about="the largest probability of a set that holds the pixel to lie beyond everywhere at once; of {surface}",
        of_surface=True,
        quantity="at once",
        colours="davos_r",
        scale="linear",
        group=AT_ONCE,
        limits=(0.0, 1.0),
        heading="probability",
        steps=1001,
        by_threshold=True,
    ),
    "excursion_set": Layer(
        title="Excursion set beyond {threshold} {unit}",
        short="Set beyond {threshold} {unit}",
        about="1 where {surface} lies beyond everywhere at once with the probability {level}",
        of_surface=True,
        quantity="membership",
        colours="davos_r",
        scale="linear",
        group=AT_ONCE,
        limits=(0.0, 1.0),
        heading="1: in the set",
        by_level=True,
        by_threshold=True,
    ),
    "covariance": Layer(
        title="Kernel slice: covariance with the reference point",
        short="Covariance",
        about="k(x, reference) on the model's scale ({scale}): how the surface varies with the reference point",
        of_surface=True,
        quantity="covariance",
        colours="vik",
        scale="linear",
        group=SLICE,
        about_zero=True,
    ),
    "correlation": Layer(
        title="Kernel slice: correlation with the reference point",
        short="Correlation",
        about="k(x, reference) / sd(x) sd(reference): what the model thinks is similar to the reference point",
        of_surface=True,
        quantity="correlation",
        colours="vik",
        scale="linear",
        group=SLICE,
        limits=(-1.0, 1.0),
    ),
}

#: Layers that only a page of distributions has, beside those of `LAYERS`.
WITHIN = Layer(
    title="How sure: a factor either way",
    short="How sure, as a factor",
    about="at least {level} of new {of} lie between the median divided by this and the median times this",
    quantity="within",
    colours="lajolla_r",
    scale="log",
    group="How sure",
    by_level=True,
)
MEASURED = Layer(
    title="Distance to the nearest measured {place}",
    short="Measured {place}s",
    about="how far away the nearest {place} is where anybody measured, at any time",
    quantity="distance",
    colours="oslo",
    scale="log",
    group="How sure",
    unit="km",
)


def listed() -> list[str]:
    """The layers of the short lists of dashboard and page, in their order.

    >>> listed()[:4]
    ['median', 'pi_width', 'exceedance', 'lower']
    """
    places = {key: layer.listed for key, layer in LAYERS.items() if layer.listed is not None}
    return sorted(places, key=places.__getitem__)


def help_list() -> str:
    """The layers of a prediction, for a help text."""
    return ", ".join(key for key, layer in LAYERS.items() if layer.group not in (SLICE, CHANGE, AT_ONCE))


def check_names(names: Sequence[str]) -> None:
    """Refuse names that no Dataset's layer can have; one of several thresholds is named as exceedance_25.

    Raises
    ------
    InvalidInput
    """
    for name in names:
        key, _, number = name.rpartition("_")
        one = key in LAYERS and LAYERS[key].by_threshold and re.fullmatch(r"-?\d*[.]?\d+", number)
        if name not in LAYERS and not one:
            raise InvalidInput(f"There is no layer {name!r}; choose from {help_list()}.")


def available(variables: Collection[Hashable]) -> list[str]:
    """The layers of a Dataset with these variables, its own and those that follow from them, as `LAYERS` orders them.

    >>> available({"upper", "median", "other"})
    ['median', 'upper']
    """
    known = set(variables)
    for key, layer in LAYERS.items():
        if layer.derive is not None and known.issuperset(layer.needs):
            known.add(key)
    return [key for key in LAYERS if key in known]
