"""One method on one case, in this process: fit, predict, score, time, memory."""

import time
from pathlib import Path
from typing import Any

import geogp  # before torch: sets how OpenMP waits
from app.peers import PEERS, peer
from app.workflow.machine import peak_rss_mb
from benchmarks import clouds
from benchmarks.cases import CASES, Problem, facts_of
from geogp.estimator import GPRegressor
from geogp.methods import METHODS
from geogp.scores import score, score_strata

assert geogp
#: Rows of a trial, and its share of the usual training.
QUICK_TRAIN, QUICK_TEST, QUICK_EFFORT = 3000, 1000, 0.05
#: Settings that a case's table names, beside the defaults.
SETTINGS: dict[str, dict[str, Any]] = {"softki": {"rank": 512}}


def known(name: str) -> bool:
    """Whether a method is a row of ours or a peer's."""
    return name in METHODS or name in PEERS


def measure(case: str, name: str, data: Path, *, quick: bool, device: str, seed: int = 0) -> dict[str, Any]:
    """Fit and score: a JSON-able row.

    Raises
    ------
    Absent
        the case's data are not there.
    """
    about = CASES[case]
    problem = about.load(data)
    if quick:
        problem = problem.thinned(QUICK_TRAIN, QUICK_TEST)
    before_mb = peak_rss_mb()
    started, cpu = time.perf_counter(), time.process_time()
    fitted, facts = _fit(name, problem, quick=quick, device=device, seed=seed)
    fit_seconds = time.perf_counter() - started
    X, y, counts = problem.test
    asked = time.perf_counter()
    predictive = fitted.predictive(X, counts)
    predictive.interval(0.95)
    predict_seconds = time.perf_counter() - asked
    cpu_seconds = time.process_time() - cpu
    scale = {"target_mean": float(problem.train[1].mean()), "target_sd": float(problem.train[1].std())}
    row: dict[str, Any] = {
        "case": case, "method": name, "ours": name in METHODS, "quick": quick, "device": device, "seed": seed,
        **facts_of(problem), "fit_seconds": round(fit_seconds, 2), "predict_seconds": round(predict_seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2), "peak_rss_mb": round(peak_rss_mb(), 1),
        "data_rss_mb": round(before_mb, 1), **scale, "scores": score(predictive, y, **scale),
        "strata": score_strata(predictive, y, problem.strata, **scale), "facts": facts,
    }  # fmt: skip
    if about.scoring == "published":
        row["published"] = clouds.published_scores(predictive, y)
    return row


def _fit(name: str, problem: Problem, *, quick: bool, device: str, seed: int) -> tuple[Any, dict[str, Any]]:
    X, y, counts = problem.train
    if name in PEERS:
        fitted = peer(name).fit(
            X, y, counts, problem.validation, seed=seed, device=device, effort=QUICK_EFFORT if quick else 1.0
        )
        return fitted, dict(fitted.facts)
    options: dict[str, Any] = {"target_transform": "identity", **SETTINGS.get(name, {})}
    if quick:
        options["steps"] = 200
    model = GPRegressor(
        name,
        spatial=(0, 1) if problem.position else None,
        time=problem.time,
        device=device,
        random_state=seed,
        **options,
    )
    model.fit(X, y, counts, validation=problem.validation)
    return model, {"spread": model.engine_.spread}
