"""CQA: which files are taken, what is left out, and that XML can do no harm."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from pairtune.data.datasets import load_task
from pairtune.data.datasets.cqa import (
    A_2015,
    A_DEV,
    A_GOLD,
    A_PART1,
    A_PART2,
    A_TEST,
    A_TEST2016,
    B_DEV,
    B_GOLD,
    B_PART1,
    B_PART2,
    B_TEST,
    parse_xml,
    read_comments,
)
from pairtune.errors import UserError

DTD = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE xml [
<!ELEMENT xml (Thread*)>
<!ATTLIST xml version CDATA #REQUIRED>
<!ELEMENT RelQSubject (#PCDATA)>
]>
"""


def thread(name: str, subject: str, labels: str, body: str = "body & soul") -> str:
    words = {"g": "Good", "p": "PotentiallyUseful", "b": "Bad", "?": "?"}
    comments = "".join(
        f'<RelComment RELC_ID="{name}_C{i}" RELC_RELEVANCE2RELQ="{words[letter]}"><RelCText>comment {i}\n</RelCText></RelComment>'
        for i, letter in enumerate(labels, start=1)
    )
    return (
        f'<Thread THREAD_SEQUENCE="{name}"><RelQuestion RELQ_ID="{name}"><RelQSubject>{escape(subject)}</RelQSubject>'
        f"<RelQBody>{escape(body)}</RelQBody></RelQuestion>{comments}</Thread>"
    )


def related(name: str, label: str) -> str:
    query = name.split("_")[0]
    return (
        f'<OrgQuestion ORGQ_ID="{query}"><OrgQSubject>S{query}</OrgQSubject><OrgQBody></OrgQBody><Thread>'
        f'<RelQuestion RELQ_ID="{name}" RELQ_RELEVANCE2ORGQ="{label}"><RelQSubject>related?</RelQSubject>'
        f"<RelQBody>{name}</RelQBody></RelQuestion></Thread></OrgQuestion>"
    )


def document(*parts: str) -> str:
    return DTD + '<xml version="1.0">' + "".join(parts) + "</xml>"


def gold(names: str, labels: str) -> str:
    lines = zip(names.split(), labels.split(), strict=True)
    return "".join(f"{name.rsplit('_', 1)[0]}\t{name}\t1\t0.5\t{label}\n" for name, label in lines)


