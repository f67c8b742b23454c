"""The model card: the base model by name, the scores of the weights that were kept, a recipe that trains again, citation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult, ModelCard

from pairtune.data.pairs import Task
from pairtune.encoders.loading import ENCODERS
from pairtune.runs.recipe import Recipe
from pairtune.runs.record import Run
from pairtune.runs.toml import to_toml
from pairtune.sbert.losses import CITATION

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

HEADING = "## Trained with pairtune"
EVALUATION = re.compile(r"^## Evaluation\n.*?(?=^(?:<!--\n)?## )", re.MULTILINE | re.DOTALL)  # up to the next heading
HUB_TASK = "sentence-similarity"


def name_base_model(model: SentenceTransformer, encoder: str) -> None:
    """Tell the host's card what is tuned, where it does not know: the original of an alias, or what a folder's own card says."""
    data = model.model_card_data
    if data.base_model is None and (name := find_base_model(encoder)):
        data.base_model = name


def find_base_model(encoder: str) -> str | None:
    """The name on the hub of an encoder, as far as it can be known without a network."""
    if encoder in ENCODERS:
        return ENCODERS[encoder].hub
    card = Path(encoder) / "README.md"
    if not card.is_file():
        return None
    base = ModelCard(card.read_text(encoding="utf-8"), ignore_metadata_errors=True).data.to_dict().get("base_model")
    return base[0] if isinstance(base, list) else base


def write_card(path: Path, run: Run, task: Task) -> None:
    """Put our section and our scores on the card that the host wrote; writing it twice changes nothing."""
    text = path.read_text(encoding="utf-8").partition(f"\n{HEADING}\n")[0] if path.exists() else ""
    card = ModelCard(text, ignore_metadata_errors=True)
    # the host's scores are those of the last epoch that was evaluated, not of the one that was kept
    card.text = EVALUATION.sub(lambda found: f"## Evaluation\n\n{score_table(run)}\n\n", card.text, count=1)
    data: Any = card.data
    data.model_name, data.eval_results = data.model_name or path.parent.name, list_results(run, task)
    card.text = f"{card.text.rstrip()}\n\n{describe_run(run, task)}"
    path.write_text(str(card), encoding="utf-8")


def list_results(run: Run, task: Task) -> list[EvalResult]:
    """The scores of the saved model, as the hub's model-index has them."""
    return [
        EvalResult(
            task_type=HUB_TASK,
            task_name=task.kind,
            dataset_type=task.name,
            dataset_name=task.name,
            dataset_split=split,
            metric_type=name,
            metric_name=name,
            metric_value=round(value, 6),
        )
        for split, scores in run.after.items()
        for name, value in scores.items()
    ]


def describe_run(run: Run, task: Task) -> str:
    """The section as Markdown."""
    citation = f"```bibtex\n{CITATION.strip()}\n{task.citation.strip()}\n```"
    license = f"Data: {task.name}, license: {task.license}." if task.license else f"Data: {task.name}."
    data = "" if task.license else " --data FILE"  # a task of ours, or a user's own pairs
    return f"""\
{HEADING}

The cosine of two embeddings is the score of a pair of texts.
Tuned from {run.encoder}. Kept: {run.describe_kept()}; seed {run.seed}.

{score_table(run)}

{license} To train it again, save this as recipe.toml and run `pairtune train recipe.toml{data}`:

```toml
{to_toml(Recipe.model_validate(run.recipe)).strip()}
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
