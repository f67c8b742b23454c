"""Batches with hard negatives in the host's trainer: before each epoch, the model as it is says which pairs belong together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import ValidationError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.encoders.embedding import encode_texts
from pairtune.errors import UserError
from pairtune.ordering import ORDERINGS, Order, check_controls, note_limits, order_pairs
from pairtune.ordering.nearest import unit_rows
from pairtune.ordering.order import describe_groups
from pairtune.processes import share_from_first
from pairtune.progress import say
from pairtune.runs.recipe import OrderSettings
from pairtune.runs.toml import explain
from pairtune.sbert.callbacks import calling_trainer
from pairtune.sbert.checkpoints import checkpoint_folder
from pairtune.sbert.memory import Encoded, Kept
from pairtune.sbert.raw import unnormalized
from pairtune.sbert.sampler import OrderedBatchSampler, SharedSources

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch.utils.data import DataLoader

ORDER_FILE = "order.npz"
ARRAYS = ("rows", "groups", "vectors", "own")  # of each dataset in it


class HardBatches(TrainerCallback):
    """Batches of pairs that are near each other.

    `SentenceTransformerTrainingArguments(…, batch_sampler=HardBatches(by="examples", group=8))` is all that a script needs.
    The arguments are the `[order]` of a recipe. It makes the batch samplers of a trainer and becomes its callback by itself.
    Before each epoch it encodes the texts, if the order needs that. It saves the order with every checkpoint, for a resume.
    Evaluation keeps the order of its dataset.
    A loss that does not call the model (one that packs texts, for example) can pass its embeddings to `kept.see` itself.
    """

    def __init__(
        self,
        by: str = "examples",
        *,
        side: str = "left",
        group: int = 8,
        neighbors: int = 500,
        shingle: int = 1,
        clusters: int = 0,
        encode: str = "each-epoch",
        drop_identical: bool = False,
        skip_nearest: int = 0,
        margin: float | None = None,
        first: str = "ordered",
        group_counts: str = "pairs",
        distance: str = "cosine",
    ) -> None:
        self.settings = read_settings({name: value for name, value in locals().items() if name in OrderSettings.model_fields})
        self.sources: dict[str, OrderSettings] = {}  # of several datasets, those that are ordered otherwise
        self.samplers: list[OrderedBatchSampler] = []
        self.mixture: SharedSources | None = None  # of several datasets, where processes share their batches
        self.shares = 1  # processes that share each batch; with 1, each has batches of its own
        self.kept: Kept | None = None
        self._encoded: dict[int, Encoded] = {}  # of each sampler in `_ordered`
        self._epoch = -1
        self._done = 0  # batches of the first epoch that were trained on before a resume
        self._restored: tuple[int, list[Order]] | None = None
        self._hook: Any = None

    def __call__(self, dataset: Dataset, **options: Any) -> OrderedBatchSampler:
        """The sampler of one dataset, for training or for evaluation. options: what the host passes."""
        trainer = calling_trainer()
        if trainer is None:
            raise UserError(f"{self!r} makes batches in a trainer of sentence-transformers: set batch_sampler in its arguments")
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        name = dataset[0].get("dataset_name") if self.sources else None
        settings = self.sources.get(str(name), self.settings)
        if self.sources:  # whole batches: `SharedSources` cuts them, once their source was chosen
            return OrderedBatchSampler(
                dataset, settings=settings, **{**options, "batch_size": options["batch_size"] * self.shares}
            )
        return OrderedBatchSampler(dataset, settings=settings, shares=self.shares, **options)

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.settings if value != OrderSettings.model_fields[name].default}
        return f"HardBatches({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        """The settings alone: the host pickles it into training_args.bin, where the model has no place."""
        return _with_settings, (self.settings.model_dump(),)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Find the samplers of this training, and after a resume the order of the epoch that was interrupted."""
        self.samplers = list(find_samplers(kwargs["train_dataloader"]))
        for sampler in self.samplers:
            sampler.training = True
            if state.is_world_process_zero:
                for note in note_limits(sampler.side, sampler.settings):
                    say(note)
        self._epoch, done = divmod(state.global_step, steps_of_epoch(args, kwargs["train_dataloader"]))
        self._epoch -= 1  # on_epoch_begin counts up
        self._done = 0 if args.ignore_data_skip else done * args.gradient_accumulation_steps
        self.kept = self._restored = None
        self._encoded = {}
        self.undo()
        if self._ordered and state.global_step:
            self._restore(args, state)
        if any(sampler.settings.encode == "reuse" for sampler in self._ordered):
            if len(self.samplers) > 1:
                raise UserError(
                    f"order.encode = 'reuse' works on one dataset, not on {len(self.samplers)}: take 'each-epoch' or 'once'"
                )
            self._hook = kwargs["model"].register_forward_hook(self._see)

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Give every sampler the epoch, and the one that needs vectors its order."""
        self._epoch += 1
        for sampler in self.samplers:
            # the host does this too, but does not reach a sampler behind the two wrappers of a resume on several processes
            sampler.set_epoch(self._epoch)
        if self.mixture is not None:
            self.mixture.set_epoch(self._epoch)
        for number, sampler in enumerate(self._ordered):
            if not sampler.as_it_came:
                sampler.order = self._order_epoch(number, kwargs["model"], args)
        if state.is_world_process_zero:
            for sampler in self.samplers:
                if ORDERINGS[sampler.settings.by].needs != "nothing":
                    description = describe_groups(sampler.order_of_epoch(), sampler.size)
                    say(f"epoch {self._epoch + 1}, order by {sampler.settings.by}: {description}")
        if self.kept is not None:
            self.kept.begin_epoch(list(kwargs["train_dataloader"].batch_sampler), self._done)
        self._done = 0

    def on_substep_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """A batch is over whose gradients are still being added up."""
        if self.kept is not None:
            self.kept.end_batch()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """A batch is over."""
        if self.kept is not None:
            self.kept.end_batch()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Keep the epoch's order with the checkpoint: the model that it came from has moved on."""
        if not self._ordered:
            return
        if self.kept is not None:
            self.kept.flush()
        if state.is_world_process_zero:
            arrays = {"epoch": np.array(self._epoch)}
            for number, sampler in enumerate(self._ordered):
                arrays |= self._arrays_of(number, sampler)
            np.savez(checkpoint_folder(args, state) / ORDER_FILE, allow_pickle=False, **arrays)

    def _arrays_of(self, number: int, sampler: OrderedBatchSampler) -> dict[str, np.ndarray]:
        order = sampler.order_of_epoch()
        arrays = {"rows": order.rows, "groups": order.groups}
        if sampler.settings.encode != "each-epoch" and number in self._encoded:
            arrays |= self._encoded[number].arrays()
        return {f"{name}{_suffix(number)}": values for name, values in arrays.items()}

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Leave the model as it was."""
        self.undo()

    def vectors_of_epoch(self) -> dict[str, np.ndarray] | None:
        """The vector of each text of the ordered side, where they were encoded for the epoch that begins, of one dataset."""
        restored = self._restored is not None and self._restored[0] == self._epoch
        if len(self._ordered) != 1 or 0 not in self._encoded or restored:
            return None
        sampler = self._ordered[0]
        if sampler.settings.encode != "each-epoch" or sampler.as_it_came:
            return None
        vectors = self._encoded[0].vectors.cpu().numpy()
        return {str(text): vector for text, vector in zip(sampler.side.texts, vectors, strict=True)}

    @property
    def _ordered(self) -> list[OrderedBatchSampler]:
        """The samplers whose orders depend on the model: one for each dataset."""
        return [sampler for sampler in self.samplers if sampler.needs_vectors]

    def _order_epoch(self, number: int, model: SentenceTransformer, args: TrainingArguments) -> Order:
        """The order of the epoch that begins: the interrupted one's again, or a new one, the same on every process."""
        sampler = self._ordered[number]
        interrupted = self._restored is not None and self._restored[0] == self._epoch
        if not interrupted:
            self._encoded[number] = self._encode(number, model, args)
        encoded = self._encoded.get(number)
        if encoded is not None and sampler.settings.encode == "reuse":
            self.kept = Kept(encoded, sampler.side.text, len(sampler.columns), sampler.place, model.device)
            encoded = self._encoded[number] = self.kept.encoded
        if interrupted:
            assert self._restored is not None
            return self._restored[1][number]
        assert encoded is not None
        device = str(model.device) if model.device.type == "cuda" else "cpu"
        own = None if encoded.own is None else encoded.own.cpu().numpy()
        side = sampler.side.encoded(encoded.vectors, own, device)
        return share_from_first(lambda: order_pairs(side, sampler.settings, sampler.epoch_seed))

    def _encode(self, number: int, model: SentenceTransformer, args: TrainingArguments) -> Encoded:
        """The vectors that the next order is made from: encoded now, or once, or kept from the epoch before."""
        sampler = self._ordered[number]
        if self.kept is not None:
            self.kept.flush()
            if self.kept.batches_kept:
                return self.kept.encoded
            say("order.encode is 'reuse', but this loss does not pass on its embeddings: all texts are encoded again")
        elif number in self._encoded and sampler.settings.encode != "each-epoch":
            return self._encoded[number]
        encoded = encode_side(sampler, model, args)
        model.train()
        return encoded

    def _restore(self, args: TrainingArguments, state: TrainerState) -> None:
        """Take up the order, and the vectors, that were kept with the checkpoint."""
        path = Path(args.resume_from_checkpoint or checkpoint_folder(args, state)) / ORDER_FILE
        arrays = share_from_first(lambda: _read_arrays(path))
        if arrays is None:
            if self._done or any(sampler.settings.encode != "each-epoch" for sampler in self._ordered):
                raise UserError(
                    f"training resumes at step {state.global_step}, but {path}, which holds the order of the interrupted epoch, "
                    f"is not there: if the checkpoint is elsewhere, name it in the arguments too (resume_from_checkpoint=...)"
                )
            return
        orders = []
        for number, sampler in enumerate(self._ordered):
            mine = {name: arrays[f"{name}{_suffix(number)}"] for name in ARRAYS if f"{name}{_suffix(number)}" in arrays}
            if len(mine.get("rows", ())) != len(sampler.dataset):
                raise UserError(
                    f"{path} orders {len(mine.get('rows', ()))} pairs, but the dataset has {len(sampler.dataset)}: "
                    f"resume with the data that the training began with"
                )
            orders.append(Order(mine["rows"], mine["groups"]))
            if "vectors" in mine:
                own = torch.from_numpy(mine["own"]) if "own" in mine else None
                self._encoded[number] = Encoded(torch.from_numpy(mine["vectors"]), own)
        self._restored = int(arrays["epoch"]), orders

    def undo(self) -> None:
        """Take the hook off the model."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _see(self, model: torch.nn.Module, inputs: Any, output: Any) -> None:
        if model.training and self.kept is not None and "cu_seq_lens_q" not in output:  # packed texts: the trainer shows them
            self.kept.see(output["sentence_embedding"])


def read_settings(given: dict[str, Any]) -> OrderSettings:
    """The settings of an order, each of them checked, and all of them heeded by that order."""
    try:
        settings = OrderSettings.model_validate(given)
    except ValidationError as problem:
        raise UserError(explain(problem, "HardBatches")) from None
    check_controls(settings)
    return settings


def find_samplers(loader: DataLoader) -> Iterator[OrderedBatchSampler]:
    """Our samplers inside the host's data loader, behind whatever it wraps them in."""
    waiting: list[Any] = [loader.batch_sampler]
    while waiting:
        sampler = waiting.pop(0)
        if isinstance(sampler, OrderedBatchSampler):
            yield sampler
        elif sampler is not None:
            waiting += [*getattr(sampler, "batch_samplers", ()), getattr(sampler, "batch_sampler", None)]


