"""Three tasks of GLUE with two sentences each.

* MRPC: whether two sentences from the news are paraphrases (Dolan, Quirk and Brockett, 2004).
* QQP: whether two questions on Quora ask the same (Iyer, Dandekar and Csernai, 2017).
* STSb: how similar two sentences are, 0 to 5 (Cer et al., 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pairtune.data.files import find_file, need_file, pick_columns, read_delimited
from pairtune.data.pairs import PairSet
from pairtune.data.splits import METRICS_OF_KIND, HubRow, Splits, TaskInfo, hash_to_unit, hub_splits, in_tenth
from pairtune.data.table import binary_label
from pairtune.errors import UserError

MRPC_COLUMNS = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")

HOW_TO_GET_MRPC = (
    "msr_paraphrase_train.txt and msr_paraphrase_test.txt from Microsoft's Research Paraphrase Corpus (and GLUE's list "
    "dev_ids.tsv of the dev pairs) go in the folder mrpc of PAIRTUNE_DATA; with a network, nyu-mll/glue is fetched from "
    "the Hugging Face hub"
)


def load_mrpc(folder: Path) -> Splits:
    """msr_paraphrase_{train,test}.txt: TAB, header, no quoting, byte-order mark; dev_ids.tsv: the id pairs that are dev."""
    pairs, ids = _read_mrpc(need_file(folder, "msr_paraphrase_train.txt"))
    test, _ = _read_mrpc(need_file(folder, "msr_paraphrase_test.txt"))
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
    splits = hub_splits("nyu-mll/glue", "mrpc", HOW_TO_GET_MRPC)
    train, dev, test = (_hub_pairs(splits[name], "sentence1", "sentence2") for name in ("train", "validation", "test"))
    return Splits(train, dev, test)


def _read_mrpc(path: Path) -> tuple[PairSet, list[tuple[str, ...]]]:
    records = list(pick_columns(path, read_delimited(path), MRPC_COLUMNS))
    label = [binary_label(path, line, quality) for line, (quality, *_) in records]
    pairs = PairSet.of([fields[3] for _, fields in records], [fields[4] for _, fields in records], label)
    return pairs, [(first, second) for _, (_, first, second, *_) in records]


def _hub_pairs(rows: Iterable[HubRow], left: str, right: str) -> PairSet:
    """Pairs with labels as the hub has them. left, right: the columns of their texts."""
    rows = list(rows)
    return PairSet.of([row[left] for row in rows], [row[right] for row in rows], [float(row["label"]) for row in rows])


MRPC = TaskInfo(
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
    how=HOW_TO_GET_MRPC,
    folder="mrpc",
    load=load_mrpc,
    fetch=fetch_mrpc,
)


QQP_TRAIN_PAIRS = 10_000  # the paper samples as many

HOW_TO_GET_QQP = (
    "train.tsv, dev.tsv and test.tsv (TAB, a header with question1, question2 and label or is_duplicate, no quoting, "
    "labels in all three) go in the folder qqp of PAIRTUNE_DATA; with a network, nyu-mll/glue is fetched from the "
    "Hugging Face hub"
)


def load_qqp(folder: Path) -> Splits:
    """{train,dev,test}.tsv: TAB, header, no quoting; question1, question2, and label (GLUE calls it is_duplicate)."""
    train, dev, test = (_read_qqp(need_file(folder, f"{split}.tsv")) for split in ("train", "dev", "test"))
    note = f"train: all {len(train):,} pairs of train.tsv; the paper draws {QQP_TRAIN_PAIRS:,} at random from Quora's 404,290"
    return Splits(train, dev, test, notes=(note,))


def fetch_qqp() -> Splits:
    """GLUE's pairs from the hub. Its test labels are withheld: half of its validation pairs are dev, the others test."""
    splits = hub_splits("nyu-mll/glue", "qqp", HOW_TO_GET_QQP)
    train = sorted(splits["train"], key=_qqp_order)[:QQP_TRAIN_PAIRS]
    halves: tuple[list[HubRow], list[HubRow]] = ([], [])
    for row in splits["validation"]:
        halves[_qqp_order(row) < 0.5].append(row)
    notes = (
        f"train: {len(train):,} pairs drawn by a hash of their id from GLUE's train set",
        "dev and test: the two halves of GLUE's validation set, since its test labels are withheld",
    )
    first, second, third = (_hub_pairs(part, "question1", "question2") for part in (train, *halves))
    return Splits(first, second, third, notes)


