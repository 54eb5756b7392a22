"""What pictures of a report have in common: size, colours, axes, and how they become inline SVG.

A picture is drawn in stand-in colours, which become CSS variables in its text: one picture serves
a light and a dark page. Its words stay text, set in the font of the page. Nothing in a picture
depends on the time or on chance: equal data give equal text.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.errors import MissingExtraError
from relive.numbers import short

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
except ImportError as error:
    raise MissingExtraError("matplotlib", extra="report") from error

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import NDArray

    Series = NDArray[np.float64]

# The stand-in colours and the CSS variables that they become; `style.css` gives those values.
TEXT, GRID, FIRST, SECOND, THIRD = "#010101", "#020202", "#030303", "#040404", "#050505"
GROUPS = tuple(f"#0600{number:02x}" for number in range(1, 8))  # colours of groups of runs
VARIABLES = {
    TEXT: "var(--muted)",
    GRID: "var(--line)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    THIRD: "var(--third)",
    **{colour: f"var(--g{number})" for number, colour in enumerate(GROUPS, start=1)},
}
RC: Any = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "xtick.labelcolor": TEXT,
    "ytick.color": GRID,
    "ytick.labelcolor": TEXT,
    "ytick.left": False,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.labelcolor": TEXT,
    "legend.handlelength": 1.5,
}
# Inches, 72 units each; the same scale wherever a picture stands in the page.
PAGE, HALF_OF_PAGE, THIRD_OF_PAGE = (10.2, 3.5), (4.9, 2.4), (3.15, 2.4)
NARROW = (3.7, 3.1)  # a whole row of a page on a telephone


def log_ticks(axis: Axis, values: Series) -> None:
    """Plain numbers on a logarithmic axis: about five, whatever the range."""
    decades = np.log10(values.max() / values.min())
    if decades > 2:
        axis.set_major_locator(LogLocator(numticks=6))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades > 0.7 else range(1, 10)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_formatter(NullFormatter())


def step_axis(axes: Axes) -> None:
    """Environment steps from 0 on."""
    axes.margins(x=0.01)
    axes.set_xlim(left=0, right=axes.get_xlim()[1] if axes.get_xlim()[1] > 0 else 1)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: short(step)))
    axes.set_xlabel("environment steps")


def plain_ticks(axis: Axis) -> None:
    """At most six plain numbers."""
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def share_ticks(axis: Axis) -> None:
    """Shares in percent."""
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))


def doubling_ticks(axes: Axes, count: int, xlabel: str) -> None:
    """Names of bins that double, at 0 ... count - 1: where each begins."""
    labels = ["0", *(short(2.0 ** (k - 1)) for k in range(1, count))]
    width = axes.figure.get_figwidth()  # type: ignore[union-attr]  # is no part of another
    every = 1 + int(count / (2.6 * width))
    axes.set_xticks(range(count)[::every], labels[::every])
    axes.set_xlabel(xlabel)


def picture(name: str, size: tuple[float, float], draw: Callable[[Axes], None]) -> str:
    """Lets `draw` draw on axes of a size in inches; the text of the picture."""
    with mpl.rc_context(RC | {"svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the font of the page may have it
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _inline(text.getvalue(), name)


def _inline(text: str, name: str) -> str:
    """Makes a file's SVG fit for a page: no prologue, ids of its own, colours and size from CSS."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'<svg [^>]*?viewBox="([^"]+)"[^>]*>',
        rf'<svg role="img" aria-label="{name}" viewBox="\1">',
        text,
        count=1,
    )
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font-family: [^;\"]+; ?", "", text).replace("xlink:href", "href")
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return text
