"""Measured rows as tables: for the terminal and for RESULTS.md."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.cases import AT_A_GLANCE_ALONE, CASES, SECTIONS, Case
from benchmarks.targets import (
    HEATON_PUBLISHED,
    STRATUM_COVERAGE,
    TARGETS,
    UCI_PAPER,
    UCI_TARGETS,
    holds,
)

DEFAULT = "geogp"
#: Peers that stand on every set with gaps, in the table over all of them.
GLANCE = (DEFAULT, "gpboost-vecchia", "knn")
Row = dict[str, Any]
HEADER_Z = (
    "method", "NLL", "CRPS", "MAE", "RMSE", "cov. 95", "width 95", "strata outside 93-97%", "fit s", "predict s",
    "CPU s", "MB",
)  # fmt: skip
HEADER_PUBLISHED = ("method", "MAE", "RMSE", "CRPS", "INT", "CVG", "fit s", "predict s", "CPU s", "MB")
HEADER_AT_A_GLANCE = (
    "held out", "rows", "NLL", "best peer", "CRPS", "best peer", "cov. 95", "strata outside 93-97%",
)  # fmt: skip
HEADER_GAPS = ("held out", "rows", "method", "MAE", "RMSE", "CRPS", "INT", "CVG")
HEADER_UCI = ("method", "splits", "NLL", "CRPS", "MAE", "RMSE", "cov. 95", "fit s", "CPU s", "MB")


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table with aligned columns."""
    cells = [[*header], *[[*row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return lines


def report(rows: Sequence[Row]) -> list[str]:
    """Every case that was measured, by section and in the order of `CASES`: lines of markdown."""
    lines: list[str] = []
    for section, words in SECTIONS.items():
        cases = [case for case in CASES.values() if case.section == section]
        mine = [row for row in rows if row["case"] in {case.name for case in cases}]
        if mine:
            lines += ["", f"## {section}", "", words, *at_a_glance(cases, mine)]
            lines += [] if section in AT_A_GLANCE_ALONE else _tables(cases, mine)
    return lines


def _tables(cases: Sequence[Case], rows: Sequence[Row]) -> list[str]:
    lines: list[str] = []
    for case in cases:
        mine = [row for row in rows if row["case"] == case.name]
        if not mine or case.name.startswith("uci-"):
            continue
        lines += ["", f"### {case.title}", "", _counts(mine[0]), ""]
        lines += _published(case.name, mine) if case.scoring == "published" else _standard(case.name, mine)
    for name in UCI_TARGETS:
        mine = [row for row in rows if row["case"].rpartition("-")[0] == name]
        if mine:
            lines += ["", f"### {name.replace('uci-', 'UCI ')}, mean over test splits", ""]
            lines += _uci(name, mine)
    return lines


def at_a_glance(cases: Sequence[Case], rows: Sequence[Row]) -> list[str]:
    """The default method over several cases in one table: beside the best peer of each, or, on gaps, beside two."""
    standard, gaps = [], []
    ahead: dict[str, list[tuple[bool, bool]]] = {split: [] for split in ("random", "block", "forward")}
    for case in cases:
        mine = [row for row in rows if row["case"] == case.name]
        ours = next((row for row in mine if row["method"] == DEFAULT), None)
        peers = [row for row in mine if not row["ours"]]
        if ours is None or not peers or case.name.startswith("uci-"):
            continue
        if case.scoring == "published":
            shown = [row for row in mine if row["method"] in GLANCE]
            gaps += [
                [case.title.partition(", ")[2], f"{row['n_test']:,}", *_five(row)]
                for row in _order(shown, "crps", "published")
            ]
        else:
            s = ours["scores"]
            if (split := case.name.rpartition("-")[2]) in ahead:
                nll, crps = (all(s[k] < row["scores"][k] for row in peers) for k in ("nll", "crps"))
                ahead[split].append((nll, crps))
            standard.append(
                [case.title, f"{ours['n_test']:,}", f"{s['nll']:.3f}", _best(peers, "nll"), f"{s['crps']:.3f}",
                 _best(peers, "crps"), f"{100 * s['coverage95']:.1f}%", _outside(ours)]
            )  # fmt: skip
    lines: list[str] = []
    for header, table in ((HEADER_AT_A_GLANCE, standard), (HEADER_GAPS, gaps)):
        if table:
            lines += ["", *markdown(header, table)]
    tally = [f"{sum(map(all, won))} of {len(won)} {split} splits" for split, won in ahead.items() if won]
    if tally:
        nll, crps = (sum(pair[i] for won in ahead.values() for pair in won) for i in (0, 1))
        each = f"In NLL it is on {nll}, in CRPS on {crps} of {sum(map(len, ahead.values()))}."
        lines += ["", f"{DEFAULT} is ahead of every peer in both scores on {', '.join(tally)}. {each}"]
    return lines


def _best(peers: Sequence[Row], key: str) -> str:
    best = min(peers, key=lambda row: row["scores"][key])
    return f"{best['scores'][key]:.3f} {best['method']}"


def _counts(row: Row) -> str:
    quick = " **A trial on a few rows; not a result.**" if row["quick"] else ""
    return f"{row['n_train']:,} rows train, {row['n_validation']:,} validate, {row['n_test']:,} test.{quick}"


def _time(row: Row) -> list[str]:
    return [
        f"{row['fit_seconds']:.0f}", f"{row['predict_seconds']:.1f}", f"{row['cpu_seconds']:.0f}",
        f"{row['peak_rss_mb']:.0f}",
    ]  # fmt: skip


def _outside(row: Row) -> str:
    low, high = STRATUM_COVERAGE
    bad = [
        f"{name} {100 * s['coverage95']:.1f}%"
        for name, s in row["strata"].items()
        if s.get("judged") and not low <= s["coverage95"] <= high
    ]
    return ", ".join(bad) or "none"


def _order(rows: Sequence[Row], key: str, scores: str) -> list[Row]:
    return sorted(rows, key=lambda row: (not row["ours"], row[scores][key]))


def _standard(case: str, rows: Sequence[Row]) -> list[str]:
    table = []
    for row in _order(rows, "nll", "scores"):
        s = row["scores"]
        table.append(
            [_name(row), *(f"{s[k]:.3f}" for k in ("nll", "crps", "mae", "rmse")), f"{100 * s['coverage95']:.1f}%",
             f"{s['width95']:.3f}", _outside(row), *_time(row)]
        )  # fmt: skip
    return markdown(HEADER_Z, table) + verdict(case, rows, "scores")


def _published(case: str, rows: Sequence[Row]) -> list[str]:
    table = [[*_five(row), *_time(row)] for row in _order(rows, "crps", "published")]
    for name, s in HEATON_PUBLISHED.get(case, {}).items():
        table.append([name, *(f"{s[k]:.2f}" for k in ("mae", "rmse", "crps", "int", "cvg")), "", "", "", ""])
    return markdown(HEADER_PUBLISHED, table) + verdict(case, rows, "published")


def _five(row: Row) -> list[str]:
    """Name and the five published scores."""
    return [_name(row), *(f"{row['published'][k]:.3f}" for k in ("mae", "rmse", "crps", "int", "cvg"))]


def _uci(name: str, rows: Sequence[Row]) -> list[str]:
    keys = ("nll", "crps", "mae", "rmse", "coverage95")
    methods = list(dict.fromkeys(row["method"] for row in _order(rows, "nll", "scores")))
    table, lines = [], []
    for method in methods:
        mine = [row for row in rows if row["method"] == method]
        mean = {k: float(np.mean([row["scores"][k] for row in mine])) for k in keys}
        seconds, cpu = (np.mean([row[k] for row in mine]) for k in ("fit_seconds", "cpu_seconds"))
        # Rows of several fits in one process have no peak memory of their own.
        memory = [row["peak_rss_mb"] for row in mine if row["peak_rss_mb"] is not None]
        table.append(
            [_name(mine[0]), str(len(mine)), *(f"{mean[k]:.4f}" for k in keys[:4]), f"{100 * mean['coverage95']:.1f}%",
             f"{seconds:.0f}", f"{cpu:.0f}", f"{np.mean(memory):.0f}" if memory else ""]
        )  # fmt: skip
        goals = UCI_TARGETS[name].get(method, {})
        lines += [_line(method, k, mean[k], goal) for k, goal in goals.items()]
    paper = UCI_PAPER[name]
    table.append(["DBK paper", "", f"{paper['nll']}", f"{paper['crps']}", f"{paper['mae']}", *[""] * 5])
    return markdown(HEADER_UCI, table) + (["", *lines] if lines else [])


def _name(row: Row) -> str:
    spread = row.get("facts", {}).get("spread", "own")
    words = "" if spread in ("own", "learned") else f" ({spread})"
    return f"**{row['method']}**{words}" if row["ours"] else row["method"]


def _line(method: str, key: str, value: float, goal: float | tuple[float, float]) -> str:
    words = f"{goal[0]:g} to {goal[1]:g}" if isinstance(goal, tuple) else f"<= {goal:g}"
    return f"- {method} {key} {value:.4g}, target {words}: {'holds' if holds(value, goal) else 'FALLS SHORT'}"


def verdict(case: str, rows: Sequence[Row], scores: str) -> list[str]:
    """The default method against its targets and against the best peer of the same run."""
    ours = next((row for row in rows if row["method"] == DEFAULT), None)
    if ours is None:
        return []
    lines = []
    for key, goal in TARGETS.get(case, {}).items():
        value = ours["fit_seconds"] + ours["predict_seconds"] if key == "seconds" else ours[scores][key]
        lines.append(_line(DEFAULT, key, value, goal))
    peers = [row for row in rows if not row["ours"]]
    for key in ("nll", "crps") if scores == "scores" else ("mae", "rmse", "crps", "int"):
        if peers:
            best = min(peers, key=lambda row: row[scores][key])
            gap = best[scores][key] - ours[scores][key]
            words = "ahead of" if gap > 0 else "BEHIND"
            lines.append(f"- {DEFAULT} {key} {abs(gap):.3f} {words} the best peer, {best['method']}")
    return ["", *lines]
