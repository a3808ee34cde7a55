"""A bar chart as SVG, without a plotting library."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

COLOURS = ("#2f6f9f", "#c7802d", "#9a9a9a", "#6f9f2f")
BAR, GAP, LEFT, WIDTH = 12, 14, 150, 560


def svg(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Horizontal bars by group, each with its figure; the longest fills the width.

    Args:
        groups: for each group its bars by name, the same names in each.
    """
    most = max((value for bars in groups.values() for value in bars.values()), default=1.0) or 1.0
    names = list(next(iter(groups.values()), {}))
    parts, y = [f'<text x="0" y="16" font-weight="bold">{escape(title)}</text>'], 30
    for number, name in enumerate(names):
        x = LEFT + 110 * number
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{COLOURS[number]}"/>')
        parts.append(f'<text x="{x + 16}" y="{y + 9}">{escape(name)}</text>')
    y += 28
    for group, bars in groups.items():
        parts.append(f'<text x="0" y="{y + 10}">{escape(group)}</text>')
        for colour, value in zip(COLOURS, bars.values(), strict=False):
            length = max(1.0, value / most * WIDTH)
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            parts.append(f'<text x="{LEFT + length + 4:.1f}" y="{y + 9}" font-size="9">{value:,.1f}</text>')
            y += BAR
        y += GAP
    size = f'width="{LEFT + WIDTH + 80}" height="{y}"'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"
