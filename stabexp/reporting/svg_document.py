"""A picture that stands alone: one SVG file with its own colours, for light and for dark screens.

MLflow shows it as an image, where no style sheet of a page reaches it. So it brings a background,
and follows the reader's colour scheme by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from stabexp.reporting.curve import text

_STYLE = """\
svg{--paper:#fff;--ink:#1a1e23;--soft:#555e69;--grid:#e7eaee;--band:#aab4c2;--none:#eef0f3;--zero:#8a94a0;
--before:#0b5cad;--onset:#a14207;--end:#b3202c;
font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",Arial,sans-serif}
@media(prefers-color-scheme:dark){svg{--paper:#14171b;--ink:#e8eaed;--soft:#a9b2bd;--grid:#272c33;
--band:#566170;--none:#1d2126;--zero:#727c88;--before:#7db8f5;--onset:#f79a66;--end:#ff7f7f}}
.paper{fill:var(--paper)}text{fill:var(--soft)}.title{fill:var(--ink);font-size:16px;
font-weight:640}.label{fill:var(--ink)}.grid{stroke:var(--grid)}.none{fill:var(--none)}
.zero{fill:var(--zero)}.cells{shape-rendering:crispEdges}.halo{stroke:var(--paper);stroke-width:5;stroke-opacity:.7}
.lost{fill:var(--end)}.mark{stroke:var(--end);stroke-width:2;stroke-dasharray:4 3}
.mark.onset{stroke:var(--onset)}.mark.good{stroke:var(--before)}.band{stroke:var(--band)}
.before{fill:var(--before);stroke:var(--before)}.onset{fill:var(--onset);stroke:var(--onset)}
.end{fill:var(--end);stroke:var(--end)}text.before,text.onset,text.end{stroke:none}
.cross{fill:none;stroke-width:2.2}"""

CHARACTER = 6.6
"""Width of a 12 px character, in px; close enough to keep text apart."""


def svg_document(
    parts: Sequence[str], *, title: str, subtitle: str, description: str, width: int, height: float
) -> str:
    """Return a whole SVG file; the picture begins 56 px below its top, under title and subtitle."""
    size = f'width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}"'
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
            f"<title>{text(title)}</title><desc>{text(description)}</desc>",
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height:.0f}"/>',
            f'<text class="title" x="16" y="24">{text(title)}</text>',
            f'<text x="16" y="43">{text(subtitle)}</text>',
            *parts,
            "</svg>\n",
        ]
    )


def shortened(name: str, room: float) -> str:
    """Return a name that fits into so many px; its end says more than its beginning."""
    most = max(4, int(room / CHARACTER))
    return name if len(name) <= most else "…" + name[-(most - 1) :]
