"""The loaders on small files in the original formats, made here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pairtune.data.datasets import load_task
from pairtune.errors import UserError

STS_ROW = 'main-news\tMSRpar\t2012\t{id}\t{score}\tHe said "no.\tShe "said" no\n'


def write(folder: Path, files: dict[str, str], encoding: str = "utf-8") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding=encoding, newline="")
    return folder.parent


@pytest.fixture
def stsb(tmp_path: Path) -> Path:
    row = STS_ROW.format(id="0001", score="3.800")
    sourced = row.rstrip("\n") + "\tsource one\tsource two\n"
    return write(tmp_path / "stsb", {"sts-train.csv": row + sourced, "sts-dev.csv": row, "sts-test.csv": sourced})


def test_stsb_reads_seven_and_nine_columns_and_leaves_quotation_marks_alone(stsb):
    task = load_task("stsb", stsb)
    assert task.train.left == ('He said "no.',) * 2 and task.train.right[1] == 'She "said" no'
    assert task.train.label.tolist() == pytest.approx([0.76, 0.76]) and task.train.grade.tolist() == pytest.approx([3.8, 3.8])
    assert (task.kind, task.metric, task.positive_above) == ("regression", "Spearman", 0.6)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (STS_ROW.format(id="2", score="5.5"), r"sts-dev.csv line 2: the score is '5.5', expected a number from 0 to 5"),
        (STS_ROW.format(id="2", score="nan"), r"line 2: the score is 'nan'"),
        ("news\tMSRpar\t2012\t1\t3.0\tonly one\n", r"line 2: 6 columns, expected 7 or 9"),
    ],
)
def test_stsb_names_the_file_and_the_line_of_a_bad_row(stsb, row, message):
    write(stsb / "stsb", {"sts-dev.csv": STS_ROW.format(id="1", score="1.0") + row})
    with pytest.raises(UserError, match=message):
        load_task("stsb", stsb)


def test_a_missing_file_is_named(stsb):
    (stsb / "stsb" / "sts-test.csv").unlink()
    with pytest.raises(UserError, match=r"stsb: no file sts-test\.csv in it"):
        load_task("stsb", stsb)


def mrpc_rows(count: int, first: int = 0) -> str:
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    return header + "".join(f'{i % 2}\t{i}\t{i + 1000}\tleft "{i}\tright {i}\r\n' for i in range(first, first + count))


def test_mrpc_takes_the_listed_dev_pairs_out_of_train(tmp_path):
    files = {"msr_paraphrase_train.txt": mrpc_rows(20), "msr_paraphrase_test.txt": mrpc_rows(3, first=50)}
    data = write(tmp_path / "mrpc", files, encoding="utf-8-sig")
    write(tmp_path / "mrpc", {"dev_ids.tsv": "3\t1003\n7\t1007\n99\t1099\n"})
    task = load_task("mrpc", data)
    assert task.dev.left == ('left "3', 'left "7') and len(task.train) == 18 and len(task.test) == 3
    assert task.train.left[0] == 'left "0' and task.train.right[0] == "right 0" and task.train.label[:2].tolist() == [0, 1]
    assert "listed pairs that are not in the train file: 1" in task.notes[0]


def test_mrpc_without_the_list_takes_a_tenth_and_says_so(tmp_path):
    files = {"msr_paraphrase_train.txt": mrpc_rows(40), "msr_paraphrase_test.txt": mrpc_rows(3, first=50)}
    task = load_task("mrpc", write(tmp_path / "mrpc", files))
    assert len(task.dev) == 4 and len(task.train) == 36 and "no dev_ids.tsv" in task.notes[0]


def test_qqp_reads_both_names_of_the_label_and_refuses_a_file_without_one(tmp_path):
    own = 'id\tquestion1\tquestion2\tlabel\n1\tWhat "is it?\tWhat is it?\t1\n'
    glue = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tWhy?\tHow?\t0\n"
    data = write(tmp_path / "qqp", {"train.tsv": own, "dev.tsv": glue, "test.tsv": own})
    task = load_task("qqp", data)
    assert task.train.left == ('What "is it?',) and task.dev.right == ("How?",) and task.dev.label.tolist() == [0]
    write(tmp_path / "qqp", {"test.tsv": "id\tquestion1\tquestion2\n1\ta\tb\n"})
    with pytest.raises(UserError, match=r"test\.tsv: no column label or is_duplicate; .*GLUE withholds"):
        load_task("qqp", data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id\tquestion1\tquestion2\tlabel\n1\ta\tb\t2\n", r"train\.tsv line 2: the label is '2', expected 0 or 1"),
        ("id\tquestion1\tquestion2\tlabel\n1\ta\tb\n", r"train\.tsv line 2: 3 fields, but the header has 4"),
        ("", r"train\.tsv: the file is empty"),
    ],
)
def test_qqp_names_the_line_of_a_bad_row(tmp_path, text, message):
    good = "id\tquestion1\tquestion2\tlabel\n1\ta\tb\t1\n"
    data = write(tmp_path / "qqp", {"train.tsv": text, "dev.tsv": good, "test.tsv": good})
    with pytest.raises(UserError, match=message):
        load_task("qqp", data)


@pytest.fixture
def antique(tmp_path: Path) -> Path:
    train = "".join(f"q{i}\tU0\tq{i}_0\t4\nq{i} Q0 q{i}_1 {1 + i % 3}\n" for i in range(20))
    texts = "".join(f"q{i}_{j}\tanswer {j}\tto {i}\n" for i in range(18) for j in (0, 1)) + "q18_0\tlonely\n"
    files = {
        "antique-train.qrel": train,
        "antique-test.qrel": "t1 U0 q0_0 1\nt1 Q0 q1_0 3\n",
        "antique-train-queries.txt": "".join(f"q{i}\tquestion {i}?\n" for i in range(20)),
        "antique-test-queries.txt": "t1\ttest?\n",
        "antique-collection.txt": texts,
    }
    return write(tmp_path / "antique", files)


def test_antique_keeps_questions_whose_answers_all_have_texts(antique):
    task = load_task("antique", antique)
    assert len(task.train) + len(task.dev) == 36 and len(task.dev) == 2
    assert task.train.right[0] == f"answer 0\tto {task.train.query[0][1:]}"
    assert task.test.grade.tolist() == [1, 3] and task.test.label.tolist() == pytest.approx([0, 2 / 3])
    assert task.notes[0] == (
        "train: 36 of 40 rows kept, all answers of 18 of 20 questions; "
        "skipped: 3 rows with ids and a grade but no text, and 1 more of the same questions"
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("antique-test.qrel", "t1 U0 q0_0 5\n", r"antique-test\.qrel line 1: .*a grade from 1 to 4"),
        ("antique-test.qrel", "t1 U0 q0_0\n", r"antique-test\.qrel line 1"),
        ("antique-collection.txt", "q0_0 no tab\n", r"antique-collection\.txt line 1: no TAB in it"),
        ("antique-collection.txt", "other\ttext\n", r"no train question has the texts of all its answers"),
    ],
)
def test_antique_names_the_line_of_a_bad_row(antique, name, text, message):
    write(antique / "antique", {name: text})
    with pytest.raises(UserError, match=message):
        load_task("antique", antique)


def pfcc_files(count: int = 820) -> dict[str, str]:
    # of the 800 train pairs, each four belong together: two claims with two tweets each, and one tweet for both claims
    claim = [row // 2 if row < 800 else row for row in range(count)]
    tweet = [row - 1 if row < 800 and row % 4 == 2 else row for row in range(count)]
    pairs = "".join(f'"tweet ""{tweet[row]}""\nmore"\tclaim  {claim[row]}\n' for row in range(count))
    claims = "".join(f'title\t"claim {row} "\n' for row in range(count + 50)) + "title\tclaim 3\n"
    return {"tweet-veclaim-pairs.tsv": "claim\tfact\n" + pairs, "verified-claims.tsv": "title\tfact\n" + claims}


def test_pfcc_folds_white_space_and_searches_every_claim_once(tmp_path):
    task = load_task("pfcc-s", write(tmp_path / "pfcc_s", pfcc_files()))
    assert len(task.test) == 20 and task.test.left[0] == 'tweet "800" more' and task.test.right[0] == "claim 800"
    assert len(task.test.corpus) == 870 and task.train.corpus == task.test.corpus
    assert len(set(task.test.query)) == 20 and (task.kind, task.metrics) == ("retrieval", ("HP@1", "HP@5", "HP@50"))


def test_pfcc_pairs_every_title_with_its_claim_once(tmp_path):
    files = pfcc_files()
    files["verified-claims.tsv"] += "another  title\tclaim 3\n\tclaim 4\n"
    titles = load_task("pfcc-s", write(tmp_path / "pfcc_s", files)).split("titles")
    assert len(titles) == 871 and (titles.left[-1], titles.right[-1]) == ("another title", "claim 3")
    assert "" not in titles.left and len(titles.corpus) == 870


def test_pfcc_dev_is_a_tenth_that_shares_neither_tweet_nor_claim_with_train(tmp_path):
    task = load_task("pfcc-s", write(tmp_path / "pfcc_s", pfcc_files()))
    assert (len(task.train), len(task.dev)) == (720, 80)
    assert not set(task.train.left) & set(task.dev.left) and not set(task.train.right) & set(task.dev.right)


def test_pfcc_refuses_a_claim_that_is_not_in_the_database(tmp_path):
    files = pfcc_files()
    files["tweet-veclaim-pairs.tsv"] += "new\tunheard of\n"
    with pytest.raises(UserError, match=r"verified-claims\.tsv: 1 claims of the pairs are not in it, such as 'unheard of'"):
        load_task("pfcc-s", write(tmp_path / "pfcc_s", files))


def test_invalid_utf8_is_refused_with_the_line(stsb):
    path = stsb / "stsb" / "sts-train.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"caf\xe9\n")
    with pytest.raises(UserError, match=r"sts-train\.csv line 3: not valid UTF-8 \(byte 0xe9\)"):
        load_task("stsb", stsb)


def test_labels_are_float32_from_zero_to_one(stsb):
    label = load_task("stsb", stsb).train.label
    assert label.dtype == np.float32 and (label >= 0).all() and (label <= 1).all()
