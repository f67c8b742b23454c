"""CQA-A and CQA-B: ranking the comments of a thread, and related questions (SemEval-2016 and 2017, Task 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pairtune.data.files import find_file, need_file, pick_columns, read_delimited
from pairtune.data.pairs import PairSet
from pairtune.data.splits import METRICS_OF_KIND, Splits, TaskInfo, single_spaces
from pairtune.errors import UserError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

A_PART1 = "SemEval2016-Task3-CQA-QL-train-part1-subtaskA.xml"
A_PART2 = "SemEval2016-Task3-CQA-QL-train-part2-subtaskA.xml"
A_TEST2016 = "SemEval2016-Task3-CQA-QL-test-subtaskA.xml"
A_2015 = tuple(f"SemEval2015-Task3-CQA-QL-{part}-reformatted-excluding-2016-questions-cleansed.xml" for part in ("dev", "train"))
A_DEV = "SemEval2016-Task3-CQA-QL-dev-subtaskA.xml"
A_TEST = ("SemEval2017-task3-English-test-subtaskA.xml", "SemEval2017-Task3-CQA-QL-test-subtaskA.xml")
A_GOLD = "SemEval2017-Task3-CQA-QL-test-subtaskA.xml.subtaskA.relevancy"

B_PART1 = ("SemEval2016-Task3-CQA-QL-train-part1.xml", "subtaskB-train-part1.tsv")
B_PART2 = "SemEval2016-Task3-CQA-QL-train-part2.xml"
B_DEV = "SemEval2016-Task3-CQA-QL-dev.xml"
B_TEST2016 = "SemEval2016-Task3-CQA-QL-test.xml"
B_TEST = ("SemEval2017-task3-English-test.xml", "SemEval2017-Task3-CQA-QL-test.xml", "subtaskB-test2017.tsv")
B_GOLD = "SemEval2017-Task3-CQA-QL-test.xml.subtaskB.relevancy"

COMMENTS = {"Good": 2, "PotentiallyUseful": 1, "Bad": 0}  # subtask A, where only the first is positive
QUESTIONS = {"PerfectMatch": 1, "Relevant": 1, "Irrelevant": 0}  # subtask B, whose TSV files do not tell the first two apart
TELLING = 30  # characters: two questions hardly begin with the same so many
UNKNOWN = "?"  # the label in the files of the 2017 test

HOW_TO_GET = (
    "the XML files of SemEval-2016 Task 3 (train, dev, test) and of the SemEval-2017 English test, with the .relevancy files "
    "of its scorer, from https://alt.qcri.org/semeval2017/task3/ go in the folder cqa of PAIRTUNE_DATA, sub-folders and all"
)


@dataclass(frozen=True)
class ForumText:
    """A text to be ranked for a question, as the file gives it; good is None where the file says "?".

    grade: as the tables above, 0 for "?"; from a file that says no more than whether it is good, 0 or 1. cut: the text is only
    what stands before its first comma.
    """

    query: str
    name: str
    question: str
    text: str
    good: bool | None
    grade: int
    cut: bool = False


def load_cqa_a(folder: Path) -> Splits:
    """The first ten comments of a thread, in order of time; positive means `Good`."""
    dev = read_comments(need_file(folder, A_DEV))
    test = _with_gold(read_comments(need_file(folder, *A_TEST)), need_file(folder, A_GOLD))
    paths = [path for name in (A_PART1,) if (path := find_file(folder, name))]
    notes = ["train: train-part1, as in the paper"] if paths else []
    threads = None if paths else find_file(folder, B_PART1[0])
    if threads:
        notes = [f"train: {threads.name}, its threads, each once, with their comments; those of the paper's file are among them"]
    elif not paths:
        paths = [path for name in (A_PART2, A_TEST2016, *A_2015) if (path := find_file(folder, name))]
        notes = [f"train: {A_PART1} is not there, so instead of the paper's train set: {', '.join(path.name for path in paths)}"]
    if not paths and not threads:
        raise UserError(f"{folder}: no file {A_PART1} in it, nor {', '.join((A_PART2, A_TEST2016, *A_2015))}: {HOW_TO_GET}")
    found = once(read_comments(threads)) if threads else [candidate for path in paths for candidate in read_comments(path)]
    train = _without_questions_of([*dev, *test], found, notes)
    path = find_file(folder, A_TEST2016)
    if path in paths:
        notes.append("test2016 is part of train here: a model tuned on this task has seen it")
    extra = {"test2016": _pairs(read_comments(path))} if path else {}
    return Splits(_pairs(train), _pairs(dev), _pairs(test), tuple(notes), extra)


def once(candidates: Sequence[ForumText]) -> list[ForumText]:
    """The comments of each thread once: in files of subtask B a thread stands with every question that it was found for."""
    threads: dict[str, str] = {}
    return [one for one in candidates if threads.setdefault(one.question, one.query) == one.query]


def load_cqa_b(folder: Path) -> Splits:
    """Ten questions that a search engine found for a question, in its order; positive means `PerfectMatch` or `Relevant`."""
    dev = read_questions(need_file(folder, B_DEV))
    notes: list[str] = []
    test = _made_whole(folder, read_questions(need_file(folder, *B_TEST)), notes)
    test = _with_gold(test, need_file(folder, B_GOLD))
    path = need_file(folder, *B_PART1)
    notes.insert(0, f"train: {path.name}; the paper's 19,990 and 5,500 count comments, not pairs of questions")
    train = _without_questions_of([*dev, *test], read_questions(path), notes)
    others = {"test2016": find_file(folder, B_TEST2016), "train-part2": find_file(folder, B_PART2)}
    extra = {name: _pairs(read_questions(found)) for name, found in others.items() if found}
    if "train-part2" in extra:
        notes.append("train-part2 is a split of its own: noisier, and not part of train, as in the paper")
    return Splits(_pairs(train), _pairs(dev), _pairs(test), tuple(notes), extra)


def read_comments(path: Path) -> list[ForumText]:
    """The comments of every thread of a subtask A file."""
    candidates = []
    for thread in parse_xml(path).iter("Thread"):
        related = _child(path, thread, "RelQuestion")
        question = _subject_and_body(related, "RelQ")
        for comment in thread.findall("RelComment"):
            grade = _grade(path, comment, "RELC_RELEVANCE2RELQ", COMMENTS)
            good = None if grade is None else grade == 2
            text = single_spaces(comment.findtext("RelCText") or "")
            names = related.get("RELQ_ID", ""), comment.get("RELC_ID", "")
            candidates.append(ForumText(*names, question, text, good, grade or 0))
    return candidates


def read_questions(path: Path) -> list[ForumText]:
    """The related questions of a subtask B file, XML or TSV."""
    if path.suffix == ".tsv":
        columns = ("orgq_id", "relq_id", "orgq", "relq", "label")
        records = pick_columns(path, read_delimited(path), columns)
        return [
            ForumText(
                query,
                name,
                single_spaces(question),
                unquote(single_spaces(text)),
                label == "1",
                int(label == "1"),
                is_cut(single_spaces(text)),
            )
            for _, (query, name, question, text, label) in records
        ]
    candidates = []
    for original in parse_xml(path).iter("OrgQuestion"):
        question = _subject_and_body(original, "OrgQ")
        for related in original.iter("RelQuestion"):
            grade = _grade(path, related, "RELQ_RELEVANCE2ORGQ", QUESTIONS)
            good = None if grade is None else grade > 0
            text = _subject_and_body(related, "RelQ")
            names = original.get("ORGQ_ID", ""), related.get("RELQ_ID", "")
            candidates.append(ForumText(*names, question, text, good, grade or 0))
    return candidates


def unquote(text: str) -> str:
    """A text of the TSV files without the `|` around it, which is their quotation mark, doubled inside.

    >>> unquote("|picture [img||width=440|"), unquote("|Coming to Doha. Hi there"), unquote("a | b")
    ('picture [img|width=440', 'Coming to Doha. Hi there', 'a | b')
    """
    if not text.startswith("|"):
        return text
    return text[1:].removesuffix("" if is_cut(text) else "|").replace("||", "|")


def is_cut(text: str) -> bool:
    """Whether a quotation is opened and not closed: whoever made the file split the text at its first comma.

    >>> is_cut("|a"), is_cut("|a||"), is_cut("|a|"), is_cut("a|")
    (True, True, False, False)
    """
    inside = text[1:]
    return text.startswith("|") and (len(inside) - len(inside.rstrip("|"))) % 2 == 0


def _made_whole(folder: Path, candidates: Sequence[ForumText], notes: list[str]) -> Sequence[ForumText]:
    """The candidates with the whole text of those that are cut and that the subtask A file of the same test has too."""
    cut = sum(candidate.cut for candidate in candidates)
    if not cut:
        return candidates
    path = next(filter(None, (find_file(folder, name) for name in A_TEST)), None)
    whole = {comment.query: comment.question for comment in read_comments(path)} if path else {}
    found = [_mend(one, whole) if one.cut else one for one in candidates]
    mended = cut - sum(candidate.cut for candidate in found)
    notes.append(
        f"test: {cut} of {len(candidates)} related questions are cut at their first comma in the TSV file; {mended} are whole "
        f"again, from the file of subtask A, {cut - mended} are not"
    )
    return found


def _mend(candidate: ForumText, whole: dict[str, str]) -> ForumText:
    """By its name; or, since a question may be related to several, as the only one that goes on with a comma where this ends."""
    beginning = f"{candidate.text},"
    fits = {name: text for name, text in whole.items() if text.replace(" ,", ",").startswith(beginning)}
    if candidate.name in whole:
        texts = {fits[candidate.name]} if candidate.name in fits else set()
    else:
        texts = {*fits.values()} if len(beginning) > TELLING else set()
    return replace(candidate, text=texts.pop(), cut=False) if len(texts) == 1 else candidate


def parse_xml(path: Path) -> Element:
    """The root of an XML file that may carry a DTD, but declares no entity: none is expanded, nothing outside is read."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, parse

    try:
        return parse(path, forbid_dtd=False, forbid_entities=True, forbid_external=True).getroot()
    except DefusedXmlException as problem:
        raise UserError(f"{path}: refused, since it declares an entity ({problem}); the originals declare none") from problem
    except ParseError as problem:
        raise UserError(f"{path} line {problem.position[0]}: not well-formed XML ({problem}); fetch the file again") from problem