def _read_qqp(path: Path) -> PairSet:
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


def _qqp_order(row: HubRow) -> float:
    return hash_to_unit(f"qqp:{row['idx']}")


QQP = TaskInfo(
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
    how=HOW_TO_GET_QQP,
    folder="qqp",
    load=load_qqp,
    fetch=fetch_qqp,
)


STSB_TOP = 5.0  # the highest score

HOW_TO_GET_STSB = (
    "Stsbenchmark.tar.gz from http://ixa2.si.ehu.eus/stswiki holds sts-train.csv, sts-dev.csv and sts-test.csv; put them "
    "in the folder stsb of PAIRTUNE_DATA; with a network, sentence-transformers/stsb is fetched from the Hugging Face hub"
)


def load_stsb(folder: Path) -> Splits:
    """sts-{train,dev,test}.csv: TAB, no header, no quoting; genre, file, year, id, score, s1, s2 and perhaps two sources."""
    train, dev, test = (_read_stsb(need_file(folder, f"sts-{split}.csv")) for split in ("train", "dev", "test"))
    return Splits(train, dev, test)


def fetch_stsb() -> Splits:
    """The same pairs from the hub, whose scores are already divided by 5."""
    splits = hub_splits("sentence-transformers/stsb", None, HOW_TO_GET_STSB)
    return Splits(_hub_stsb(splits["train"]), _hub_stsb(splits["validation"]), _hub_stsb(splits["test"]))


def _read_stsb(path: Path) -> PairSet:
    left, right, grade = [], [], []
    for row in read_delimited(path):
        if len(row.fields) not in (7, 9):
            raise UserError(f"{path} line {row.line}: {len(row.fields)} columns, expected 7 or 9 separated by TAB")
        left.append(row.fields[5].strip())
        right.append(row.fields[6].strip())
        grade.append(_stsb_score(path, row.line, row.fields[4]))
    return PairSet.of(left, right, [score / STSB_TOP for score in grade], grade=grade)


def _stsb_score(path: Path, line: int, field: str) -> float:
    try:
        score = float(field)
    except ValueError:
        score = math.nan
    if not 0 <= score <= STSB_TOP:
        raise UserError(f"{path} line {line}: the score is {field!r}, expected a number from 0 to 5")
    return score


def _hub_stsb(rows: Iterable[HubRow]) -> PairSet:
    rows = list(rows)
    label = [float(row["score"]) for row in rows]
    grade = [score * STSB_TOP for score in label]
    return PairSet.of([row["sentence1"] for row in rows], [row["sentence2"] for row in rows], label, grade=grade)


STSB = TaskInfo(
    name="stsb",
    kind="regression",
    metrics=METRICS_OF_KIND["regression"],
    positive_above=0.6,
    license="scores CC BY-SA 4.0; texts under the licenses of their sources (LICENSE.txt of the distribution)",
    citation="""@inproceedings{cer-etal-2017-semeval,
  title = {{S}em{E}val-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual Focused Evaluation},
  author = {Cer, Daniel and Diab, Mona and Agirre, Eneko and Lopez-Gazpio, I{\\~n}igo and Specia, Lucia},
  booktitle = {Proceedings of the 11th International Workshop on Semantic Evaluation ({S}em{E}val-2017)},
  year = {2017},
  pages = {1--14},
  doi = {10.18653/v1/S17-2001}
}""",
    how=HOW_TO_GET_STSB,
    folder="stsb",
    load=load_stsb,
    fetch=fetch_stsb,
)
