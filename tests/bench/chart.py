"""A bar chart of the ratios as SVG, by hand: it is small, and reads in light and dark."""

from collections.abc import Iterator
from html import escape
from math import ceil, floor, log10

from tests.bench.measure import Figure, number

_BAR, _GAP, _TOP, _LEFT, _RIGHT, _WIDTH = 16, 10, 60, 460, 60, 940


def draw(figures: list[Figure], made: str) -> str:
    """Draw one bar a ratio, on a logarithmic scale, from the line at 1, which is equality, to the ratio."""
    ratios = [figure for figure in figures if figure.unit == "×"]
    decades = [log10(figure.median) for figure in ratios]
    least, most = min([-1, *map(floor, decades)]), max([1, *map(ceil, decades)])
    step = (_WIDTH - _LEFT - _RIGHT) / (most - least)
    places = {decade: _LEFT + (decade - least) * step for decade in range(least, most + 1)}
    bottom = _TOP + len(ratios) * (_BAR + _GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 10}" font-family="sans-serif"'
        ' font-size="13">',
        "<style>text{fill:#57606a}rect{fill:#2f81f7}line{stroke:#8c959f;stroke-opacity:.35}line.one{stroke-opacity:1}"
        "@media(prefers-color-scheme:dark){text{fill:#b1bac4}}</style>",
        f'<text x="10" y="20">Ratios, each measured in one run ({escape(made)})</text>',
        *(_grid(decade, x, bottom) for decade, x in places.items()),
    ]
    for place, (figure, decade) in enumerate(zip(ratios, decades, strict=True)):
        lines += _bar(figure, _TOP + place * (_BAR + _GAP), places[0], places[0] + decade * step)
    return "\n".join([*lines, "</svg>", ""])


def _grid(decade: int, x: float, bottom: int) -> str:
    one = ' class="one"' if decade == 0 else ""
    label = f"{10**decade:,}" if decade >= 0 else f"{10.0**decade:g}"
    return (
        f'<text x="{x:.0f}" y="{_TOP - 16}" text-anchor="middle">{label}</text>'
        f'<line{one} x1="{x:.0f}" x2="{x:.0f}" y1="{_TOP - 10}" y2="{bottom}"/>'
    )


def _bar(figure: Figure, top: int, one: float, end: float) -> Iterator[str]:
    left, right = min(one, end), max(one, end)
    base = top + _BAR - 3
    yield f'<text x="{_LEFT - 12}" y="{base}" text-anchor="end">{escape(figure.name)}</text>'
    yield f'<rect x="{left:.1f}" y="{top}" width="{max(right - left, 1):.1f}" height="{_BAR}" rx="2"/>'
    yield f'<text x="{right + 6:.0f}" y="{base}">{number(figure.median)}</text>'
