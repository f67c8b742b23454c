"""QQP: whether two questions on Quora ask the same (Iyer, Dandekar and Csernai, 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pairtune.data.files import need_file, pick_columns, read_delimited
from pairtune.data.info import METRICS_OF_KIND, HubRow, Splits, TaskInfo, hub_splits, share
from pairtune.data.labels import binary_label
from pairtune.data.pairs import PairSet
from pairtune.errors import UserError

TRAIN_PAIRS = 10_000  # the paper samples as many

HOW_TO_GET = (
    "train.tsv, dev.tsv and test.tsv (TAB, a header with question1, question2 and label or is_duplicate, no quoting, "
    "labels in all three) go in the folder qqp of PAIRTUNE_DATA; with a network, nyu-mll/glue is fetched from the "
    "Hugging Face hub"
)


def load_qqp(folder: Path) -> Splits:
    """{train,dev,test}.tsv: TAB, header, no quoting; question1, question2, and label (GLUE calls it is_duplicate)."""
    train, dev, test = (_read(need_file(folder, f"{split}.tsv")) for split in ("train", "dev", "test"))
    note = f"train: all {len(train):,} pairs of train.tsv; the paper draws {TRAIN_PAIRS:,} at random from Quora's 404,290"
    return Splits(train, dev, test, notes=(note,))


def fetch_qqp() -> Splits:
    """GLUE's pairs from the hub. Its test labels are withheld: half of its validation pairs are dev, the others test."""
    splits = hub_splits("nyu-mll/glue", "qqp", HOW_TO_GET)
    train = sorted(splits["train"], key=_order)[:TRAIN_PAIRS]
    halves: tuple[list[HubRow], list[HubRow]] = ([], [])
    for row in splits["validation"]:
        halves[_order(row) < 0.5].append(row)
    notes = (
        f"train: {len(train):,} pairs drawn by a hash of their id from GLUE's train set",
        "dev and test: the two halves of GLUE's validation set, since its test labels are withheld",
    )
    return Splits(_from_hub(train), _from_hub(halves[0]), _from_hub(halves[1]), notes=notes)


def _read(path: Path) -> PairSet:
    rows = read_delimited(path)
    header = rows[0].fields if rows else []
    named = next((name for name in ("label", "is_duplicate") if name in header), None)
    if rows and named is None:
        raise UserError(
            f"{path}: no column label or is_duplicate; the columns are: {', '.join(header)} (GLUE withholds the labels of "
            f"its test.tsv: use a labelled one)"
        )
    records = list(pick_columns(path, rows, ("question1", "question2", named or "label")))
    label = [binary_label(path, line, fields[2]) for line, fields in records]
    return PairSet.of([fields[0] for _, fields in records], [fields[1] for _, fields in records], label)


def _order(row: HubRow) -> float:
    return share(f"qqp:{row['idx']}")


def _from_hub(rows: Iterable[HubRow]) -> PairSet:
    rows = list(rows)
    return PairSet.of(
        [row["question1"] for row in rows], [row["question2"] for row in rows], [float(row["label"]) for row in rows]
    )


INFO = TaskInfo(
    name="qqp",
    kind="classification",
    metrics=METRICS_OF_KIND["classification"],
    license="Quora's terms of service, research use",
    citation="""@misc{iyer-etal-2017-quora,
  title = {First {Q}uora Dataset Release: Question Pairs},
  author = {Iyer, Shankar and Dandekar, Nikhil and Csernai, Korn{\\'e}l},
  year = {2017},
  howpublished = {Quora}
}""",
    how=HOW_TO_GET,
    folder="qqp",
    load=load_qqp,
    fetch=fetch_qqp,
)
