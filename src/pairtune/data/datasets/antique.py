"""Antique: ranking the answers to non-factoid questions, graded 1 to 4 (Hashemi et al., 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pairtune.data.files import need_file, read_lines
from pairtune.data.pairs import PairSet
from pairtune.data.splits import Splits, TaskInfo, in_tenth
from pairtune.errors import UserError
from pairtune.progress import say

HOW_TO_GET = (
    "antique-collection.txt, antique-{train,test}-queries.txt and antique-{train,test}.qrel from "
    "https://ciir.cs.umass.edu/downloads/Antique/ go in the folder antique of PAIRTUNE_DATA; with a network, "
    "`pip install ir_datasets` lets them be fetched"
)


@dataclass(frozen=True)
class Judgement:
    """One answer to one question, by their ids, and its grade from 1 (out of context) to 4 (convincing)."""

    question: str
    answer: str
    grade: int


def load_antique(folder: Path) -> Splits:
    """The .qrel files (question, iteration, answer, grade; TABs and spaces mixed), the questions and the collection."""
    judged = {split: _read_judgements(need_file(folder, f"antique-{split}.qrel")) for split in ("train", "test")}
    questions: dict[str, str] = {}
    for split in judged:
        questions |= _read_texts(need_file(folder, f"antique-{split}-queries.txt"))
    wanted = {item.answer for items in judged.values() for item in items}
    answers = _read_texts(need_file(folder, "antique-collection.txt"), wanted)
    return _splits(judged, questions, answers)


def fetch_antique() -> Splits:
    """The complete dataset through the optional package ir_datasets, which downloads it once."""
    try:
        import ir_datasets
    except ImportError as problem:
        raise UserError(f"antique was not found on this machine, and ir_datasets is not installed: {HOW_TO_GET}") from problem
    say("fetching Antique through ir_datasets, once")
    judged: dict[str, list[Judgement]] = {}
    questions: dict[str, str] = {}
    try:
        for split in ("train", "test"):
            source = ir_datasets.load(f"antique/{split}")
            judged[split] = [Judgement(row.query_id, row.doc_id, int(row.relevance)) for row in source.qrels_iter()]
            questions |= {row.query_id: row.text for row in source.queries_iter()}
        wanted = {item.answer for items in judged.values() for item in items}
        found = ir_datasets.load("antique").docs_store().get_many(wanted)
    except (OSError, RuntimeError, ValueError) as problem:
        raise UserError(f"ir_datasets could not fetch antique ({problem}); bring the files: {HOW_TO_GET}") from problem
    return _splits(judged, questions, {name: document.text for name, document in found.items()})


def _splits(judged: Mapping[str, Sequence[Judgement]], questions: Mapping[str, str], answers: Mapping[str, str]) -> Splits:
    train, train_note = _pairs("train", judged["train"], questions, answers)
    test, test_note = _pairs("test", judged["test"], questions, answers)
    dev = in_tenth(list(train.query))
    notes = (
        *filter(None, (train_note, test_note)),
        f"dev: a tenth of the train questions ({len(set(train.query[dev]))} of {len(set(train.query))}), by a hash of their id",
    )
    return Splits(train.take(~dev), train.take(dev), test, notes=notes)


def _pairs(
    split: str, judged: Sequence[Judgement], questions: Mapping[str, str], answers: Mapping[str, str]
) -> tuple[PairSet, str]:
    """The pairs of the questions whose every answer has a text: a ranking of some of the answers would be another task."""
    missing = {item.question for item in judged if not answers.get(item.answer) or not questions.get(item.question)}
    kept = [item for item in judged if item.question not in missing]
    if not kept:
        raise UserError(
            f"antique: no {split} question has the texts of all its answers; the collection does not fit: {HOW_TO_GET}"
        )
    pairs = PairSet.of(
        [questions[item.question] for item in kept],
        [answers[item.answer] for item in kept],
        [(item.grade - 1) / 3 for item in kept],
        query=[item.question for item in kept],
        grade=[item.grade for item in kept],
    )
    return pairs, _skipped(split, judged, kept, answers)


def _skipped(split: str, judged: Sequence[Judgement], kept: Sequence[Judgement], answers: Mapping[str, str]) -> str:
    if len(kept) == len(judged):
        return ""
    without = sum(not answers.get(item.answer) for item in judged)
    return (
        f"{split}: {len(kept):,} of {len(judged):,} rows kept, all answers of {len({item.question for item in kept}):,} of "
        f"{len({item.question for item in judged}):,} questions; skipped: {without:,} rows with ids and a grade but no text, "
        f"and {len(judged) - len(kept) - without:,} more of the same questions"
    )


def _read_judgements(path: Path) -> list[Judgement]:
    judged = []
    for line, text in read_lines(path):
        fields = text.split()
        if len(fields) != 4 or fields[3] not in ("1", "2", "3", "4"):
            raise UserError(f"{path} line {line}: {text!r}, expected question id, iteration, answer id and a grade from 1 to 4")
        judged.append(Judgement(fields[0], fields[2], int(fields[3])))
    return judged


def _read_texts(path: Path, wanted: set[str] | None = None) -> dict[str, str]:
    texts = {}
    for line, row in read_lines(path):
        name, tab, text = row.partition("\t")
        if not tab:
            raise UserError(f"{path} line {line}: no TAB in it, expected an id, a TAB and a text")
        if wanted is None or name in wanted:
            texts[name] = text.strip()
    return texts


INFO = TaskInfo(
    name="antique",
    kind="ranking",
    metrics=("MRR", "P@1", "nDCG@1"),
    license="research use, as stated by the authors",
    citation="""@inproceedings{hashemi-etal-2020-antique,
  title = {{ANTIQUE}: A Non-factoid Question Answering Benchmark},
  author = {Hashemi, Helia and Aliannejadi, Mohammad and Zamani, Hamed and Croft, W. Bruce},
  booktitle = {Advances in Information Retrieval: 42nd European Conference on {IR} Research ({ECIR} 2020)},
  year = {2020},
  pages = {166--173}
}""",
    how=HOW_TO_GET,
    folder="antique",
    load=load_antique,
    fetch=fetch_antique,
)
