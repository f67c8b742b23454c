"""The model card's own section: recipe, scores before and after, license of the data, citation."""

from __future__ import annotations

import json
from pathlib import Path

from pairtune.data.pairs import Task
from pairtune.runs.record import Run, dotted
from pairtune.sbert.losses import CITATION

HEADING = "## Trained with pairtune"


def write_card(path: Path, run: Run, task: Task) -> None:
    """Add our section to the card that the host wrote; writing it twice changes nothing."""
    card = path.read_text(encoding="utf-8").partition(f"\n{HEADING}\n")[0] if path.exists() else ""
    path.write_text(f"{card.rstrip()}\n\n{describe_run(run, task)}", encoding="utf-8")


def describe_run(run: Run, task: Task) -> str:
    """The section as Markdown."""
    recipe = "\n".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in dotted(run.recipe) if value is not None
    )
    citation = f"```bibtex\n{CITATION.strip()}\n{task.citation.strip()}\n```"
    license = f"Data: {task.name}, license: {task.license}." if task.license else f"Data: {task.name}."
    return f"""\
{HEADING}

The cosine of two embeddings is the score of a pair of texts. Kept: {run.describe_kept()}; seed {run.seed}.

{score_table(run)}

{license}

```toml
{recipe}
```

{citation}
"""


def score_table(run: Run) -> str:
    """Scores of every split before and after, as a Markdown table.

    Metrics that one side lacks are left out.
    """
    rows = [
        f"| {split} | {name} | {run.before[split][name]:.4f} | {value:.4f} |"
        for split, scores in run.after.items()
        for name, value in scores.items()
        if name in run.before.get(split, {})
    ]
    return "\n".join(["| split | metric | before | after |", "| --- | --- | --- | --- |", *rows])
