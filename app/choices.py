"""The names that the command line shows and, like run.toml, holds people to."""

from typing import TYPE_CHECKING, Literal, TypeAlias

from geogp.targets import TARGETS

if TYPE_CHECKING:
    TargetName: TypeAlias = str
else:
    TargetName = Literal[tuple(TARGETS)]
#: What may count the measurements behind a value: repeated tests of one device agree more than those of many.
CountedBy = Literal["tests", "devices", "both"]
