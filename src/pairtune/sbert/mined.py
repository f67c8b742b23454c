"""Hard negatives in training: before every epoch, the wrong texts that the model as it is ranks high."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.data.mining import Nearest, Wanted, mine_negatives
from pairtune.data.pairs import PairSet, Task
from pairtune.data.splits import distinct
from pairtune.encoders.embedding import encode_texts
from pairtune.errors import UserError
from pairtune.ordering.nearest import unit_rows
from pairtune.processes import share_from_first
from pairtune.progress import describe_count, say
from pairtune.runs.recipe import Stage
from pairtune.sbert.hard_batches import HardBatches

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from sentence_transformers import SentenceTransformer

Negatives = dict[str, tuple[str, ...]]  # of each left text


class MinedNegatives(TrainerCallback):
    """Fills the columns of negatives anew for every epoch: equal left texts have the same ones.

    They depend on the weights and the seed alone, so a resumed epoch has the same. corpus: texts beside the right ones.
    batches: what orders the pairs; its vectors are used where it has just encoded the left texts. source: its name, of several.
    """

    def __init__(
        self,
        dataset: Dataset,
        stage: Stage,
        batches: HardBatches,
        *,
        corpus: Sequence[str] = (),
        seed: int = 0,
        source: str = "",
    ) -> None:
        self.pairs = PairSet.of(list(dataset["left"]), list(dataset["right"]), np.array(dataset["label"], np.float32))
        self.stage, self.batches, self.corpus, self.seed, self.source = stage, batches, corpus, seed, source
        self.found: Negatives = {}

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Mine with the model as it is; where the margin leaves too few, take random texts, which are easy."""
        found = self._mine(kwargs["model"], args)
        self.found = share_from_first(lambda: found | self._draw(found.keys(), state.global_step))
        if state.is_world_process_zero:
            others = len(self.found) - len(found)
            rest = f"; random ones for {others:,}, where none is far enough from the right answer" if others else ""
            of = f"{self.source}: " if self.source else ""
            say(f"{of}mined {describe_count(self.stage.train.mined, 'negative')} for each of {len(found):,} left texts{rest}")

    def filling(self, collate: Callable[[list[dict[str, Any]]], Any]) -> Callable[[list[dict[str, Any]]], Any]:
        """A collator that sees the negatives of the epoch."""
        return Filling(collate, {"": self})

    def columns_of(self, left: str) -> dict[str, str]:
        """The negatives of a left text, by the names of their columns."""
        return {f"negative_{number}": text for number, text in enumerate(self.found.get(left, ()), start=1)}

    def _mine(self, model: SentenceTransformer, args: TrainingArguments) -> Negatives:
        known: dict[str, dict[str, np.ndarray]] = {self.batches.settings.side: self.batches.vectors_of_epoch() or {}}
        precision = torch.bfloat16 if args.bf16 else None

        def encode(texts: Sequence[str], side: str) -> np.ndarray:
            there = known.get(side, {})
            if all(text in there for text in texts):
                return unit_rows(np.stack([there[text] for text in texts]))
            return unit_rows(encode_texts(model, texts, precision=precision))

        def rank(queries: Sequence[str], texts: Sequence[str]) -> Nearest:
            return Nearest(encode(queries, "left"), encode(texts, "right"), str(model.device))

        train = self.stage.train
        wanted = Wanted(train.mined, relative_margin=train.mined_margin)
        try:
            found = mine_negatives(
                self.pairs, wanted, rank, corpus=self.corpus, positive_above=self.stage.loss.positive_above
            ).pairs
        except UserError:  # none is far enough from the right answers, yet
            return {}
        finally:
            model.train()
        return dict(zip(found.left, found.negatives or (), strict=True))

    def _draw(self, done: Any, step: int) -> Negatives:
        """Random right texts for the left texts that have none, but their own right texts."""
        own: dict[str, set[str]] = defaultdict(set)
        for left, right in zip(self.pairs.left, self.pairs.right, strict=True):
            own[left] |= {left, right}
        texts, count = distinct((*self.pairs.right, *self.corpus)), self.stage.train.mined
        rng = np.random.default_rng([self.seed, 3, step])
        drawn = {}
        for left in (left for left in own if left not in done):
            places = rng.choice(len(texts), min(len(texts), count + len(own[left])), replace=False).tolist()
            drawn[left] = tuple(texts[place] for place in places if texts[place] not in own[left])[:count]
            if len(drawn[left]) < count:
                raise UserError(
                    f"train.mined = {count}: of {len(texts):,} different right texts too few are wrong for {left[:60]!r}: "
                    f'ask for fewer, or set train.negatives = "given"'
                )
        return drawn


class MinedOfSources(TrainerCallback):
    """The same of several datasets, by name: each finds its negatives among its own texts."""

    def __init__(self, mined: Mapping[str, MinedNegatives]) -> None:
        self.mined = dict(mined)

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Mine for one after the other."""
        for one in self.mined.values():
            one.on_epoch_begin(args, state, control, **kwargs)

    def filling(self, collate: Callable[[list[dict[str, Any]]], Any]) -> Callable[[list[dict[str, Any]]], Any]:
        """A collator that sees the negatives of the epoch."""
        return Filling(collate, self.mined)


class Filling:
    """A collator whose rows get the negatives of the epoch first; all else is that of the collator inside.

    mined: by the name of the dataset, which each row says where there are several; a dataset without keeps its rows.
    """

    def __init__(self, collate: Callable[[list[dict[str, Any]]], Any], mined: Mapping[str, MinedNegatives]) -> None:
        self.collate, self.mined = collate, mined

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        """The batch of these rows."""
        return self.collate([self.fill(row) for row in rows])

    def fill(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the negatives of the epoch."""
        mined = self.mined.get(row.get("dataset_name", ""))
        return {**row, **mined.columns_of(row["left"])} if mined else row

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["collate"], name)


def mine_each_epoch(
    dataset: Dataset | DatasetDict, stages: Mapping[str, Stage], batches: HardBatches, task: Task, seed: int
) -> MinedNegatives | MinedOfSources | None:
    """What finds negatives before every epoch, for the stages, by source, that ask for them."""
    if not isinstance(dataset, dict):
        (stage,) = stages.values()
        return mine_of(dataset, stage, batches, task, seed) if stage.train.negatives == "mined" else None
    asking = [name for name in dataset if stages[name].train.negatives == "mined"]
    mined = {name: mine_of(dataset[name], stages[name], batches, task.sources[name], seed, name) for name in asking}
    return MinedOfSources(mined) if mined else None


def mine_of(dataset: Dataset, stage: Stage, batches: HardBatches, task: Task, seed: int, source: str = "") -> MinedNegatives:
    """What finds negatives for one dataset, among its right texts and its corpus."""
    return MinedNegatives(dataset, stage, batches, corpus=task.train.corpus or (), seed=seed, source=source)
