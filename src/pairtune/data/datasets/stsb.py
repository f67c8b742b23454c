"""STSb: how similar two sentences are, 0 to 5 (Cer et al., 2017)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from pairtune.data.files import need_file, read_delimited
from pairtune.data.info import METRICS_OF_KIND, HubRow, Splits, TaskInfo, hub_splits
from pairtune.data.pairs import PairSet
from pairtune.errors import UserError

TOP = 5.0  # the highest score

HOW_TO_GET = (
    "Stsbenchmark.tar.gz from http://ixa2.si.ehu.eus/stswiki holds sts-train.csv, sts-dev.csv and sts-test.csv; put them "
    "in the folder stsb of PAIRTUNE_DATA; with a network, sentence-transformers/stsb is fetched from the Hugging Face hub"
)


def load_stsb(folder: Path) -> Splits:
    """sts-{train,dev,test}.csv: TAB, no header, no quoting; genre, file, year, id, score, s1, s2 and perhaps two sources."""
    train, dev, test = (_read(need_file(folder, f"sts-{split}.csv")) for split in ("train", "dev", "test"))
    return Splits(train, dev, test)


def fetch_stsb() -> Splits:
    """The same pairs from the hub, whose scores are already divided by 5."""
    splits = hub_splits("sentence-transformers/stsb", None, HOW_TO_GET)
    return Splits(_from_hub(splits["train"]), _from_hub(splits["validation"]), _from_hub(splits["test"]))


def _read(path: Path) -> PairSet:
    left, right, grade = [], [], []
    for row in read_delimited(path):
        if len(row.fields) not in (7, 9):
            raise UserError(f"{path} line {row.line}: {len(row.fields)} columns, expected 7 or 9 separated by TAB")
        left.append(row.fields[5].strip())
        right.append(row.fields[6].strip())
        grade.append(_score(path, row.line, row.fields[4]))
    return PairSet.of(left, right, [score / TOP for score in grade], grade=grade)


def _score(path: Path, line: int, field: str) -> float:
    try:
        score = float(field)
    except ValueError:
        score = math.nan
    if not 0 <= score <= TOP:
        raise UserError(f"{path} line {line}: the score is {field!r}, expected a number from 0 to 5")
    return score


def _from_hub(rows: Iterable[HubRow]) -> PairSet:
    rows = list(rows)
    label = [float(row["score"]) for row in rows]
    grade = [score * TOP for score in label]
    return PairSet.of([row["sentence1"] for row in rows], [row["sentence2"] for row in rows], label, grade=grade)


INFO = TaskInfo(
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
    how=HOW_TO_GET,
    folder="stsb",
    load=load_stsb,
    fetch=fetch_stsb,
)
