"""The page that shows what is found before training: docs/preflight.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stabexp.preflight.reasons import WHY

if TYPE_CHECKING:
    from experiments.preflight.score import Scored

_BEGIN = """\
# Before training: `stabexp check`

```sh
stabexp check exp.yaml                      # an experiment file
stabexp check train.py:train -o batch.size=8   # a training function
stabexp check train.py:train --ranges       # and how far each module is from float16's ends
stabexp check exp.yaml --json --steps 20
```

A few updates of the training are tried (8, or `--steps`), closely watched, and nothing is
recorded: no run directory, no MLflow. Random streams, threads and determinism of the calling
process are afterwards what they were; files that the training function writes itself it writes.
What the training prints goes to stderr. Exit code 0: nothing was found; 6: something was; 1 and
2: it could not be tried. In Python:

```python
found = stabexp.check_setup(train, args={"lr": 0.1})  # a stabexp.Preflight
for finding in found.findings:
    print(finding.name, finding.where, finding.what, finding.why, finding.change)
```

`stabexp check RUN_ID` is something else: it examines a run that has ended, with the rules of
the training step. Those rules run here too. A finding that only follows from another one (the
loss that is far too high because the images are bytes) is named there and not told by itself.
`(probably)` marks findings that a correct training can show as well.

What eight updates cannot show is not found: a rate that only later turns out too high, a rare
bad sample, forgetting, overfitting. The learning rate is looked at to the planned end all the
same: after the last update the scheduler is stepped on, and nothing is trained.

## How often it is right

Each set-up is a small real training with exactly one mistake, or none; right means that exactly
the finding that the mistake deserves is told, and no second one. Made by
`python -m experiments.preflight`.

"""


def page(scored: Mapping[str, Sequence[Scored]]) -> str:
    """Return the page as Markdown."""
    blocks = [_BEGIN.rstrip()]
    rows = ["| set-ups | right |", "| --- | ---: |"]
    rows += [
        f"| {title} | {sum(each.right for each in found)} of {len(found)} |"
        for title, found in scored.items()
    ]
    every = [each.seconds for found in scored.values() for each in found]
    blocks.append("\n".join(rows))
    blocks.append(
        f"A check took {sorted(every)[len(every) // 2]:.1f} s of CPU time in the median and "
        f"{max(every):.1f} s at most, the first import of a trainer's library included."
    )
    for title, found in scored.items():
        blocks.append(f"## {title}")
        if found and found[0].finding:
            blocks.append(_planted(found))
        else:
            names = (
                each.title + ("" if each.right else f" (told: {', '.join(each.found)})")
                for each in found
            )
            blocks.append("\n".join(f"- {name}" for name in names))
    blocks.append(_AFTERWARDS)
    rows = ["| finding | why it matters |", "| --- | --- |"]
    rows += [f"| `{name}` | {why} |" for name, why in WHY.items()]
    blocks += ["## What is looked for", "\n".join(rows), _ADVICE]
    return "\n\n".join(blocks) + "\n"


_AFTERWARDS = """\
The further set-ups were written when the rules were finished, and the tables above are their first
scoring. What they showed was mended afterwards and is not scored again: in `masked rows` a sequence
of length 0 counted as a short one, so that the whole ones looked cut off."""

_ADVICE = """\
## Where the usual advice is not followed to the letter

- **LoRA, alpha / r ≤ 1.** Many recipes that work take alpha = 2 r, so only a factor above 4 is
  told; the same for dropout: 0.1 is a habit, above 0.3 is told. Adapters whose two ends are both
  zero, or whose base is trained along, are told: those cannot be right.
- **Rates: 1e-6 to 5e-5 for full fine-tuning, 1e-4 to 5e-3 for LoRA.** Told when twice beyond,
  for Adam and AdamW. From scratch there is no such range: told is only an update that would
  change the weights by half their size at the schedule's peak; `stabexp lr-find` measures the
  rest.
- **The first loss is ln C.** Told above 2.5 ln C + 1 and at the first update only: weighted
  losses and priors in a bias are legitimate, and so is a first loss below ln C in a trained
  model.
- **Inputs in [0, 1] or [-1, 1].** What counts is what enters the first layer: a mean or
  deviation above 10. A model that begins with a normalisation may be given anything.
- **Duplicates.** Short passages of text do come again; only inputs of 16 values or more, and
  texts of 32 tokens or more, are compared."""


def _planted(found: Sequence[Scored]) -> str:
    rows = ["| training: mistake | told | where and what was seen |", "| --- | --- | --- |"]
    for each in found:
        told = ", ".join(f"`{name}`" for name in each.found) or "nothing"
        mark = "" if each.right else f" (deserved: `{each.finding}`)"
        example = each.example.replace("|", "\\|")
        rows.append(f"| {each.title} | {told}{mark} | {example} |")
    return "\n".join(rows)