def steps_of_epoch(args: TrainingArguments, loader: DataLoader) -> int:
    """How often the optimizer steps in an epoch, as the host counts it."""
    return max(-(-len(loader) // args.gradient_accumulation_steps), 1)


def encode_side(sampler: OrderedBatchSampler, model: SentenceTransformer, args: TrainingArguments) -> Encoded:
    """The vectors of the distinct texts of the side that pairs are ordered by; with a margin, each pair's own cosine too."""
    with unnormalized(model) if sampler.settings.distance == "euclidean" else nullcontext():
        vectors = encode_column(sampler, sampler.place, sampler.side.texts, model, args)
    if sampler.settings.margin is None:
        return Encoded(torch.from_numpy(vectors))
    if len(sampler.columns) < 2:
        raise UserError(
            f"order.margin compares the two texts of a pair, but the dataset has the text columns {sampler.columns}: it takes two"
        )
    place = 1 - sampler.place
    texts = list(dict.fromkeys(sampler.dataset[sampler.columns[place]]))
    others = encode_column(sampler, place, texts, model, args)
    own = (unit_rows(vectors)[sampler.side.text] * unit_rows(others)[sampler.side.other]).sum(axis=1)
    return Encoded(torch.from_numpy(vectors), torch.from_numpy(own))


def encode_column(sampler: OrderedBatchSampler, place: int, texts: Any, model: SentenceTransformer, args: Any) -> np.ndarray:
    """The vectors of texts of one column, with the prompt, the route and the precision that training gives it."""
    column = sampler.columns[place]
    if None in texts:
        raise UserError(f"a text of column {column!r} is missing: this order encodes the texts; drop those pairs")
    prompts, routes = args.prompts, args.router_mapping or {}
    precision = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
    if isinstance(prompts, dict) and any(isinstance(own, dict) for own in prompts.values()):  # of each of several datasets
        prompts = prompts.get(str(sampler.dataset[0].get("dataset_name")), {})
    prompt = prompts if isinstance(prompts, str) else (prompts or {}).get(column)
    return encode_texts(model, texts, prompt=prompt, task=routes.get(column), precision=precision)


def _with_settings(settings: dict[str, Any]) -> HardBatches:
    return HardBatches(**settings)


def _suffix(number: int) -> str:
    """After the names of the arrays of the second dataset and of further ones."""
    return f"_{number + 1}" if number else ""


def _read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    if not path.is_file():
        return None
    with np.load(path) as arrays:
        return dict(arrays)
