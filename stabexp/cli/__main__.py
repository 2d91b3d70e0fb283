"""`python -m stabexp.cli`."""

from __future__ import annotations

from stabexp.cli import main

main()
