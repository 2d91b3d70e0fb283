"""The front page of docs/: the same order of pages on a code host as on the site."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

_HEAD = """# stabexp

A training run diverged: stabexp finds out why, proves it, and offers a fix. It calls your
training function; when the run diverges, it calls the same function again from a checkpoint
with one thing changed, until it knows which change matters. Every replay is compared bit
for bit with the run it started from, and the verdict shows how the answer follows from what
was tried.

In a new virtual environment of Python 3.11 or newer, in a clone of the repository:

```sh
pip install -c constraints.txt . && stabexp demo
```

trains a small network that diverges, bisects it and prints the verdict, in half a minute.

Three lines of your loop are ours: ask the run for batches, tell it the loss.

```python
def train(run, lr=0.05):
    ...  # data, model, optimizer: as ever, built in the function
    for inputs, targets in run.steps(data, model=model, optimizer=optimizer):
        loss = nn.functional.mse_loss(model(inputs), targets)
        run.log(loss)
        ...  # zero_grad, backward, step: as ever
```

```sh
stabexp run train.py:train      # exit code 3: it diverged, with a run id
stabexp bisect train            # why, how that is known, and the fix
```
"""


def page(docs: Path) -> str:
    """Return the front page, with a link to every page in the order of `navigation.py`."""
    parts = []
    for caption, entries in _navigation(docs).placed()["index"]:
        lines = "\n".join(f"- [{_title(docs / f'{entry}.md')}]({entry}.md)" for entry in entries)
        parts.append(f"## {caption}\n\n{lines}")
    return _HEAD + "\n" + "\n\n".join(parts) + "\n"


def _title(path: Path) -> str:
    return path.read_text("utf-8").splitlines()[0].removeprefix("# ")


def _navigation(docs: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_navigation", docs / "navigation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
