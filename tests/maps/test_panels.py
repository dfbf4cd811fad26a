"""Small multiples of lines."""

import pytest

from maps.errors import InvalidInput
from maps.figures import write_png
from maps.panels import panels_figure


def panel(n_lines, **changes):
    lines = [
        {"label": f"line {k}", "x": [1.0, 2.0, 4.0], "y": [k + 1.0, k + 2.0, k + 3.0], "band": None}
        for k in range(n_lines)
    ]
    return {
        "title": "t",
        "x_label": "x",
        "y_label": "y",
        "log_x": False,
        "log_y": False,
        "lines": lines,
    } | changes


def test_each_panel_has_its_axes_and_lines(tmp_path):
    banded = panel(1)
    banded["lines"][0]["band"] = [0.1, 0.2, 0.3]
    figure = panels_figure(
        [panel(3, log_x=True, log_y=True), banded, panel(1), panel(2), panel(1)], title="five"
    )
    assert [len(axes.lines) for axes in figure.axes] == [3, 1, 1, 2, 1]
    assert figure.axes[0].get_xscale() == "log" and figure.axes[1].collections
    assert write_png(figure, tmp_path / "five.png").stat().st_size > 1000


def test_nothing_to_draw_is_said():
    with pytest.raises(InvalidInput, match="nothing to draw"):
        panels_figure([])


def test_log_axes_have_plain_ticks_and_titles_fit(tmp_path):
    figure = panels_figure(
        [panel(1, log_x=True)], title="a title that is a good deal longer than one panel is wide"
    )
    figure.canvas.draw()
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert {"1", "2", "5"} <= set(labels) and not any("10^" in text or "times" in text for text in labels)
    assert not [t.get_text() for t in figure.axes[0].get_xticklabels(minor=True) if t.get_text()]
    box = figure._suptitle.get_window_extent()
    assert box.x1 <= figure.bbox.x1 and "\n" in figure._suptitle.get_text()


def test_what_ours_is_held_against_is_dashed():
    reference = panel(2)
    reference["lines"][1]["label"] = "paper, best of 10"
    reference["lines"].append({**reference["lines"][0], "label": "data", "points": True})
    ours, theirs, data = panels_figure([reference]).axes[0].lines
    assert ours.get_linestyle() == "-" and theirs.get_linestyle() == "--"
    assert data.get_linestyle() == "None" and data.get_marker() == "."
