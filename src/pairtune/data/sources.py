"""Several datasets as one task: trained on together, scored one by one, chosen by the mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pairtune.data.material import training_dataset
from pairtune.data.own_tables import read_pairs
from pairtune.data.pairs import ALIKE, MEAN, PairSet, Task, add_prompts
from pairtune.errors import UserError
from pairtune.runs.recipe import Recipe, Source, Stage
from pairtune.runs.settings import stage_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def read_sources(recipe: Recipe) -> Task:
    """The task of a recipe with several sources."""
    names = [source.name for source in recipe.sources]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"recipe {recipe.name}: two sources are called {twice!r}; give each a name of its own")
    return join_tasks({source.name: _read_source(source) for source in recipe.sources})


def _read_source(source: Source) -> Task:
    return read_pairs(
        list(source.data),
        list(source.dev) or None,
        list(source.test) or None,
        left=source.left,
        right=source.right,
        label=source.label,
        keep_together=source.keep_together,
        negatives=source.negatives,
        corpus=list(source.corpus) or None,
        kind=source.kind,
        split_column=source.split_column,
        grades={label: None if worth == "out" else worth for label, worth in source.grades.items()} or None,
        skip_empty=source.skip_empty,
        hub_split={str(part): name for part, name in source.hub_split.items()} or None,
    )


def join_tasks(sources: Mapping[str, Task]) -> Task:
    """All pairs, for counting and for batches that mix them; and the tasks that they come from, which are scored."""
    train, dev, test = (_join_pairs([task.split(split) for task in sources.values()]) for split in ("train", "dev", "test"))
    metrics = (MEAN, *(f"{name} {metric}" for name, task in sources.items() for metric in task.metrics))
    notes = tuple(f"{name}: {note}" for name, task in sources.items() for note in task.notes)
    kinds = {task.kind for task in sources.values()}
    kind = kinds.pop() if len(kinds) == 1 else "ranking"
    return Task("+".join(sources), kind, train, dev, test, MEAN, metrics, notes=notes, sources=dict(sources))


def change_each(task: Task, change: Callable[[Task], Task]) -> Task:
    """The task with a change made to it; of several sources, to each of them."""
    return join_tasks({name: change(source) for name, source in task.sources.items()}) if task.sources else change(task)


def without_test(task: Task) -> Task:
    """The task with dev in the place of test: whoever gets it cannot look at test, nor at splits that are kept beside it."""
    return change_each(task, lambda one: replace(one, test=one.dev, extra={}))


def _join_pairs(parts: Sequence[PairSet]) -> PairSet:
    """The pairs alone: neither negatives nor a corpus, which are not the same everywhere."""
    left, right = ([text for part in parts for text in getattr(part, side)] for side in ("left", "right"))
    label, query, grade = (np.concatenate([getattr(part, name) for part in parts]) for name in ("label", "query", "grade"))
    return PairSet.of(left, right, label, query=query, grade=grade)


def check_sources(task: Task, recipe: Recipe) -> None:
    """Refuse settings that are about one dataset."""
    if not task.sources:
        return
    if recipe.dev != "given" or recipe.dev_candidates:
        raise UserError("dev and dev_candidates work with one dataset only, and this recipe has several sources: leave them out")
    if recipe.mark_sides:
        raise UserError("mark_sides works with one dataset only, and this recipe has several sources: give them prompts instead")
    for stage in recipe.stages:
        if stage.train.file:
            raise UserError("train.file works with one dataset only, and this recipe has several sources: leave it out")
        mined = {stage_of(recipe, stage, name).train.negatives for name in task.sources}
        if stage.train.negatives == "mined" and "mined" not in mined:
            raise UserError('train.negatives = "mined": no source has a loss that can use them: take bsc or combo')
    if recipe.mix_sources and (one := next((source for source in recipe.sources if source.loss or source.order), None)):
        raise UserError(
            f"mix_sources puts pairs of all sources into a batch, and source {one.name} has a loss or order of its own"
        )


def prompt_sources(task: Task, recipe: Recipe, model: SentenceTransformer) -> Task:
    """The task with the prompts of each source, or the recipe's, before its texts."""
    from pairtune.encoders.prompts import choose_prompts

    own = {source.name: source.prompts or recipe.prompts for source in recipe.sources}
    prompted = {
        name: add_prompts(source, choose_prompts(model, own[name], alike=source.kind in ALIKE))
        for name, source in task.sources.items()
    }
    return replace(join_tasks(prompted), notes=task.notes)


def recipe_of(recipe: Recipe, name: str) -> Recipe:
    """The recipe that one of the sources follows, as if it were alone."""
    source = next(one for one in recipe.sources if one.name == name)
    stages = tuple(stage_of(recipe, stage, name) for stage in recipe.stages)
    own = {"name": f"{recipe.name}, {name}", "stages": stages, "prompts": source.prompts or recipe.prompts, "sources": ()}
    return recipe.model_copy(update=own)


def training_data(model: SentenceTransformer, task: Task, recipe: Recipe, stage: Stage, seed: int) -> Any:
    """What a stage trains on: a dataset, or one for each source, by name."""
    if not task.sources or recipe.mix_sources:
        return training_dataset(model, task, stage, seed)
    from datasets import DatasetDict

    sources = {name: (source, stage_of(recipe, stage, name)) for name, source in task.sources.items()}
    return DatasetDict({name: training_dataset(model, source, own, seed) for name, (source, own) in sources.items()})
