"""What a training leaves: test scores of single pairs, before and after, for its report; and the model card."""

from __future__ import annotations

import datetime
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from huggingface_hub import EvalResult, ModelCard

from pairtune import __version__
from pairtune.data.pairs import ALIKE, PairSet, Task
from pairtune.encoders.loading import ENCODERS
from pairtune.metrics import distinct_queries
from pairtune.runs.evidence import EVIDENCE, MOST_ITEMS, Evidence, Judged, Outcome, Watched, read_evidence, shorten
from pairtune.runs.folder import RunFolder, write_whole
from pairtune.runs.recipe import Recipe
from pairtune.runs.record import Run, Size, Trained
from pairtune.runs.settings import describe_difference
from pairtune.runs.toml import to_toml
from pairtune.sbert.evaluator import Hits, evaluate_task
from pairtune.sbert.raw import CITATION
from pairtune.sbert.watch import read_watched

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

VERSIONED = ("torch", "sentence-transformers", "transformers")


def evaluate_with_outcome(model: SentenceTransformer, task: Task) -> tuple[dict[str, dict[str, float]], Outcome | None]:
    """The scores on dev and test, and those of the single test pairs, which several sources do not have."""
    kept: dict[str, np.ndarray | Hits] = {}
    scores = evaluate_task(model, task, keep=kept)
    return scores, describe_outcome(task.test, kept["test"]) if "test" in kept else None


def evaluate_before(model: SentenceTransformer, task: Task, folder: RunFolder) -> dict[str, dict[str, float]]:
    """The scores of the original encoder; those of single pairs wait in the folder until the run is finished."""
    scores, outcome = evaluate_with_outcome(model, task)
    if outcome is not None:
        write_whole(outcome_before(folder), outcome.model_dump_json())
    return scores


def describe_outcome(pairs: PairSet, found: np.ndarray | Hits) -> Outcome:
    """The scores of the pairs that are kept, or what the kept queries of a search have found."""
    rows = choose_items(pairs)
    if isinstance(found, np.ndarray):
        return Outcome(score=_rounded(found[rows]))
    corpus = [*(pairs.corpus or ()), ""]  # place −1: no such text
    return Outcome(
        score=_rounded(found.score[rows]),
        rank=np.where(np.isfinite(found.rank[rows]), found.rank[rows], 0).astype(int).tolist(),
        right=[shorten(corpus[place]) for place in found.right[rows]],
        rival=[shorten(corpus[place]) for place in found.rival[rows]],
        rival_score=_rounded(found.rival_score[rows]),
    )


def choose_items(pairs: PairSet) -> np.ndarray:
    """The rows of the pairs that are kept, at most MOST_ITEMS, whole queries; in a search, the places of its queries."""
    queries = distinct_queries(pairs.query)
    shuffled = np.random.default_rng(0).permutation(len(queries))  # always the same ones: before and after are compared
    if pairs.corpus is not None:
        return np.sort(shuffled[:MOST_ITEMS])
    number = {query: place for place, query in enumerate(queries)}
    query = np.array([number[one] for one in pairs.query], np.int64)
    sizes = np.bincount(query, minlength=len(queries))[shuffled]
    kept = shuffled[np.cumsum(sizes) <= MOST_ITEMS]
    return np.flatnonzero(np.isin(query, kept if len(kept) else shuffled[:1]))


def describe_test(task: Task, before: Outcome, after: Outcome) -> Judged:
    """The kept test pairs beside their scores."""
    pairs, rows = task.test, choose_items(task.test)
    queries = distinct_queries(pairs.query)
    total = len(pairs) if pairs.corpus is None else len(queries)
    if pairs.corpus is not None:
        first = {query: row for row, query in reversed(list(enumerate(pairs.query)))}
        rows = np.array([first[queries[place]] for place in rows], np.int64)
    number = {query: place for place, query in enumerate(queries)}
    return Judged(
        total=total,
        left=[shorten(pairs.left[row]) for row in rows],
        right=[shorten(pairs.right[row]) for row in rows],
        label=_rounded(pairs.label[rows]),
        grade=_rounded(pairs.grade[rows]),
        query=[number[query] for query in pairs.query[rows]],
        before=before,
        after=after,
    )


