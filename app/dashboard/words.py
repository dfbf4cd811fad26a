"""Numbers as people say them, and text from data as text and nothing else."""

import math

from maps.words import exact, positional


def plain(value: float) -> str:
    """A value as people say it: whole numbers from 10 on, two digits below.

    >>> plain(90.4), plain(3.14159), plain(0.0), plain(4.2071e-10), plain(4.2071e13)
    ('90', '3.1', '0', '4.2e-10', '4.21e+13')
    """
    if not math.isfinite(value):
        return "no value"
    if not positional(value):
        return exact(float(f"{value:.2g}" if abs(value) < 1 else f"{value:.3g}"))
    return f"{value:,.0f}" if abs(value) >= 10 else exact(float(f"{value:.2g}"))


def percent(p: float) -> str:
    """A probability in percent; never 0% or 100%, which no model can mean.

    >>> percent(0.374), percent(0.0001), percent(0.9999)
    ('37%', '< 1%', '> 99%')
    """
    if not math.isfinite(p):
        return "no value"
    return "< 1%" if p < 0.005 else "> 99%" if p > 0.995 else f"{100 * p:.0f}%"


def degrees(lat: float, lon: float) -> str:
    """A place as people write it.

    >>> degrees(21.3, -157.86)
    '21.3000° N, 157.8600° W'
    """
    return f"{abs(lat):.4f}° {'N' if lat >= 0 else 'S'}, {abs(lon):.4f}° {'E' if lon >= 0 else 'W'}"


def literal(text: str) -> str:
    """Text as it is, for Streamlit: nothing in it is Markdown, LaTeX, an icon or HTML.

    >>> print(literal("<b>$x$</b>"))
    \\<b\\>\\$x\\$\\</b\\>
    """
    out = text
    for mark in "\\`*_{}[]()#+-!|<>~$:":
        out = out.replace(mark, "\\" + mark)
    return out
