"""Mistakes that once passed in silence: each is now read as meant, said, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pairtune.data.files import read_scores
from pairtune.data.own_tables import read_pairs
from pairtune.data.pairs import PairSet
from pairtune.errors import UserError


def write(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return path


def lefts(task):
    return {text for part in (task.train, task.dev, task.test) for text in part.left}


def test_two_files_of_data_are_both_read(tmp_path):
    one = write(tmp_path / "a.csv", "left,right", [(f"a{i}", "x") for i in range(20)])
    two = write(tmp_path / "b.csv", "left,right", [(f"b{i}", "y") for i in range(20)])
    assert lefts(read_pairs([one, two])) == {f"{name}{i}" for name in "ab" for i in range(20)}
    assert lefts(read_pairs(str(tmp_path / "*.csv"))) == lefts(read_pairs([one, two]))


def test_a_second_file_with_other_columns_is_refused(tmp_path):
    one = write(tmp_path / "a.csv", "left,right", [(f"a{i}", "x") for i in range(20)])
    two = write(tmp_path / "b.csv", "left,answer", [(f"b{i}", "y") for i in range(20)])
    with pytest.raises(UserError, match=r"b\.csv: no column 'right'; the columns are: left, answer; .*a\.csv: left, right"):
        read_pairs([one, two])
    with pytest.raises(UserError, match=r"a\.csv is given twice"):
        read_pairs([one, one])


def test_labels_of_all_files_lie_on_one_scale(tmp_path):
    train = write(tmp_path / "train.csv", "left,right,score", [(f"a{i}", f"x{i}", i % 6) for i in range(60)])
    test = write(tmp_path / "test.csv", "left,right,score", [(f"b{i}", f"y{i}", i % 2) for i in range(20)])
    task = read_pairs(train, test=test)
    assert task.test.label.max() == pytest.approx(0.2), "1 of 5 is no full score"


def test_a_forgotten_label_column_is_asked_for_by_name(tmp_path):
    path = write(tmp_path / "p.csv", "left,right,y", [(f"a{i}", f"x{i}", i % 2) for i in range(40)])
    with pytest.raises(UserError, match=r"p\.csv: column 'y' looks like labels: --label y, or --no-label"):
        read_pairs(path)
    assert read_pairs(path, label="y").kind == "classification"
    assert read_pairs(path, label=False).kind == "retrieval"


@pytest.mark.parametrize("gap", ["", "NA"])
def test_a_forgotten_label_column_with_gaps_is_asked_for_too(tmp_path, gap):
    rows = [(f"a{i}", f"x{i}", gap if i % 3 == 2 else i % 2) for i in range(40)]
    with pytest.raises(UserError, match=r"p\.csv: column 'y' looks like labels: --label y, or --no-label"):
        read_pairs(write(tmp_path / "p.csv", "left,right,y", rows))


def test_a_key_that_some_records_lack_is_a_gap_and_hides_no_labels(tmp_path):
    records = [{"left": f"a{i}", "right": f"x{i}", "y": i % 2} for i in range(40)]
    del records[30]["y"]
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(UserError, match=r"p\.jsonl: column 'y' looks like labels: --label y, or --no-label"):
        read_pairs(path)
    with pytest.raises(UserError, match=r"p\.jsonl line 31: the label is missing .* --skip-empty"):
        read_pairs(path, label="y")
    task = read_pairs(path, label="y", skip_empty=True)
    assert task.kind == "classification" and len(task.train) + len(task.dev) + len(task.test) == 39


def pairs_in(path, *further):
    """A file of 30 pairs, with further columns: a header and a value each."""
    header, values = ",".join(["left", "right", *further[::2]]), further[1::2]
    return write(path, header, [(f"{path.stem} {i}", f"x{i}", *(value(i) for value in values)) for i in range(30)])


@pytest.mark.parametrize("name", ["label", "y"])
def test_labels_that_only_one_file_has_are_not_passed_over(tmp_path, name):
    bare, labelled = pairs_in(tmp_path / "a.csv"), pairs_in(tmp_path / "b.csv", name, lambda i: i % 2)
    with pytest.raises(UserError, match=rf"b\.csv: .*column '{name}'.*--no-label"):
        read_pairs([bare, labelled])
    with pytest.raises(UserError, match=rf"b\.csv: .*column '{name}'.*--no-label"):
        read_pairs(bare, test=labelled)
    assert len(read_pairs(bare, test=labelled, label=False).test) == 30
    if name == "label":
        with pytest.raises(UserError, match=r"b\.csv: labels in column 'label', and .*a\.csv has none: .*\(1 for pairs that go"):
            read_pairs(labelled, test=bare)


def test_negatives_of_train_need_none_in_dev_and_test_and_the_files_may_name_their_sides_differently(tmp_path):
    mined = pairs_in(tmp_path / "mined.csv", "negative_1", lambda i: f"x{i + 1}")
    test = write(tmp_path / "test.csv", "question,answer", [(f"t{i}", f"x{i}") for i in range(9)])
    task = read_pairs(mined, dev=pairs_in(tmp_path / "dev.csv"), test=test)
    assert task.train.negatives is not None and task.dev.negatives is None is task.test.negatives
    assert set(task.test.corpus) == {f"x{i}" for i in range(9)}
    assert "test: left text from column 'question'; right text from column 'answer'" in task.notes
    assert read_pairs(mined, test=test).dev.negatives is not None, "dev is split from train here"
    with pytest.raises(UserError, match=r"mined\.csv: column 'negative_1' holds negatives, and .*dev\.csv has none"):
        read_pairs([tmp_path / "dev.csv", mined])


@pytest.mark.parametrize("values", [list(range(40)), ["en", "de"] * 20, [2020 + i % 3 for i in range(40)]])
def test_numbers_of_rows_words_and_years_are_no_labels(tmp_path, values):
    path = write(tmp_path / "p.csv", "left,right,z", [(f"a{i}", f"x{i}", value) for i, value in enumerate(values)])
    assert read_pairs(path).kind == "retrieval"


def test_usual_columns_are_recognized_and_said(tmp_path):
    path = write(tmp_path / "p.csv", "id,Question1,Question2,is_duplicate", [(i, f"a{i}", f"x{i}", i % 2) for i in range(40)])
    task = read_pairs(path)
    assert task.kind == "classification" and "a3" in lefts(task)
    assert "left text from column 'Question1'; right text from column 'Question2'; label from column 'is_duplicate'" in task.notes


def test_columns_that_nobody_knows_are_asked_for(tmp_path):
    path = write(tmp_path / "p.csv", "problem,remedy", [("a", "b")])
    with pytest.raises(UserError, match=r"The columns are: problem, remedy; say for example --left problem --right remedy"):
        read_pairs(path)
    with pytest.raises(UserError, match=r"say for example --right remedy"):
        read_pairs(path, left="problem")


def test_the_columns_that_are_proposed_hold_texts_and_can_be_pasted(tmp_path):
    rows = [(f"p-{i}", i, f"it is broken {i}", f"mend it {i}") for i in range(3)]
    path = write(tmp_path / "p.csv", "name,number,was ist,remedy", rows)
    with pytest.raises(UserError, match=r'say for example --left "was ist" --right remedy$'):
        read_pairs(path)


def test_a_column_of_lists_is_told_in_one_line_with_what_to_do(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": "x1", "query": "a question", "hits": [{"text": "a hit " * 5000}]}))
    with pytest.raises(UserError, match=r"hits holds lists: write one record for each pair of texts$"):
        read_pairs(path)
    with pytest.raises(UserError, match=r"line 1: column 'hits' holds .* expected a text; write one record for each") as refused:
        read_pairs(path, left="query", right="hits")
    assert len(str(refused.value)) < 300


def test_a_single_2_among_0_and_1_is_pointed_to(tmp_path):
    path = write(tmp_path / "p.csv", "left,right,label", [(f"a{i}", f"x{i}", 2 if i == 7 else i % 2) for i in range(60)])
    assert any(
        "all but 1 of 60 are 0 or 1: is the 2 of" in note and "line 9 a mistake?" in note for note in read_pairs(path).notes
    )
    graded = write(tmp_path / "g.csv", "left,right,label", [(f"a{i}", f"x{i}", i % 3) for i in range(60)])
    assert not any("mistake" in note for note in read_pairs(graded).notes)


def test_a_file_without_a_header_is_refused_as_one(tmp_path):
    path = write(tmp_path / "p.csv", "how do I boil an egg,put it into hot water", [("a", "b")])
    with pytest.raises(UserError, match=r"the first line seems to be a pair, not the names of the columns .* add a header line"):
        read_pairs(path)


def test_questions_that_mostly_have_no_right_answer_are_still_a_ranking(tmp_path):
    rows = [(f"q{i // 5}", f"a{i}", int(i % 25 == 0)) for i in range(500)]  # of 100 questions 20 have a right answer
    path = write(tmp_path / "p.csv", "left,right,label", rows)
    task = read_pairs(path)
    reason = "100 of 100 left texts have 3 pairs or more, 20 have right and wrong ones"
    assert task.kind == "ranking" and f"ranking: {reason}" in task.notes
    assert "classification: as asked" in read_pairs(path, kind="classification").notes


@pytest.mark.parametrize(
    ("labels", "each", "note"),
    [
        ([1, 0], 2, "ranking: 30 of 30 left texts have both right and wrong answers"),
        ([1, 0], 1, "classification: labels are 0 and 1, and only 0 of 60 left texts have both right and wrong answers"),
        (
            [1, 2, 3, 4],
            4,
            "ranking: 15 of 15 left texts have 3 pairs or more with different grades "
            "(if the grades are a similarity: --kind regression)",
        ),
        ([1, 2, 3, 4], 2, "regression: 4 different labels, and only 0 of 30 left texts have a list of grades"),
    ],
)
def test_the_reason_for_the_kind_is_always_said(tmp_path, labels, each, note):
    rows = [(f"q{i // each}", f"a{i}", labels[i % len(labels)]) for i in range(60)]
    assert note in read_pairs(write(tmp_path / "p.csv", "left,right,label", rows)).notes


def test_lists_of_grades_are_ranked_with_their_gains(tmp_path):
    rows = [(f"q{i // 4}", f"a{i}", i % 4 + 1) for i in range(120)]
    path = write(tmp_path / "p.csv", "left,right,grade", rows)
    task = read_pairs(path)
    assert task.metrics == ("MAP", "MRR", "nDCG@10") and set(task.test.grade.tolist()) == {1, 2, 3, 4}
    assert task.test.positives().mean() == 0.5, "grades 3 and 4, above the middle of the scale"
    assert read_pairs(path, kind="regression").metrics == ("Spearman", "Pearson")


def test_columns_of_negatives_are_read(tmp_path):
    path = write(
        tmp_path / "p.csv", "anchor,positive,negative_1,negative_2", [(f"q{i}", f"a{i}", f"m{i}", f"n{i}") for i in range(30)]
    )
    task = read_pairs(path)
    row = task.train.left.index("q7")
    assert task.train.negatives[row] == ("m7", "n7")
    assert {"a7", "m7", "n7"} <= set(task.train.corpus), "negatives are there to be found instead of the answer"
    assert any("negatives from 'negative_1', 'negative_2'" in note for note in task.notes)
    path = tmp_path / "p.jsonl"
    path.write_text(
        "\n".join(json.dumps({"query": f"q{i}", "positive": "a", "negatives": ["m", "n", "o"][: 2 + i % 2]}) for i in range(30))
    )
    assert set(read_pairs(path).train.negatives) == {("m", "n")}, "each pair has as many as the one with the fewest"


# splits


def test_three_files_are_the_three_splits(tmp_path):
    paths = [write(tmp_path / f"{name}.csv", "left,right", [(f"{name} {i}", "x") for i in range(5)]) for name in ("a", "b", "c")]
    task = read_pairs(*paths)
    assert [{text[0] for text in part.left} for part in (task.train, task.dev, task.test)] == [{"a"}, {"b"}, {"c"}]
    assert task.notes[-1] == "as given: 5 train, 5 dev, 5 test"


def test_what_is_missing_is_split_from_train(tmp_path):
    train = write(tmp_path / "train.csv", "left,right", [(f"a{i}", "x") for i in range(50)])
    test = write(tmp_path / "test.csv", "left,right", [(f"b{i}", "x") for i in range(7)])
    task = read_pairs(train, test=test)
    assert (len(task.train), len(task.dev), len(task.test)) == (45, 5, 7)
    assert set(task.dev.left) == set(read_pairs(train).dev.left), "the same pairs as without a test file"
    task = read_pairs(train, dev=test)
    assert (len(task.train), len(task.dev), len(task.test)) == (45, 7, 5)


def test_a_column_may_name_the_split_and_a_wrong_name_has_its_line(tmp_path):
    names = ["train", "validation", "test", "Train"]
    path = write(tmp_path / "p.csv", "left,right,part", [(f"a{i}", "x", names[i % 4]) for i in range(40)])
    task = read_pairs(path, split_column="part")
    assert (len(task.train), len(task.dev), len(task.test)) == (20, 10, 10)
    write(path, "left,right,part", [("a", "b", "train"), ("c", "d", "fold 3")])
    with pytest.raises(UserError, match=r"p\.csv line 3: the split is 'fold 3'; known names: train, training, dev, validation"):
        read_pairs(path, split_column="part")


def test_a_column_called_split_is_not_passed_over(tmp_path):
    names = ["train", "validation", "test", "train"]
    path = write(tmp_path / "p.csv", "left,right,split", [(f"a{i}", "x", names[i % 4]) for i in range(40)])
    task = read_pairs(path)
    assert (len(task.train), len(task.dev), len(task.test)) == (20, 10, 10) and "splits from column 'split'" in task.notes
    assert len(read_pairs(test=path).test) == 10, "what is marked as train is not scored as test"
    write(path, "left,right,split", [(f"a{i}", "x", "train") for i in range(40)])
    assert len(read_pairs(path, test=write(tmp_path / "t.csv", "left,right", [("b", "x")])).test) == 1, "the files say it"
    write(path, "left,right,split", [(f"a{i}", "x", "north" if i % 2 else "south") for i in range(40)])
    assert not any("splits from" in note for note in read_pairs(path).notes)


def test_pairs_with_the_same_name_stay_in_one_split(tmp_path):
    path = write(tmp_path / "p.csv", "left,right,author", [(f"a{i}", f"x{i}", f"author {i % 20}") for i in range(200)])
    task = read_pairs(path, keep_together="author")
    authors = [{int(text[1:]) % 20 for text in part.left} for part in (task.train, task.dev, task.test)]
    assert all(authors) and not (authors[0] & authors[1] or authors[0] & authors[2] or authors[1] & authors[2])
    assert any(note.startswith("split by column 'author': ") for note in task.notes)


def test_left_texts_of_train_in_a_given_test_are_counted(tmp_path):
    train = write(tmp_path / "train.csv", "left,right", [(f"a{i}", "x") for i in range(50)])
    test = write(tmp_path / "test.csv", "left,right", [("a1", "x"), ("a2", "y"), ("b", "x")])
    notes = read_pairs(train, test=test).notes
    assert "test: 2 of 3 left texts (1 whole pairs) are in train too: its scores may be too good" in notes


def test_pairs_without_train_are_there_to_be_scored_whole(tmp_path):
    path = write(tmp_path / "p.csv", "left,right,label", [(f"a{i}", "x", i % 2) for i in range(8)])
    task = read_pairs(test=path)
    assert len(task.test) == 8 and task.metrics == ("F1@best", "AP"), "no dev, no threshold of F1"
    assert read_pairs(dev=path, test=path).metrics[0] == "F1"


def test_positives_are_searched_in_a_given_corpus(tmp_path):
    pairs = write(tmp_path / "p.csv", "left,right", [(f"a{i}", f"x{i}") for i in range(30)])
    corpus = write(tmp_path / "c.csv", "id,text", [(i, f"x{i + 1}") for i in range(100)])
    task = read_pairs(pairs, corpus=corpus)
    assert "retrieval: a corpus is given to search in" in task.notes
    assert "positives are searched among 100 texts; 1 right texts were not in it and are added" in task.notes
    assert {"x50", "x100"} <= set(task.test.corpus) and set(task.test.right) <= set(task.test.corpus)


def labelled(tmp_path, labels, head="left,right,label", sep=","):
    """A file of 60 pairs with these labels in turn."""
    rows = [sep.join((f"question {row}", f"answer {row}", labels[row % len(labels)])) for row in range(60)]
    (tmp_path / "pairs.csv").write_text("\n".join([head.replace(",", sep), *rows]), encoding="utf-8")
    return tmp_path / "pairs.csv"


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["80%", "20 %", "100%", "0"], {0.8, 0.2, 1.0, 0.0}),
        (["0,812", "1,000", "0,5", "0"], {0.812, 1.0, 0.5, 0.0}),
        (["duplicate", "not duplicate"], {1.0, 0.0}),
        (["Duplicate", "Not_Duplicate", "NON-duplicate"], {1.0, 0.0}),
        (["relevant", "irrelevant"], {1.0, 0.0}),
        (["Y", "n "], {1.0, 0.0}),
    ],
)
def test_labels_as_people_write_them_are_read(tmp_path, labels, numbers):
    task = read_pairs(labelled(tmp_path, labels, sep=";"))
    found = {float(label) for pairs in (task.train, task.dev, task.test) for label in pairs.label}
    assert sorted(found) == pytest.approx(sorted(numbers))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["80%", "20%", "50"], r"line 4: the label is '50', and .*line 2 has a percentage: write all of them with a %, or none"),
        (["1,000", "1", "0"], r"line 2: the label is '1,000', which may be 1\.000 or a thousand"),
        (["1", "0", ""], r"line 4: the label is missing \(''\); fill it in, or leave such pairs out: --skip-empty"),
        (["1", "0", "NA"], r"line 4: the label is missing \('NA'\)"),
        (["entailment", "neutral"], r"line 3: the label is 'neutral', expected a number, a percentage, true/false, yes/no"),
    ],
)
def test_labels_that_could_mean_two_things_are_refused_in_words(tmp_path, labels, message):
    with pytest.raises(UserError, match=message):
        read_pairs(labelled(tmp_path, labels, sep=";"))


@pytest.mark.parametrize(
    "labels", [["80%", "20%"], ["0,5", "0,25", "1"], [f"{row / 60:.2f}" for row in range(60)], ["duplicate", "different"]]
)
def test_a_forgotten_column_of_percentages_fractions_or_words_is_asked_for(tmp_path, labels):
    with pytest.raises(UserError, match=r"column 'agreed' looks like labels: --label agreed, or --no-label"):
        read_pairs(labelled(tmp_path, labels, head="left,right,agreed", sep=";"))


def test_a_text_that_says_nan_is_pointed_to(tmp_path):
    path = labelled(tmp_path, ["1", "0"])
    path.write_text(path.read_text().replace("answer 7,", "nan,"))
    assert any("1 pairs have a text such as 'nan'" in note and "line 9" in note for note in read_pairs(path).notes)


def test_bars_separate_fields_and_a_line_for_spreadsheets_says_what_does(tmp_path):
    path = labelled(tmp_path, ["1", "0"], sep="|")
    assert "pairs.csv: fields are separated by |" in read_pairs(path).notes
    path.write_text("sep=;\n" + path.read_text().replace("|", ";"))
    assert "pairs.csv: fields are separated by ';', as its first line says" in read_pairs(path).notes
    path.write_text(path.read_text().rstrip() + "\na;;1\n")
    with pytest.raises(UserError, match=f"line {len(path.read_text().splitlines())}: column 'right' is empty"):
        read_pairs(path)


def test_commas_in_a_file_called_tsv_are_named(tmp_path):
    (tmp_path / "pairs.tsv").write_text("left,right\na,b\n")
    with pytest.raises(UserError, match=r"there is one: left,right; if ',' separates them, call the file \.csv"):
        read_pairs(tmp_path / "pairs.tsv")


def write_records(tmp_path, record):
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(record(row)) + "\n" for row in range(30)))
    return tmp_path / "pairs.jsonl"


def test_lists_of_positives_and_negatives_become_pairs(tmp_path, capsys):
    path = write_records(tmp_path, lambda n: {"query": f"q{n}", "pos": [f"a{n}", f"b{n}"], "neg": [f"c{n}", "d"][: 1 + (n > 3)]})
    task = read_pairs(path)
    found = {
        both for part in (task.train, task.dev, task.test) for both in zip(part.left, part.right, part.negatives, strict=True)
    }
    assert found == {(f"q{n}", f"{letter}{n}", (f"c{n}",)) for n in range(30) for letter in "ab"}
    assert "1 of up to 2 negatives of each pair are used" in capsys.readouterr().err


def test_lists_of_labelled_candidates_become_a_ranking(tmp_path):
    path = write_records(
        tmp_path,
        lambda n: {
            "question": f"q{n}",
            "candidates": [{"title": "T", "text": f"a{n}", "label": 1}, {"text": f"b{n}", "label": 0}],
        },
    )
    task = read_pairs(path)
    assert task.kind == "ranking" and (task.train.right[0], task.train.label.tolist()[:2]) == (
        f"T a{task.train.left[0][1:]}",
        [1, 0],
    )


def test_a_list_with_something_else_in_it_is_refused_with_its_line(tmp_path):
    path = write_records(
        tmp_path, lambda n: {"query": f"q{n}", "candidates": [{"text": f"a{n}", "label": 1}, "text"][: 1 + (n == 4)]}
    )
    with pytest.raises(UserError, match=r"line 5: 'candidates' holds text, expected an object with 'text' and 'label'"):
        read_pairs(path)


def test_a_list_inside_one_json_object_is_read(tmp_path):
    rows = [{"left": f"q{n}", "right": f"a{n}"} for n in range(30)]
    (tmp_path / "pairs.json").write_text(json.dumps({"version": 2, "data": rows}, indent=1))
    assert read_pairs(tmp_path / "pairs.json").kind == "retrieval"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("relatedness_score", [1 + i / 10 for i in range(40)]),
        ("rating", [f"{1 + i % 5} points" for i in range(40)]),
        ("esci_label", list("ESCI") * 10),
    ],
)
def test_a_column_that_is_called_score_or_label_is_asked_for(tmp_path, name, values):
    path = write(tmp_path / "p.csv", f"left,right,{name}", [(f"a{i}", f"x{i}", value) for i, value in enumerate(values)])
    with pytest.raises(UserError, match=f"column '{name}' looks like labels: --label {name}, or --no-label"):
        read_pairs(path)
    assert read_pairs(path, label=False).kind == "retrieval"


@pytest.mark.parametrize("texts", ["{} stars", "{}/5", "{} out of 5", "★★★★★"])
def test_stars_and_fractions_are_grades(tmp_path, texts):
    rows = [(f"a{i}", f"x{i}", "★" * (1 + i % 5) if "★" in texts else texts.format(1 + i % 5)) for i in range(60)]
    task = read_pairs(write(tmp_path / "p.csv", "left,right,label", rows))
    lowest = 0.2 if "5" in texts else 0  # of five, one is a fifth; stars begin at one
    assert task.kind == "regression"
    assert sorted({*task.train.label.tolist()}) == pytest.approx([lowest + i * (1 - lowest) / 4 for i in range(5)])


def test_the_classes_of_entailment_are_no_grades(tmp_path):
    path = write(tmp_path / "p.csv", "premise,hypothesis,label", [(f"a{i}", f"x{i}", i % 3) for i in range(60)])
    with pytest.raises(UserError, match="0, 1 and 2, usually entailment, neutral and contradiction"):
        read_pairs(path)
    assert read_pairs(path, kind="regression").kind == "regression"


def test_a_column_of_splits_is_heeded_whatever_it_is_called(tmp_path):
    names = ["Train"] * 20 + ["val"] * 10 + ["test"] * 10
    task = read_pairs(write(tmp_path / "p.csv", "left,right,fold", [(f"a{i}", f"x{i}", name) for i, name in enumerate(names)]))
    assert "splits from column 'fold'" in task.notes
    assert [len(part) for part in (task.train, task.dev, task.test)] == [20, 10, 10]


def test_passages_of_dpr_are_right_texts_and_its_short_answers_are_not(tmp_path):
    record = {"answers": ["pan"], "negative_ctxs": [], "hard_negative_ctxs": [{"title": "t", "text": "wrong"}]}
    lines = [{"question": f"q{i}", **record, "positive_ctxs": [{"title": "t", "text": f"right {i}"}]} for i in range(20)]
    path = tmp_path / "dpr.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    train = read_pairs(path).train
    assert all(text.startswith("t right") for text in train.right)
    assert train.negatives is not None and {*train.negatives} == {("t wrong",)}, "a title on one side only would give it away"


def test_a_gap_in_columns_of_negatives_says_which_columns_are_full(tmp_path):
    rows = [(f"a{i}", f"x{i}", "n", "" if i == 3 else "m") for i in range(20)]
    path = write(tmp_path / "p.csv", "anchor,positive,negative_1,negative_2", rows)
    with pytest.raises(UserError, match=r"p\.csv line 5: column 'negative_2' is empty.*--negative negative_1$"):
        read_pairs(path)
    assert read_pairs(path, negatives=["negative_1"]).train.negatives


@pytest.mark.parametrize(
    "header", ["title,abstract", "query,response", "prompt,response", "s1,s2", "query,pos", "Question,Answer", "text_a,text_b"]
)
def test_the_usual_names_of_two_texts_need_no_option(tmp_path, header):
    task = read_pairs(write(tmp_path / "p.csv", header, [(f"a{i}", f"x{i}") for i in range(20)]))
    assert lefts(task) == {f"a{i}" for i in range(20)}


def test_scores_of_a_search_that_lie_on_their_side_are_not_read_across(tmp_path):
    pairs = PairSet.of(["q", "r"], ["a", "b"], corpus=("a", "b", "c"))
    scores = np.arange(6.0).reshape(2, 3)
    for name, array in {"flat": scores.ravel(), "whole": scores, "aside": scores.T}.items():
        np.save(tmp_path / f"{name}.npy", array)
    assert read_scores(tmp_path / "flat.npy", pairs).tolist() == read_scores(tmp_path / "whole.npy", pairs).tolist()
    with pytest.raises(UserError, match=r"an array of shape \(3, 2\), expected \(2, 3\): a row for each query"):
        read_scores(tmp_path / "aside.npy", pairs)
