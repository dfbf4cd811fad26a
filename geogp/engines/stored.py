"""A fitted estimator as tensors and JSON-able facts, and back: what a run folder holds, without pickle."""

from dataclasses import asdict, replace
from typing import Any

from torch import Tensor

from geogp.basis.capacity import Capacity
from geogp.engines.asked import plan_of, storable
from geogp.engines.check import engine_of
from geogp.methods import method
from geogp.transforms import from_dict, quartiles_from


def state_of(model: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a `GPRegressor`, from which `restore` fills another."""
    tensors, facts = model.engine_.state()
    plan = model.engine_.plan
    return tensors, {
        "parameters": storable(model.get_params(), plan.shape),
        "shape": asdict(plan.shape),
        "rank": plan.size.rank,
        "fourier_scales": list(plan.size.fourier_scales),
        "capacity": None if model.capacity_ is None else model.capacity_.to_dict(),
        "target_mean": model.target_mean_,
        "target_sd": model.target_sd_,
        "target_range": list(model.target_range_),
        "target_quartiles": model.target_quartiles_ and list(model.target_quartiles_),
        "time_range": model.time_range_,
        "typical_count": model.typical_count_,
        "reference_count": model.reference_count_,
        "n_rows": model.n_rows_,
        "residual": plan.row.residual,
        "without_position": "" if plan.shape.spatial else plan.row.without_position,
        "crs": model.crs_,
        "transform": model.transform_.to_dict(),
        "engine": facts,
    }


def restore(model: Any, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Fill a `GPRegressor`, made of the parameters that are stored, with what `state_of` gave."""
    n_inputs, counts = facts["shape"]["n_inputs"], facts["shape"]["has_counts"]
    carried_by = facts.get("without_position") or ""  # absent in older runs
    asked = model.get_params(deep=False)
    if method(asked["method"]).residual_of_features and asked["residual"] is None:
        asked["residual"] = facts.get("residual", "none")  # absent in older runs, which had none
    plan = plan_of(asked, n_inputs, counts, facts["n_rows"], stored=carried_by)
    model.row_ = plan.row
    model.n_features_in_ = n_inputs
    model.target_mean_, model.target_sd_ = mean, sd = facts["target_mean"], facts["target_sd"]
    scales = tuple(facts.get("fourier_scales", plan.size.fourier_scales))
    size = replace(plan.size, rank=facts["rank"], fourier_scales=scales)
    plan = replace(plan, size=size, target_mean=mean, target_sd=sd)
    model.target_range_ = tuple(facts["target_range"])
    model.target_quartiles_ = quartiles_from(facts.get("target_quartiles"))  # absent in older runs
    model.time_range_ = facts.get("time_range")  # absent in older runs
    model.typical_count_, model.n_rows_ = facts["typical_count"], facts["n_rows"]
    model.reference_count_ = facts.get("reference_count", model.typical_count_)  # the same in older runs
    model.crs_ = facts.get("crs")
    model.transform_ = from_dict(facts["transform"])
    capacity = facts.get("capacity")
    model.capacity_ = None if capacity is None else Capacity.from_dict(capacity)
    model.engine_ = engine_of(plan.row).from_state(plan, tensors, facts["engine"])
