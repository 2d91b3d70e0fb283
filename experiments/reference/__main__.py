"""Write the reference, or say which of its pages are behind the code.

python -m experiments.reference            what would change
python -m experiments.reference --write    docs/reference/, docs/decisions/index.md, docs/index.md
"""

from __future__ import annotations

import argparse
import sys

from experiments.reference.pages import DOCS, outdated, pages


def main() -> None:
    """Compare the pages with the code, and with --write renew them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    made = pages()
    behind = outdated(made)
    for name in behind:
        print(f"docs/{name}")
        if asked.write and name in made:
            (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
            (DOCS / name).write_text(made[name], "utf-8")
        elif asked.write:
            (DOCS / name).unlink()
    if not asked.write and behind:
        sys.exit("behind the code; renew them: python -m experiments.reference --write")


main()