def follow_leader(record: Run, leader: Run) -> Run:
    """The record with the epochs of another training on the same pairs, whose weights are kept or lead their mean."""
    asked, other = (Recipe.model_validate(one.recipe) for one in (record, leader))
    changed = describe_difference(asked, other) or f"seed = {leader.seed}"
    epochs = {name: getattr(leader, name) for name in ("epochs", "best_epoch", "kept_epochs")}
    return record.model_copy(update={**epochs, "led_by": changed})


def read_stages(folder: RunFolder, stages: int, leader: Run | None) -> list[Watched]:
    """What was seen of the stages of a training; leader: another one that is finished, in place of that of the folder."""
    if leader is None:
        return [read_watched(folder.stage(number)) for number in range(1, stages + 1)]
    evidence = read_evidence(Path(leader.model).parent / EVIDENCE)
    return evidence.stages if evidence else []


def write_evidence(folder: RunFolder, task: Task, stages: list[Watched], after: Outcome | None) -> None:
    """Gather what the stages and the two evaluations found into evidence.json. after: of the model at the end."""
    kept = outcome_before(folder)
    before = Outcome.model_validate_json(kept.read_bytes()) if kept.exists() else None
    evidence = Evidence(
        command=describe_command(sys.argv),
        kind=task.kind,
        positive_above=task.positive_above,
        stages=stages,
        test=describe_test(task, before, after) if before and after else None,
    )
    write_whole(folder.path / EVIDENCE, evidence.model_dump_json())


def outcome_before(folder: RunFolder) -> Path:
    """Where the outcome of the original encoder waits until the run is finished."""
    return folder.path / "checkpoints" / "before.json"


def describe_command(arguments: list[str]) -> str:
    """The command line as a person would type it.

    >>> describe_command(["/usr/bin/pairtune", "train", "own/labelled"])
    'pairtune train own/labelled'
    """
    program = Path(arguments[0])
    ours = program.stem == "pairtune" or program.parts[-2:] == ("pairtune", "__main__.py")
    return shlex.join([*(["pairtune"] if ours else ["python", program.name]), *arguments[1:]])


def _rounded(values: np.ndarray) -> list[float]:
    return np.round(values.astype(float), 5).tolist()


def make_record(
    recipe: Recipe,
    seed: int,
    task: Task,
    folder: RunFolder,
    before: dict[str, dict[str, float]],
    after: dict[str, dict[str, float]],
    trained: Sequence[Trained],
    device: str,
    sizes: Sequence[Size] = (),
) -> Run:
    """All that a report needs to know of a finished run."""
    epochs = [epoch for stage in trained for epoch in stage.epochs]
    seconds = sum(stage.seconds for stage in trained)
    return Run(
        name=recipe.name,
        task=task.name,
        encoder=recipe.encoder,
        seed=seed,
        metric=task.metric,
        recipe=recipe.model_dump(mode="json"),
        before=before,
        after=after,
        sizes=list(sizes),
        epochs=epochs,
        best_epoch=trained[-1].kept,
        kept_epochs=[stage.kept for stage in trained],
        pairs={"train": trained[-1].rows, "dev": len(task.dev), "test": len(task.test)},
        notes=list(task.notes),
        seconds=seconds,
        pairs_per_second=sum(stage.pairs for stage in trained) / seconds if seconds else 0.0,
        device=describe_device(device),
        versions={"pairtune": __version__, **{name: version(name) for name in VERSIONED}},
        commit=current_commit(),
        finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        model=os.fspath(folder.model),
    )


def describe_device(device: str) -> str:
    """The accelerator's name, or how many cores the CPU has."""
    import torch

    return torch.cuda.get_device_name() if device.startswith("cuda") else f"{device}, {os.cpu_count()} cores"


def current_commit() -> str | None:
    """The commit of pairtune's own checkout, where it runs from one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


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

The cosine of two embeddings is the score of a pair of texts.{describe_reading(run, task)}
Tuned from {run.encoder}. Kept: {run.describe_kept()}; seed {run.seed}.

{score_table(run)}

{license} To train it again, save this as recipe.toml and run `pairtune train recipe.toml{data}`:

```toml
{to_toml(Recipe.model_validate(run.recipe)).strip()}
```

{citation}
"""


def describe_reading(run: Run, task: Task) -> str:
    """How texts are to be read by a model that was trained with its sides marked."""
    marked = Recipe.model_validate(run.recipe).mark_sides and not run.unchanged and task.kind not in ALIKE
    return " Read left texts with `encode_query`, right texts with `encode_document`." if marked else ""


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