def _without_questions_of(held_out: Sequence[ForumText], train: Sequence[ForumText], notes: list[str]) -> list[ForumText]:
    """Train without the threads whose question (subject and body) is also asked in dev or test; a note says how many."""
    questions = {candidate.question for candidate in held_out}
    kept = [candidate for candidate in train if candidate.question not in questions]
    if len(kept) < len(train):
        threads = {candidate.query for candidate in train if candidate.question in questions}
        notes.append(
            "train: threads left out because their question is also in dev or test: "
            f"{len(threads)} ({len(train) - len(kept)} pairs)"
        )
    return kept


def _with_gold(candidates: Iterable[ForumText], path: Path) -> list[ForumText]:
    """The candidates with the labels of a .relevancy file: query, name, rank, score, true or false."""
    gold = {}
    for row in read_delimited(path):
        if len(row.fields) != 5 or row.fields[4] not in ("true", "false"):
            raise UserError(f"{path} line {row.line}: expected five columns, the last one true or false")
        gold[row.fields[1]] = row.fields[4] == "true"
    labelled = []
    for candidate in candidates:
        if candidate.name not in gold:
            raise UserError(f"{path}: no line for {candidate.name}; it is not the gold standard of the test file beside it")
        labelled.append(replace(candidate, good=gold[candidate.name], grade=int(gold[candidate.name])))
    return labelled


