"""A bar chart of the ratios as SVG, by hand: it is small, and reads in light and dark."""

from html import escape
from math import log10

from tests.bench.measure import Figure

_BAR, _GAP, _LEFT, _WIDTH = 18, 10, 430, 900


def draw(figures: list[Figure], made: str) -> str:
    """Draw one bar a ratio, on a scale of its own: its number stands beside it, the line at 1 is equality."""
    ratios = [figure for figure in figures if figure.unit == "×"]
    height = 60 + len(ratios) * (_BAR + _GAP)
    largest = max((figure.median for figure in ratios), default=1.0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        ' font-size="13">',
        "<style>text{fill:#57606a}rect{fill:#2f81f7}</style>",
        f'<text x="10" y="22">Ratios, each measured in one run ({escape(made)}); logarithmic</text>',
    ]
    for place, figure in enumerate(ratios):
        top = 40 + place * (_BAR + _GAP)
        width = _length(figure.median, largest)
        lines += [
            f'<text x="{_LEFT - 10}" y="{top + 13}" text-anchor="end">{escape(figure.name)}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{width:.0f}" height="{_BAR}" rx="3"/>',
            f'<text x="{_LEFT + width + 8:.0f}" y="{top + 13}">{figure.median:.3g}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _length(value: float, largest: float) -> float:
    """Return a bar's length: logarithmic from 0.1."""
    return max(2.0, (_WIDTH - _LEFT - 80) * log10(max(value, 0.101) / 0.1) / log10(max(largest, 1.0) / 0.1))
