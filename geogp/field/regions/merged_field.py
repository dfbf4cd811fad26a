"""A field of many rows as overlapping regions: each a local field of its own, merged without seams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.field.local_field import LocalField
from geogp.field.noise.fit import Validation
from geogp.field.observations import canonical, counted
from geogp.field.options import FieldOptions
from geogp.field.predict.blend import blended
from geogp.field.predict.moments import FieldMoments, by_pieces
from geogp.field.regions.cuts import Cuts
from geogp.field.regions.fit import Task, fit_region
from geogp.field.regions.joint import MergedJoint, Part
from geogp.field.regions.rows import Rows
from geogp.field.stages import Stages
from geogp.transforms import Warp


@dataclass(frozen=True, eq=False, repr=False)
class MergedField:
    """Local fields of overlapping regions that answer as one `LocalField` would; X (N, D) are raw inputs throughout.

    Metric, spacing, plane, trend, kernel, noise and calibration are each region's own. Near a cut the regions on both sides
    are asked, and their answers blended by weights that depend on the place alone and change smoothly; elsewhere the answer
    is one region's, to the bit. See `Cuts` and `blended`.

    rows : all that is known
    cuts : of the cells
    fields : one for each cell, told of the rows in it and around it
    time : the column with time, or None

    Examples
    --------
    >>> X = torch.rand(2100, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> options = FieldOptions(steps=2, epochs=1, n_targets=100, hidden=4, metric=False, region_rows=2000)
    >>> field = MergedField.fit(X, torch.sin(5 * X[:, 0]), None, options=options)
    >>> len(field.fields), field.moments(X[:3]).latent_variance.shape
    (2, torch.Size([3]))
    """

    rows: Rows
    cuts: Cuts
    fields: tuple[LocalField, ...]
    time: int | None = None
    #: None: one scale for regions of which each has its own is still to be found.
    warp: ClassVar[Warp | None] = None

    # -- fitting -----------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        X: Tensor,
        y: Tensor,
        counts: Tensor | None,
        *,
        space: tuple[int, ...] = (0, 1),
        time: int | None = None,
        options: FieldOptions,
        validation: Validation | None = None,
        device: str = "cpu",
        stages: Stages | None = None,
    ) -> Self:
        """`LocalField.fit` of each region in turn, to about `options.region_rows` rows and those around.

        A validation row is given to the region that weighs most there.

        Notes
        -----
        What the regions' fits cost, about half as many rows again as there are, in the memory of one; independent of the
        order of the rows.
        """
        stages = stages or Stages()
        rows = Rows(*canonical(X, y, counts, space, time))
        cuts = Cuts.over(rows.X.numpy(), space, options.n_regions(len(rows)))
        held = _dealt(cuts, validation)

        def fit(k: int, mine: NDArray[np.int64]) -> LocalField:
            stages.tell(f"region {k + 1} of {cuts.n}")
            task = Task(rows.at(mine), held[k], space, time, options, device)
            return fit_region(task, stages, f"region{k}")

        members = cuts.members(rows.X.numpy(), options.neighbours)
        return cls(rows, cuts, tuple(map(fit, range(cuts.n), members)), time)

    # -- predicting --------------------------------------------------------------------------------

    def moments(self, X: Tensor, counts: Tensor | None = None) -> FieldMoments:
        """`LocalField.moments`, of the regions that weigh anything at each place."""
        return self.moments_by_count(X, [counts])[0]

    def moments_by_count(self, X: Tensor, counts: Sequence[Tensor | None]) -> list[FieldMoments]:
        """`moments` at X for each of several (N,) counts, at about the cost of one."""
        n = [counted(each, len(X)) for each in counts]
        return by_pieces(
            lambda rows: self._moments(X[rows].double(), [each[rows] for each in n]),
            X[:, list(self.space)],
            self.fields[0].known.device,
        )

    def _moments(self, X: Tensor, counts: list[Tensor]) -> list[FieldMoments]:
        if not len(X):
            return [self._alike(m) for m in self.fields[0].moments_by_count(X, counts)]
        asked = list(self._asked(X))
        place, weight = (torch.cat(column) for column in zip(*((rows, w) for _, rows, w in asked)))
        said = zip(*(field.moments_by_count(X[rows], [n[rows] for n in counts]) for field, rows, _ in asked))
        return [
            blended(FieldMoments.together(list(map(self._alike, each))), place, weight, len(X))
            for each in said
        ]

    def _alike(self, m: FieldMoments) -> FieldMoments:
        """What a region says, with a second peak where any region has one."""
        two = any(field.noise is not None and field.noise.peak for field in self.fields)
        return m.with_peak() if two else m

    def _asked(self, X: Tensor) -> Iterator[tuple[LocalField, Tensor, Tensor]]:
        """The regions that weigh anything at X, in order, with the numbers of those rows and the weights there."""
        return ((field, rows, w) for field, (rows, w) in zip(self.fields, self._shares(X)) if len(rows))

    def _shares(self, X: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Of each region the numbers of rows where it weighs anything, and its weights there."""
        return [(torch.from_numpy(r), torch.from_numpy(w)) for r, w in self.cuts.shares(X.double().numpy())]

    def prior_variance(self, X: Tensor) -> Tensor:
        """Before neighbours, (N,): the weighted mean of what regions have there."""
        out = torch.zeros(len(X), dtype=torch.float64)
        for field, rows, weight in self._asked(X):
            out[rows] += weight * field.prior_variance(X[rows])
        return out

    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        """Before neighbours, (N, M): Σ √(w(x) w(x_ref)) k(x, x_ref) over the regions that weigh anything at both."""
        out = torch.zeros(len(X), len(X_ref), dtype=torch.float64)
        for field, (rows, weight), (others, theirs) in zip(self.fields, self._shares(X), self._shares(X_ref)):
            if len(rows) and len(others):
                scale = weight.sqrt()[:, None] * theirs.sqrt()
                out[rows[:, None], others] += scale * field.prior_covariance(X[rows], X_ref[others])
        return out

    # -- joint distributions -------------------------------------------------------------------------

    def joint(self, X: Tensor, latent_variance: Tensor) -> MergedJoint:
        """The surface less its mean at X, jointly, its variances the (N,) that `moments` gave."""
        parts = [(rows, w, field.joint(X[rows], latent_variance[rows])) for field, rows, w in self._asked(X)]
        return MergedJoint.of(
            [Part(rows.numpy(), w.numpy(), joint) for rows, w, joint in parts],
            latent_variance.double().numpy(),
        )

    def correlation(self, before: Tensor, after: Tensor, variance: Tensor) -> Tensor:
        """Of the surface's errors at rows `before` and `after` (N, D), the same places at two times, whose latent
        variances (2, N) `moments` gave: (N,), the weighted mean of the regions'."""
        out = torch.zeros(len(before), dtype=torch.float64)
        for field, rows, weight in self._asked(before):
            out[rows] += weight * field.correlation(before[rows], after[rows], variance[:, rows])
        return out

    def posterior_covariance(self, X: Tensor, counts: Tensor | None = None) -> Tensor:
        """Covariance of the surface at X given the data: (N, N), its diagonal that of `moments` at these counts."""
        return torch.from_numpy(self.joint(X, self.moments(X, counts).latent_variance).dense())

    # -- observations --------------------------------------------------------------------------------

    @property
    def seen(self) -> Rows:
        """All that is known."""
        return self.rows

    def observations(self, X: Tensor, y: Tensor, counts: Tensor | None) -> Rows:
        """Rows X (M, D), y (M,), counts (M,) as this field is told of them."""
        return Rows(X.double(), y.double(), counted(counts, len(y)))

    def conditioned_on(self, seen: Rows) -> Self:
        """This field, all that it learned and its cuts kept, that knows these rows instead of its own.

        The result does not depend on their order. Each region knows those in its cell and around, the nearest ones where
        there are too few. Cost: a neighbour search for each region.
        """
        rows = Rows(*canonical(seen.X, seen.y, seen.counts, self.cuts.space, self.time))
        least = self.fields[0].known.options.neighbours

        def told(field: LocalField, mine: NDArray[np.int64]) -> LocalField:
            own = rows.at(mine)
            return field.conditioned_on(field.observations(own.X, own.y, own.counts))

        fields = map(told, self.fields, self.cuts.members(rows.X.numpy(), least))
        return replace(self, rows=rows, fields=tuple(fields))

    def observed_times(self) -> NDArray[np.float64] | None:
        """The time of each observation, as X had it: (n,), or None without a time."""
        return None if self.time is None else self.rows.X[:, self.time].numpy()

    def observed_rows(self) -> NDArray[np.float64]:
        """The inputs of each observation, as X had them: (n, D)."""
        return self.rows.X.numpy().copy()

    @property
    def knows_time(self) -> bool:
        """Whether the rows of each region lay at more than one time, so that it can be told of others."""
        return all(field.knows_time for field in self.fields)

    @property
    def space(self) -> tuple[int, ...]:
        """The columns of X with the places."""
        return self.cuts.space

    # -- state -----------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON-able facts from which `from_state` restores the field; those of region k begin with "regionk."."""
        tensors = {f"rows.{name}": getattr(self.rows, name) for name in ("X", "y", "counts")}
        regions = []
        for k, field in enumerate(self.fields):
            own, facts = field.state()
            tensors |= {f"region{k}.{name}": value for name, value in own.items()}
            regions.append(facts)
        return tensors, {"cuts": self.cuts.facts(), "time": self.time, "regions": regions}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any], *, device: str = "cpu") -> Self:
        """The field that `state` described."""
        cuts = Cuts.from_facts(facts["cuts"])
        if len(facts["regions"]) != cuts.n:
            raise ValueError("its cells and its regions differ in number")

        def opened(k: int, own: dict[str, Any]) -> LocalField:
            start = f"region{k}."
            mine = {n.removeprefix(start): v for n, v in tensors.items() if n.startswith(start)}
            return LocalField.from_state(mine, own, device=device)

        rows = Rows(tensors["rows.X"], tensors["rows.y"], tensors["rows.counts"])
        return cls(rows, cuts, tuple(map(opened, range(cuts.n), facts["regions"])), facts["time"])


def _dealt(cuts: Cuts, validation: Validation | None) -> list[Validation | None]:
    """The validation rows of each region: those where it weighs most."""
    if validation is None:
        return [None] * cuts.n
    X, y, counts = validation
    best, of = np.zeros(len(X)), np.zeros(len(X), dtype=np.int64)
    for k, (rows, weight) in enumerate(cuts.shares(X.double().numpy())):
        more = weight > best[rows]
        best[rows[more]], of[rows[more]] = weight[more], k
    return [(X[of == k], y[of == k], None if counts is None else counts[of == k]) for k in range(cuts.n)]
