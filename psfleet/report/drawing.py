"""Turns a matplotlib figure into a picture for a page, or into a PNG. The same run gives the same bytes."""

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from psfleet.evidence.untrusted_files import write_whole
from psfleet.report.number_format import shorten
from trainer.contract.progress import printable

# Otherwise matplotlib logs messages about its font cache.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

INK, SOFT, GRID = "#1a1a1a", "#5a5a5a", "#dddddd"
# Okabe and Ito's palette, which colour-blind people can distinguish, too; its yellow is too pale on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1a1a1a")
DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1)))
# In inches. A picture is drawn for a narrow column and scales with the page, so that phones can show it.
WIDTH = 5.6
_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the reader's own font
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],  # part of matplotlib, so that all machines draw the same
    "font.size": 11,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "lines.linewidth": 1.3,
    "figure.constrained_layout.h_pad": 0.06,
}


@contextmanager
def style() -> Iterator[None]:
    """Apply the report's own style to what is drawn in the block, whatever the user's matplotlibrc says."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def new_figure(height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of `height` inches, and its axes. Call it only within `style`."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def new_figures(number: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    """Return an empty figure, and `number` axes of `height` inches each, one below the other.

    They have a common x axis.
    """
    figure = Figure(figsize=(WIDTH, 0.4 + height * number), layout="constrained")
    every = figure.subplots(number, sharex=True, squeeze=False)
    return figure, [row[0] for row in every]


def label(text: str) -> str:
    """Return a name as one printable line of at most 28 characters; a longer one ends with "…"."""
    return shorten(printable(text), 28)


def as_svg(figure: Figure, name: str, title: str) -> Markup:
    """Return the figure as an `<svg>` element; `title` is its label for screen readers.

    A unique `name` keeps its ids apart from other figures' ids.
    """
    written = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(written.getvalue())  # noqa: S314 - matplotlib has just written it
    for element in root.iter():
        if element.tag == f"{{{_SVG}}}g":
            element.attrib.pop("id", None)  # ids are the same in every figure, and unused
        if _LINK in element.attrib:
            element.attrib["href"] = element.attrib.pop(_LINK)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {"role": "img", "aria-label": printable(title)}
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704 - ElementTree escapes texts


def save_png(figure: Figure, path: Path, dots_per_inch: int) -> None:
    """Write the figure as a PNG atomically, over an existing file. Raises OSError."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dots_per_inch, metadata={"Software": None})
    write_whole(path, drawn.getvalue())