def _pairs(candidates: Sequence[ForumText]) -> PairSet:
    for candidate in candidates:
        if candidate.good is None:
            raise UserError(f'cqa: {candidate.name} has the label "?"; give the labelled file (only the 2017 test has none)')
    return PairSet.of(
        [candidate.question for candidate in candidates],
        [candidate.text for candidate in candidates],
        [float(bool(candidate.good)) for candidate in candidates],
        query=[candidate.query for candidate in candidates],
        grade=[candidate.grade for candidate in candidates],
    )


def _subject_and_body(element: Element, prefix: str) -> str:
    """Joined by a full stop, always: that is what the TSV files of subtask B hold, and texts must look the same in all."""
    subject, body = (single_spaces(element.findtext(f"{prefix}{part}") or "") for part in ("Subject", "Body"))
    return f"{subject}. {body}".strip()


def _child(path: Path, element: Element, name: str) -> Element:
    child = element.find(name)
    if child is None:
        raise UserError(f"{path}: a <{element.tag}> without <{name}>; expected a SemEval Task 3 file")
    return child


def _grade(path: Path, element: Element, attribute: str, known: dict[str, int]) -> int | None:
    value = element.get(attribute, "")
    if value == UNKNOWN:
        return None
    if value not in known:
        raise UserError(f"{path}: {attribute} is {value!r}, expected one of {', '.join(known)}")
    return known[value]


LICENSE = "free for general research use"
SEMEVAL = """@inproceedings{nakov-etal-2017-semeval,
  title = {{S}em{E}val-2017 Task 3: Community Question Answering},
  author = {Nakov, Preslav and Hoogeveen, Doris and M{\\`a}rquez, Llu{\\'i}s and Moschitti, Alessandro and
            Mubarak, Hamdy and Baldwin, Timothy and Verspoor, Karin},
  booktitle = {Proceedings of the 11th International Workshop on Semantic Evaluation ({S}em{E}val-2017)},
  year = {2017},
  pages = {27--48},
  doi = {10.18653/v1/S17-2003}
}"""

INFO_A = TaskInfo("cqa-a", "ranking", METRICS_OF_KIND["ranking"], LICENSE, SEMEVAL, HOW_TO_GET, folder="cqa", load=load_cqa_a)
INFO_B = TaskInfo("cqa-b", "ranking", METRICS_OF_KIND["ranking"], LICENSE, SEMEVAL, HOW_TO_GET, folder="cqa", load=load_cqa_b)
