"""The fit of one region: a pure function of its rows, its options and their seed, which any process could run."""

from dataclasses import dataclass, replace

from geogp.field.local_field import LocalField
from geogp.field.noise.fit import Validation
from geogp.field.options import FieldOptions
from geogp.field.regions.rows import Rows
from geogp.field.stages import Stages, Tensors, packed, unpacked


@dataclass(frozen=True, eq=False)
class Task:
    """All that a region's fit depends on: its rows, those that it is judged by, and what `LocalField.fit` takes beside."""

    rows: Rows
    validation: Validation | None
    space: tuple[int, ...]
    time: int | None
    options: FieldOptions
    device: str


def fit_region(task: Task, stages: Stages, name: str) -> LocalField:
    """The region's field; a stage of that name, so that a fit that goes on does not fit it again."""
    rows = task.rows

    def fit(inner: Stages) -> Tensors:
        field = LocalField.fit(
            rows.X,
            rows.y,
            rows.counts,
            space=task.space,
            time=task.time,
            options=replace(task.options, region_rows=None, warp=False),
            validation=task.validation,
            device=task.device,
            stages=inner,
        )
        return packed(*field.state())

    return LocalField.from_state(*unpacked(stages.of_stages(name, fit)), device=task.device)
