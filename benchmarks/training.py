"""Training steps per second: pairtune's packed step against SentenceTransformerTrainer, in one process, turn by turn.

python benchmarks/training.py [--json] [--device cuda --model bert-base --precision bf16 --batch 32 --batch 1024 --texts qqp]
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
import time
from functools import cache
from typing import Annotated, Any

import numpy as np
import torch
import transformers
import typer
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from pairtune.data.datasets import load_task
from pairtune.encoders.loading import find_encoder, load_encoder
from pairtune.fast.architectures import first_position, lengths_to_capture
from pairtune.fast.packing import PackingCollator
from pairtune.progress import say
from pairtune.sbert.hard_batches import HardBatches
from pairtune.sbert.losses import BatchSoftmaxLoss
from pairtune.sbert.trainer import PairTrainer

WORKLOADS = ("short", "natural", "repeated", "bf16")  # the last: natural, ours in bf16 against the host's float32

# Of the published encoders, as transformers has them where nothing is said.
BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
QWEN = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
GEMMA = {"hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 24, "num_attention_heads": 3}
DEBERTA = {"relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("bert", {}),
    "modernbert-base": ("modernbert", {}),
    "qwen3-0.6b": ("qwen3", {**QWEN, "num_key_value_heads": 8, "head_dim": 128}),
    "embeddinggemma-300m": (
        "gemma3_text",
        {**GEMMA, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512, "use_bidirectional_attention": True},
    ),
    "nomic": ("nomic_bert", {}),
    "eurobert-210m": ("eurobert", {}),
    "albert-base": ("albert", {**BASE, "embedding_size": 128}),
    "gte-base": ("gte", {}),
    "deberta-v3-base": (
        "deberta-v2",
        {**BASE, **DEBERTA, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0},
    ),
}
TOY = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


class Stopwatch(TrainerCallback):
    """The seconds from the end of one step to the end of a later one: of this process on a CPU, which others may share."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.seconds = first, last, 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin, or end."""
        if state.global_step in (self.first, self.last):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            now = time.perf_counter() if torch.cuda.is_available() else time.process_time()
            self.seconds = now - self.seconds