@pytest.fixture
def cqa(tmp_path: Path) -> Path:
    folder = tmp_path / "cqa"
    files = {
        A_PART2: document(thread("Q1_R1", "one", "gpb")),
        A_TEST2016: document(thread("Q2_R1", "two", "gb"), thread("Q2_R2", "asked again", "gb")),
        A_2015[0]: document(thread("Q3", "three", "b")),
        f"train-more/{A_2015[1]}": document(thread("Q4", "four", "g")),
        A_DEV: document(thread("Q5_R1", "five", "gb")),
        A_TEST[0]: document(thread("Q6_R1", "six", "??"), thread("Q6_R2", "asked  again", "??")),
        A_GOLD: gold("Q6_R1_C1 Q6_R1_C2 Q6_R2_C1 Q6_R2_C2", "true false false false"),
        B_PART1[1]: 'orgq_id\trelq_id\tlabel3\tlabel\torgq\trelq\nQ1\tQ1_R1\t?\t1\tS. "b\tT. c\nQ1\tQ1_R9\t?\t0\tS. "b\tU. d\n',
        B_DEV: document(related("Q7_R1", "PerfectMatch"), related("Q7_R2", "Irrelevant"), related("Q8_R1", "Relevant")),
        B_TEST[2]: "orgq_id\trelq_id\tlabel3\tlabel\torgq\trelq\nQ9\tQ9_R1\t?\t0\tS. b\tT. c\n",
        B_GOLD: gold("Q9_R1", "true"),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_train_is_what_is_there_less_the_questions_of_the_test(cqa):
    task = load_task("cqa-a", cqa)
    assert task.train.query.tolist() == ["Q1_R1"] * 3 + ["Q2_R1"] * 2 + ["Q3", "Q4"]
    assert task.train.label.tolist() == [1, 0, 0, 1, 0, 0, 1]
    assert task.train.left[0] == "one. body & soul" and task.train.right[:2] == ("comment 1", "comment 2")
    assert "train: threads left out because their question is also in dev or test: 1 (2 pairs)" in task.notes
    assert task.test.label.tolist() == [1, 0, 0, 0] and len(task.split("test2016")) == 4


def test_the_first_part_of_the_train_set_is_preferred_as_in_the_paper(cqa):
    (cqa / "cqa" / A_PART1).write_text(document(thread("Q100_R1", "hundred", "gg")), encoding="utf-8")
    task = load_task("cqa-a", cqa)
    assert task.train.query.tolist() == ["Q100_R1"] * 2 and task.notes == ("train: train-part1, as in the paper",)
    assert len(task.split("test2016")) == 4


def test_without_it_the_threads_of_subtask_b_are_train_each_of_them_once(cqa):
    threads = document(thread("Q100_R1", "hundred", "gb"), thread("Q101_R7", "hundred", "gb"), thread("Q102_R1", "other", "b"))
    (cqa / "cqa" / B_PART1[0]).write_text(threads, encoding="utf-8")
    task = load_task("cqa-a", cqa)
    assert task.train.query.tolist() == ["Q100_R1", "Q100_R1", "Q102_R1"]
    assert task.notes[0].startswith(f"train: {B_PART1[0]}, its threads, each once")


@pytest.mark.parametrize(("own", "threads"), [(A_PART2, B_PART2), (A_DEV, B_DEV)])
def test_every_comment_of_subtask_a_stands_in_the_threads_of_subtask_b_with_its_label(real_data, own, threads):
    found = [{(one.question, one.text, one.grade) for one in read_comments(real_data / "cqa" / name)} for name in (own, threads)]
    assert found[0] < found[1]


def test_gold_must_cover_every_comment_of_the_test(cqa):
    (cqa / "cqa" / A_GOLD).write_text(gold("Q6_R1_C1", "true"))
    with pytest.raises(UserError, match=r"relevancy: no line for Q6_R1_C2"):
        load_task("cqa-a", cqa)


def test_an_unknown_label_is_refused(cqa):
    path = cqa / "cqa" / A_DEV
    path.write_text(path.read_text().replace('"Good"', '"Great"'))
    with pytest.raises(UserError, match=r"RELC_RELEVANCE2RELQ is 'Great', expected one of Good, PotentiallyUseful, Bad"):
        load_task("cqa-a", cqa)


def test_a_training_file_without_labels_is_refused(cqa):
    (cqa / "cqa" / A_PART2).write_text(document(thread("Q1_R1", "one", "g?")))
    with pytest.raises(UserError, match=r'Q1_R1_C2 has the label "\?"'):
        load_task("cqa-a", cqa)


def test_related_questions_come_from_tsv_and_xml(cqa):
    task = load_task("cqa-b", cqa)
    assert task.train.left[0] == 'S. "b' and task.train.right == ("T. c", "U. d") and task.train.label.tolist() == [1, 0]
    assert task.dev.left[0] == "SQ7." and task.dev.right[0] == "related?. Q7_R1"
    assert task.dev.label.tolist() == [1, 0, 1] and task.dev.query.tolist() == ["Q7", "Q7", "Q8"]
    assert task.test.label.tolist() == [1]  # the gold standard, not the column


def test_the_users_xml_of_related_questions_is_preferred(cqa):
    (cqa / "cqa" / B_PART1[0]).write_text(document(related("Q50_R1", "Relevant")))
    assert load_task("cqa-b", cqa).train.query.tolist() == ["Q50"]


BILLION_LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE xml [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {new} "{("&" + old + ";") * 10}">' for old, new in zip("abcdefgh", "bcdefghi", strict=True))
    + "]><xml><Thread>&i;</Thread></xml>"
)
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE xml [<!ENTITY a SYSTEM "file:///etc/hostname">]><xml>&a;</xml>'
PARAMETER = '<?xml version="1.0"?><!DOCTYPE xml [<!ENTITY % a SYSTEM "file:///etc/hostname"> %a;]><xml/>'


@pytest.mark.parametrize("attack", [BILLION_LAUGHS, OUTSIDE, PARAMETER])
def test_a_file_that_declares_an_entity_is_refused(cqa, attack):
    (cqa / "cqa" / A_DEV).write_text(attack)
    with pytest.raises(UserError, match=r"dev-subtaskA\.xml: refused, since it declares an entity"):
        load_task("cqa-a", cqa)


def test_a_dtd_elsewhere_is_not_read(tmp_path):
    (tmp_path / "secret.dtd").write_text('<!ENTITY a "leaked">')
    path = tmp_path / "file.xml"
    path.write_text(f'<?xml version="1.0"?><!DOCTYPE xml SYSTEM "{(tmp_path / "secret.dtd").as_uri()}"><xml>&a;</xml>')
    with pytest.raises(UserError, match=r"refused|not well-formed"):
        parse_xml(path)


def test_a_truncated_file_is_refused_with_the_line(cqa):
    path = cqa / "cqa" / A_DEV
    path.write_text(path.read_text()[:-30])
    with pytest.raises(UserError, match=r"dev-subtaskA\.xml line 9: not well-formed XML"):
        load_task("cqa-a", cqa)


def test_a_comment_that_is_potentially_useful_is_half_good_only_where_grades_are_asked_for(cqa):
    from pairtune.data.material import graded

    train = load_task("cqa-a", cqa).train
    assert set(train.label) == {0.0, 1.0}
    half = train.grade == 1
    assert half.any() and not train.label[half].any()
    labels = graded(train).label
    assert set(labels[half]) == {0.5} and set(labels[~half]) == {0.0, 1.0}
    assert (labels[train.label == 1] == 1).all()


def test_a_text_that_the_file_of_the_test_cuts_at_a_comma_is_whole_again_where_subtask_a_has_it(cqa):
    several, alike = "a question that is related to several", "a question that begins just like another one"
    threads = {
        "Q9_R1": ("by name", "Salam, I need one; is there any, and where?"),
        "Q8_R4": (several, "Salam , I need one"),
        "Q8_R5": ("Hi", "Hi, too short to be sure"),
        "Q8_R6": (alike, "a, b"),
        "Q8_R7": (alike, "a, c"),
    }
    (cqa / "cqa" / A_TEST[0]).write_text(document(*(thread(name, one, "??", body) for name, (one, body) in threads.items())))
    texts = ["|by name. Salam", f"|{several}. Salam", "|Hi. Hi", f"|{alike}. a", "none | here", "|[img||w=4], whole|"]
    names = [f"Q9_R{number}" for number in range(1, 7)]
    rows = [f"Q9\t{name}\t?\t0\tS. b\t{text}\n" for name, text in zip(names, texts, strict=True)]
    (cqa / "cqa" / B_TEST[2]).write_text("orgq_id\trelq_id\tlabel3\tlabel\torgq\trelq\n" + "".join(rows))
    (cqa / "cqa" / B_GOLD).write_text(gold(" ".join(names), " ".join(["true"] * 6)))
    task = load_task("cqa-b", cqa)
    whole = [f"by name. {threads['Q9_R1'][1]}", f"{several}. {threads['Q8_R4'][1]}"]
    assert task.test.right == (*whole, "Hi. Hi", f"{alike}. a", "none | here", "[img|w=4], whole")
    assert any("4 of 6 related questions are cut" in note and "2 are whole again" in note for note in task.notes)
    (cqa / "cqa" / A_TEST[0]).unlink()
    assert "0 are whole again, from the file of subtask A, 4 are not" in load_task("cqa-b", cqa).notes[1]
