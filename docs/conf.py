"""The site: `sphinx-build -W --keep-going -n -b html docs build/site`.

The pages are plain Markdown that reads the same on a code host: no directive stands in them. What
belongs where is said once, in `navigation.py`; a page that is not there is found under "More".
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
sys.path.insert(0, str(DOCS.parent))

import navigation  # noqa: E402

from stabexp import __version__  # noqa: E402

project = "stabexp"
author = copyright = "the stabexp authors"
version = release = __version__
extensions = ["myst_parser"]
exclude_patterns = ["__pycache__"]
nitpicky = True

myst_enable_extensions = ["deflist", "fieldlist", "strikethrough"]
myst_heading_anchors = 4
"""GitHub's anchors, so that a link to a heading works in both places."""

html_theme = "furo"
html_title = f"stabexp {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/mark.svg"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
        "font-stack--monospace": "ui-monospace, 'SF Mono', 'Cascadia Mono', 'DejaVu Sans Mono', "
        "monospace",
        "color-brand-primary": "#1d5f8a",
        "color-brand-content": "#1d5f8a",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fb8de",
        "color-brand-content": "#7fb8de",
    },
}
pygments_style = "default"
pygments_dark_style = "native"


def setup(app):
    """Put the navigation behind the text of the pages that have some below them."""
    app.connect("source-read", navigation.append)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