def make_pairs(workload: str, source: str, count: int, encoder: Any) -> Dataset:
    """Real texts of a task. short: 10 to 45 tokens, about 20. natural: its pairs. repeated: 8 answers to each question."""
    task = load_task(source)
    rng = np.random.default_rng(1)
    if workload in ("natural", "bf16"):
        rows = np.resize(rng.permutation(len(task.train)), count)
        return Dataset.from_dict({side: [getattr(task.train, side)[row] for row in rows] for side in ("left", "right")})
    texts = sorted({*task.train.left, *task.train.right})
    if workload == "short":
        lengths = np.array([len(ids) for ids in encoder.tokenizer(texts, truncation=True)["input_ids"]])
        chosen = [texts[row] for row in rng.choice(np.flatnonzero((lengths >= 10) & (lengths <= 45)), 2 * count)]
        return Dataset.from_dict({"left": chosen[:count], "right": chosen[count:]})
    rows = rng.permutation(len(texts))
    questions, answers = np.repeat(rows[: -(-count // 8)], 8)[:count], np.resize(rows[::-1], count)
    return Dataset.from_dict({"left": [texts[row] for row in questions], "right": [texts[row] for row in answers]})


def load(model: str, device: str) -> SentenceTransformer:
    """An encoder by name; one of SHAPES has random weights, under MiniLM's vocabulary."""
    return build(model, device) if model in SHAPES else load_encoder(model, 128, device)


def build(name: str, device: str, tokenizer: str = "minilm", *, toy: bool = False) -> SentenceTransformer:
    """One of SHAPES with random weights, made on the device. tokenizer: an encoder whose tokenizer is used. toy: few layers."""
    kind, settings = SHAPES[name]
    small = {key: value // 4 for key, value in settings.items() if key in ("head_dim", "num_key_value_heads") and value > 3}
    first = Transformer(make_toy(kind, json.dumps({**settings, **TOY, **small}), tokenizer))
    if not toy:
        with torch.device(device):
            first.model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **settings))
    pooling = Pooling(first.get_embedding_dimension(), "mean")
    if kind == "qwen3":  # as Qwen3-Embedding has it
        pooling.pooling_mode, first.tokenizer.padding_side = "lasttoken", "left"
    encoder = SentenceTransformer(modules=[first, pooling], device=device)
    encoder.max_seq_length = 128
    return encoder


@cache
def make_toy(kind: str, settings: str, tokenizer: str) -> str:
    """The folder of a small model of some kind with a tokenizer; it goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix=kind)
    atexit.register(folder.cleanup)
    transformers.AutoTokenizer.from_pretrained(find_encoder(tokenizer)).save_pretrained(folder.name)
    config = transformers.AutoConfig.for_model(kind, **json.loads(settings))
    transformers.AutoModel.from_config(config).save_pretrained(folder.name)
    return folder.name


def measure(ours: bool, encoder: SentenceTransformer, data: Dataset, batch: int, steps: int, precision: str) -> dict[str, float]:
    """Milliseconds of a step after the first half of them, and the peak of the device's memory in GiB."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=batch,
            max_steps=steps,
            bf16=precision == "bf16",
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=50,
            dataloader_pin_memory=torch.cuda.is_available(),
            logging_nan_inf_filter=not ours,
            batch_sampler=HardBatches(by="original"),
            use_cpu=encoder.device.type == "cpu",
        )
        watch = Stopwatch(steps // 2, steps)
        parts: dict[str, Any] = {"model": encoder, "args": arguments, "train_dataset": data, "callbacks": [watch]}
        trainer: Any
        if ours:
            static = lengths_to_capture(encoder, precision) if encoder.device.type == "cuda" else 0
            collate: Any = PackingCollator(encoder, data, offset=first_position(encoder), static=static)
            trainer = PairTrainer(**parts, loss=BatchSoftmaxLoss(encoder, temperature=0.05), data_collator=collate)
        else:
            both: Any = ("query_to_doc", "doc_to_query")
            loss = MultipleNegativesRankingLoss(encoder, directions=both, partition_mode="per_direction")
            trainer = SentenceTransformerTrainer(**parts, loss=loss)
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return {"ms": 1000 * watch.seconds / (watch.last - watch.first), "gib": memory}


def count_tokens(encoder: SentenceTransformer, data: Dataset) -> float:
    """Of a pair, on average, without padding."""
    return sum(
        len(ids) for side in ("left", "right") for ids in encoder.tokenizer(data[side][:], truncation=True)["input_ids"]
    ) / len(data)


def main(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")] = False,
    model: Annotated[str, typer.Option(help=f"An encoder, or a shape with random weights: {', '.join(SHAPES)}.")] = "minilm",
    device: str = "cpu",
    batch: Annotated[list[int] | None, typer.Option(help="Pairs in a batch; may be repeated.")] = None,
    steps: int = 10,
    rounds: int = 1,
    precision: str = "float32",
    texts: Annotated[str, typer.Option(help="The task whose texts are used.")] = "stdlib",
    workload: Annotated[list[str] | None, typer.Option(help=f"{', '.join(WORKLOADS)}; all by default.")] = None,
    threads: int = 1,
) -> None:
    """Compare, print a table, and with --json the ratios."""
    torch.set_num_threads(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    found: dict[str, Any] = {"model": model, "device": device, "texts": texts, "precision": precision, "threads": threads}
    table = Table("workload", "batch", "host ms", "ours ms", "ratio", "host GiB", "ours GiB")
    for size in batch or [32]:
        for name in workload or WORKLOADS:
            data = make_pairs(name, texts, max(size * steps, 512), load(model, device))
            runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
            for turn in range(rounds):
                for ours in (False, True) if turn % 2 == 0 else (True, False):
                    say(f"{name}, batch {size}: {'ours' if ours else 'host'}, round {turn + 1}")
                    own = "bf16" if ours and name == "bf16" else precision
                    runs[ours].append(measure(ours, load(model, device), data, size, steps, own))
            host, mine = ({key: min(run[key] for run in runs[ours]) for key in ("ms", "gib")} for ours in (False, True))
            ratio = host["ms"] / mine["ms"]
            key = f"ratio_{name}" if len(batch or [32]) == 1 else f"ratio_{name}_{size}"
            tokens = count_tokens(load(model, device), data) * size
            found |= {key: round(ratio, 3), f"{name}_{size}": {"host": host, "ours": mine, "tokens": round(tokens)}}
            figures = [f"{host['ms']:.1f}", f"{mine['ms']:.1f}", f"{ratio:.2f}", f"{host['gib']:.1f}", f"{mine['gib']:.1f}"]
            table.add_row(name, str(size), *figures)
    Console().print(table)
    if as_json:
        print(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
