"""MRPC: whether two sentences from the news are paraphrases (Dolan, Quirk and Brockett, 2004)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pairtune.data.files import find_file, need_file, pick_columns, read_delimited
from pairtune.data.info import METRICS_OF_KIND, HubRow, Splits, TaskInfo, hub_splits, in_tenth
from pairtune.data.labels import binary_label
from pairtune.data.pairs import PairSet

COLUMNS = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")

HOW_TO_GET = (
    "msr_paraphrase_train.txt and msr_paraphrase_test.txt from Microsoft's Research Paraphrase Corpus (and GLUE's list "
    "dev_ids.tsv of the dev pairs) go in the folder mrpc of PAIRTUNE_DATA; with a network, nyu-mll/glue is fetched from "
    "the Hugging Face hub"
)


def load_mrpc(folder: Path) -> Splits:
    """msr_paraphrase_{train,test}.txt: TAB, header, no quoting, byte-order mark; dev_ids.tsv: the id pairs that are dev."""
    pairs, ids = _read(need_file(folder, "msr_paraphrase_train.txt"))
    test, _ = _read(need_file(folder, "msr_paraphrase_test.txt"))
    listed = find_file(folder, "dev_ids.tsv")
    if listed:
        chosen = {tuple(row.fields) for row in read_delimited(listed)}
        dev = np.array([pair in chosen for pair in ids], dtype=bool)
        note = f"dev: the {dev.sum():,} pairs of GLUE's dev_ids.tsv, taken out of the {len(pairs):,} of the train file"
        if len(chosen) > dev.sum():
            note += f"; listed pairs that are not in the train file: {len(chosen) - dev.sum():,}"
    else:
        dev = in_tenth(["\t".join(pair) for pair in ids])
        note = f"dev: no dev_ids.tsv, so a tenth of the {len(pairs):,} pairs of the train file, not GLUE's"
    return Splits(pairs.take(~dev), pairs.take(dev), test, notes=(note,))


def fetch_mrpc() -> Splits:
    """GLUE's split from the hub: the same pairs."""
    splits = hub_splits("nyu-mll/glue", "mrpc", HOW_TO_GET)
    return Splits(_from_hub(splits["train"]), _from_hub(splits["validation"]), _from_hub(splits["test"]))


def _read(path: Path) -> tuple[PairSet, list[tuple[str, ...]]]:
    records = list(pick_columns(path, read_delimited(path), COLUMNS))
    label = [binary_label(path, line, quality) for line, (quality, *_) in records]
    pairs = PairSet.of([fields[3] for _, fields in records], [fields[4] for _, fields in records], label)
    return pairs, [(first, second) for _, (_, first, second, *_) in records]


def _from_hub(rows: Iterable[HubRow]) -> PairSet:
    rows = list(rows)
    return PairSet.of(
        [row["sentence1"] for row in rows], [row["sentence2"] for row in rows], [float(row["label"]) for row in rows]
    )


INFO = TaskInfo(
    name="mrpc",
    kind="classification",
    metrics=METRICS_OF_KIND["classification"],
    license="Microsoft shared source license, non-commercial use",
    citation="""@inproceedings{dolan-etal-2004-unsupervised,
  title = {Unsupervised Construction of Large Paraphrase Corpora: Exploiting Massively Parallel News Sources},
  author = {Dolan, Bill and Quirk, Chris and Brockett, Chris},
  booktitle = {{COLING} 2004: Proceedings of the 20th International Conference on Computational Linguistics},
  year = {2004},
  pages = {350--356}
}""",
    how=HOW_TO_GET,
    folder="mrpc",
    load=load_mrpc,
    fetch=fetch_mrpc,
)
