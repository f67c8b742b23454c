"""Files as people have them: other words, other scales, other layouts. Each is read as meant, or refused with what to do."""

from __future__ import annotations

import bz2
import json
import zipfile

import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from pairtune import read_pairs
from pairtune.cli import main
from pairtune.cli.options import OwnData
from pairtune.data.formats import read_texts
from pairtune.data.sources import read_sources
from pairtune.errors import UserError
from pairtune.runs.toml import make_recipe

ROWS = [(f"how do I cook dish {row}?", f"heat dish {row} for an hour") for row in range(60)]
PAIRS = pd.DataFrame(ROWS, columns=["question", "answer"])


def labelled(path, name, labels):
    table = PAIRS.assign(**{name: [labels[row % len(labels)] for row in range(len(PAIRS))]})
    table.to_csv(path, index=False)
    return path


def everything(task):
    return [
        row for part in (task.train, task.dev, task.test) for row in zip(part.left, part.right, part.label.tolist(), strict=True)
    ]


def labels_of(task, path):
    """The label of each pair, by what the file says of it."""
    said = dict(zip(*[pd.read_csv(path)[name] for name in ("question", pd.read_csv(path).columns[-1])], strict=True))
    return {str(said[left]): pytest.approx(label) for left, _, label in everything(task)}


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("ähnlichkeit", [f"{row / 10:.1f}" for row in range(51)]),
        ("ähnlichkeit", [f"{row / 10:.1f}".replace(".", ",") for row in range(51)]),
        ("same_meaning", ["Yes", "No", "Maybe"]),
        ("gleich", ["ja", "nein"]),
        ("est_pareil", ["oui", "non"]),
        ("kind", ["Duplicate", "Related", "Unrelated"]),
        ("esci", list("ESCI")),
        ("pct", list(range(101))),
        ("logit", [8.1, 5.5, 12.7, 0.4]),
        ("rank", list(range(1, 11))),
    ],
)
def test_a_forgotten_column_of_labels_is_asked_for_in_any_language_and_scale(tmp_path, name, labels):
    with pytest.raises(UserError, match=f"column '{name}' looks like labels: --label {name}, or --no-label"):
        read_pairs(labelled(tmp_path / "p.csv", name, labels))


@pytest.mark.parametrize("values", [["billing", "tech"], ["en", "no", "de"], [19.99, 4.5, 7.25], [2020, 2021], ["", "x"]])
def test_categories_languages_and_prices_are_not_asked_about(tmp_path, values):
    assert read_pairs(labelled(tmp_path / "p.csv", "of_dish", values)).kind == "retrieval"


@pytest.mark.parametrize(
    ("words", "worth"),
    [
        (["ja", "nein"], [1, 0]),
        (["sí", "no"], [1, 0]),
        (["entailment", "not_entailment"], [1, 0]),
        (["similar", "unrelated"], [1, 0]),
    ],
)
def test_words_of_other_languages_and_tasks_are_labels(tmp_path, words, worth):
    path = labelled(tmp_path / "p.csv", "label", words)
    assert labels_of(read_pairs(path), path) == dict(zip(words, worth, strict=True))


def test_words_that_say_no_grade_are_all_named_and_can_be_given_one(tmp_path):
    path = labelled(tmp_path / "p.csv", "esci_label", list("ESCI"))
    with pytest.raises(UserError, match=r"line 2: the label is 'E'.*Column 'esci_label' holds 'C', 'E', 'I', 'S'.*--grade C=N"):
        read_pairs(path, label="esci_label")
    task = OwnData(data=[str(path)], label="esci_label", grade=["E=1", "s=0.5", "C=0", "I=out"]).read()
    assert labels_of(task, path) == {"E": 1, "S": 0.5, "C": 0}
    assert "p.csv: 15 of 60 pairs are left out, as asked" in task.notes


@pytest.mark.parametrize("given", ["E", "E=", "=", "E=much"])
def test_a_grade_that_cannot_be_meant_is_refused(tmp_path, given):
    with pytest.raises(UserError, match=f"--grade {given}: expected .* --grade exact=1"):
        OwnData(data=[str(labelled(tmp_path / "p.csv", "label", ["E", "S"]))], grade=[given]).read()


def test_the_numbers_of_classes_can_be_given_grades(tmp_path):
    path = labelled(tmp_path / "p.csv", "label", [0, 1, 2, -1])
    task = read_pairs(path, grades={"0": 1, "1": 0, "2": 0, "-1": None})
    assert (task.kind, labels_of(task, path)) == ("classification", {"0": 1, "1": 0, "2": 0})
    path = labelled(tmp_path / "p.csv", "label", [0, 1, 2])
    assert any("if they are classes and no grades, say so, as in --grade 0=1" in note for note in read_pairs(path).notes)


def test_ranks_are_no_labels_for_the_best_has_the_lowest(tmp_path):
    path = labelled(tmp_path / "p.csv", "rank", range(1, 11))
    with pytest.raises(UserError, match="column 'rank' seems to hold ranks, of which 1 is the best"):
        read_pairs(path, label="rank")


@pytest.mark.parametrize("write", ["save_to_disk", "to_parquet"])
def test_classes_of_a_hugging_face_dataset_count_by_their_names_not_by_their_numbers(tmp_path, write):
    def dataset(names):
        features = Features({"question": Value("string"), "answer": Value("string"), "label": ClassLabel(names=names)})
        rows = {"question": [left for left, _ in ROWS], "answer": [right for _, right in ROWS]}
        return Dataset.from_dict({**rows, "label": [row % len(names) for row in range(60)]}, features=features)

    path = str(tmp_path / "saved.parquet")
    getattr(dataset(["duplicate", "not_duplicate"]), write)(path)
    assert all(label == 1 - ROWS.index((left, right)) % 2 for left, right, label in everything(read_pairs(path)))
    other = str(tmp_path / "other.parquet")
    getattr(dataset(["entailment", "neutral", "contradiction"]), write)(other)
    with pytest.raises(UserError, match="Column 'label' holds 'contradiction', 'entailment', 'neutral'"):
        read_pairs(other)


def test_pairs_with_an_empty_cell_are_counted_and_left_out_if_asked(tmp_path):
    table = PAIRS.assign(label=[row % 2 for row in range(60)]).astype({"label": object})
    table.loc[[3, 7, 8], "answer"], table.loc[9, "label"] = None, None
    table.to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(UserError, match=r"line 5: column 'answer' is empty, and so are 2 more; .* --skip-empty"):
        read_pairs(tmp_path / "p.csv")
    task = read_pairs(tmp_path / "p.csv", skip_empty=True)
    assert len(everything(task)) == 56 and "p.csv: 4 of 60 pairs are left out, as asked" in task.notes
    table.assign(label=["x" if row == 10 else row % 2 for row in range(60)]).to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(UserError, match="line 12: the label is 'x'"):
        read_pairs(tmp_path / "p.csv", skip_empty=True)


def test_pairs_without_a_name_do_not_stay_together(tmp_path):
    path = tmp_path / "p.csv"
    PAIRS.assign(customer=[f"c{row % 20}" if row % 2 else None for row in range(60)]).to_csv(path, index=False)
    task = read_pairs(path, keep_together="customer")
    assert "30 pairs have nothing in column 'customer', and are split by left text" in task.notes
    nameless = [sum(ROWS.index((left, right)) % 2 == 0 for left, right in zip(part.left, part.right, strict=True))
                   for part in (task.train, task.dev, task.test)]  # fmt: skip
    assert sum(count > 0 for count in nameless) > 1
    PAIRS.assign(customer=[f"c{row % 3}" for row in range(60)]).to_csv(path, index=False)
    with pytest.raises(UserError, match="3 different names in column 'customer', by which train, dev and test are split"):
        read_pairs(path, keep_together="customer")


@pytest.mark.parametrize(("names", "sizes"), [(["train", "train", "eval"], (36, 20)), (["Training", "testing", "dev"], (20, 20))])
def test_more_names_of_splits_are_known(tmp_path, names, sizes):
    task = read_pairs(labelled(tmp_path / "p.csv", "split", names))
    assert len(task.dev) == 20 and (len(task.train), len(task.dev)) == sizes


def test_a_column_called_split_with_gaps_is_refused_with_its_line(tmp_path):
    with pytest.raises(UserError, match=r"line 4: the split is ''"):
        read_pairs(labelled(tmp_path / "p.csv", "split", ["train", "test", "", "train"]))


def test_splits_of_a_dataset_may_be_called_anything(tmp_path):
    part = Dataset.from_pandas(PAIRS)
    DatasetDict(train=part.select(range(40)), matched=part.select(range(40, 60)), other=part).save_to_disk(tmp_path / "saved")
    with pytest.raises(UserError, match=r"the split is 'matched'.*--hub-split test=NAME"):
        read_pairs(tmp_path / "saved")
    task = OwnData(data=[str(tmp_path / "saved")], hub_split=["train=train", "test=matched"]).read()
    assert set(task.test.left) == {left for left, _ in ROWS[40:]} and len(task.train) + len(task.dev) == 40
    for chosen, message in (({"test": "none"}, "no split 'none'; the splits are: train, matched, other"),
                            ({"final": "other"}, "'final' is none of train, dev, test")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            read_pairs(tmp_path / "saved", hub_split=chosen)
    DatasetDict(train=part, test=part.add_column("label", [1] * 60)).save_to_disk(tmp_path / "uneven")
    with pytest.raises(UserError, match=r"its splits have different columns \(train: question, answer; test: .*label\)"):
        read_pairs(tmp_path / "uneven")


def test_where_a_folder_gives_train_alone_the_others_are_not_said_to_be_given(tmp_path):
    DatasetDict(train=Dataset.from_pandas(PAIRS)).save_to_disk(tmp_path / "saved")
    assert read_pairs(tmp_path / "saved").notes[-1].startswith("split by left text: ")


JSON = {
    "columns": PAIRS.to_dict("list"),
    "columns of pandas": json.loads(PAIRS.to_json()),
    "splits": {name: PAIRS[rows].to_dict("records") for name, rows in (("train", slice(0, 50)), ("test", slice(50, 60)))},
    "records": PAIRS.to_dict("records"),
}


@pytest.mark.parametrize("layout", JSON)
def test_json_is_read_in_the_layouts_that_programs_write(tmp_path, layout):
    (tmp_path / "p.json").write_text(json.dumps(JSON[layout]))
    task = read_pairs(tmp_path / "p.json")
    assert {(left, right) for left, right, _ in everything(task)} == set(ROWS)
    assert layout != "splits" or set(task.test.left) == {left for left, _ in ROWS[50:]}


LISTS = {
    "a question and its answer": (lambda left, right: [left, right], None, "lists of left, right"),
    "with a label": (lambda left, right: [left, right, int(left[-2]) % 2], None, "lists of left, right, label"),
    "with negatives": (lambda left, right: [left, right, "n", "m"], ("n", "m"), "lists of left, right, negative_1, negative_2"),
}


@pytest.mark.parametrize("layout", LISTS)
@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_lists_of_texts_are_pairs(tmp_path, layout, ending):
    record, negatives, note = LISTS[layout]
    records = [record(*row) for row in ROWS]
    path = tmp_path / f"p.{ending}"
    path.write_text(json.dumps(records) if ending == "json" else "\n".join(map(json.dumps, records)))
    task = read_pairs(path)
    assert {(left, right) for left, right, _ in everything(task)} == set(ROWS) and f"p.{ending}: {note}" in task.notes
    assert {*(task.train.negatives or [None])} == {negatives}
    assert task.kind == ("classification" if "label" in layout else "retrieval")


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([["a", "b"], ["c"]], "record 2: expected a list of 2, as the first one"),
        ([["a", 1]], "record 1: a list, expected two texts, and then a label or negatives"),
        ([["a", "b", 1, "c"]], "record 1: a list, expected two texts, and then a label or negatives"),
    ],
)
def test_other_lists_are_refused(tmp_path, records, message):
    (tmp_path / "p.json").write_text(json.dumps(records))
    with pytest.raises(UserError, match=message):
        read_pairs(tmp_path / "p.json")


def test_a_list_that_an_export_keeps_inside_other_objects_is_found(tmp_path):
    whole = {"meta": {"tool": "x"}, "response": {"items": [{"q": {"text": left}, "a": {"text": right}} for left, right in ROWS]}}
    (tmp_path / "p.json").write_text(json.dumps(whole, indent=1))
    task = read_pairs(tmp_path / "p.json")
    assert {(left, right) for left, right, _ in everything(task)} == set(ROWS)


def test_squad_gives_each_question_that_has_an_answer_with_its_paragraph(tmp_path):
    qas = [{"question": left, "answers": [{"text": "an hour"}], "is_impossible": False} for left, _ in ROWS]
    paragraphs = [{"context": right, "qas": [qa]} for qa, (_, right) in zip(qas, ROWS, strict=True)]
    paragraphs[0]["qas"].append({"question": "why?", "answers": [], "is_impossible": True})
    squad = {
        "version": "2.0",
        "data": [{"title": "a", "paragraphs": paragraphs[:30]}, {"title": "b", "paragraphs": paragraphs[30:]}],
    }
    (tmp_path / "p.json").write_text(json.dumps(squad))
    task = read_pairs(tmp_path / "p.json")
    assert {(left, right) for left, right, _ in everything(task)} == set(ROWS)
    assert any("as SQuAD has them; 1 questions that nothing there answers are left out" in note for note in task.notes)
    squad["data"][1]["paragraphs"][0].pop("context")
    (tmp_path / "p.json").write_text(json.dumps(squad))
    with pytest.raises(UserError, match="article 2: expected paragraphs with 'context' and 'qas'"):
        read_pairs(tmp_path / "p.json")


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_passages_as_lists_of_texts_and_labels_are_a_ranking(tmp_path, ending):
    records = [
        {
            "query": left,
            "answers": ["an hour"],
            "passages": {"is_selected": [0, 1], "passage_text": ["another", right], "url": ["x", "y"]},
        }
        for left, right in ROWS
    ]
    path = tmp_path / f"p.{ending}"
    if ending == "parquet":
        Dataset.from_list(records).to_parquet(path)
    else:
        path.write_text("\n".join(map(json.dumps, records)))
    task = read_pairs(path)
    assert task.kind == "ranking"
    assert {(left, right) for left, right, label in everything(task) if label == 1} == set(ROWS)


def test_a_word_that_is_given_no_grade_is_named_beside_those_that_are(tmp_path):
    path = labelled(tmp_path / "p.csv", "label", ["neutral", "entailment", "contradiction"])
    said = r"the label is 'contradiction'.* holds 'contradiction', 'entailment', 'neutral': .*--grade contradiction=N --grade "
    with pytest.raises(UserError, match=said + r"entailment=1 --grade neutral=0\.5"):
        read_pairs(path, grades={"neutral": 0.5})


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (dict(ROWS), "an object from texts to texts; write a list of pairs"),
        ([{"messages": [{"role": "user", "content": "a"}]}] * 12, "messages, which holds lists: write one record for each pair"),
    ],
)
def test_layouts_without_two_columns_are_told_what_to_write(tmp_path, records, message):
    (tmp_path / "p.json").write_text(json.dumps(records))
    with pytest.raises(UserError, match=message):
        read_pairs(tmp_path / "p.json")


def test_the_scores_of_passages_that_are_all_right_are_no_labels(tmp_path):
    records = [{"question": left, "positive_ctxs": [{"text": right, "score": row}]} for row, (left, right) in enumerate(ROWS)]
    (tmp_path / "dpr.json").write_text(json.dumps([*records, {"question": "unanswered", "positive_ctxs": []}]))
    task = read_pairs(tmp_path / "dpr.json")
    assert task.kind == "retrieval" and len(everything(task)) == 60
    assert any("1 of 61 records have an empty list, and give none" in note for note in task.notes)


def test_archives_of_one_file_are_unpacked_and_others_named(tmp_path):
    content = PAIRS.to_csv(index=False).encode()
    (tmp_path / "p.csv.bz2").write_bytes(bz2.compress(content))
    with zipfile.ZipFile(tmp_path / "p.csv.zip", "w") as archive:
        archive.writestr("__MACOSX/._p.csv", "x")
        archive.writestr("p.csv", content)
    for name in ("p.csv.bz2", "p.csv.zip"):
        assert len(everything(read_pairs(tmp_path / name))) == 60
    with zipfile.ZipFile(tmp_path / "p.csv.zip", "a") as archive:
        archive.writestr("q.csv", content)
    with pytest.raises(UserError, match=r"2 files in it \(p\.csv, q\.csv\); unpack it"):
        read_pairs(tmp_path / "p.csv.zip")
    (tmp_path / "p.csv.zip").write_bytes(content)
    with pytest.raises(UserError, match="could not be unpacked"):
        read_pairs(tmp_path / "p.csv.zip")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", "version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("p.txt", "question\tanswer\n", r"call it \.tsv if TABs separate the columns"),
        ("p.zip", "x", r"call it after that: pairs\.csv\.zip"),
        ("p.csv", "# exported\nquestion,answer\na,b\n", r"the header has 1 \(# exported\); .* delete what stands above them"),
        ("p.csv", 'question, answer\na, "b, c"\n', "a quotation mark must follow the delimiter at once"),
        ("p.csv", "question,answer\n'a, b','c'\n", "texts are quoted with double quotation marks"),
        ("p.csv", "FAQ,2024,\nquestion,answer,date\na,b,c\n", "the first line names only some of the 3 columns"),
        ("p.csv", "FAQ of the shop\nquestion,answer\na,b,c\n", r"line 3: 3 fields, but the header has 2"),
        ("p.xls", "x", r"of spreadsheets only \.xlsx is read: save the sheet as \.xlsx, or as \.csv"),
    ],
)
def test_a_file_that_is_no_table_yet_says_what_to_change(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        read_pairs(tmp_path / name)


def test_a_folder_of_files_says_how_to_name_them(tmp_path):
    (tmp_path / "clone" / "data").mkdir(parents=True)
    PAIRS.to_parquet(tmp_path / "clone" / "data" / "train-00000-of-00001.parquet")
    with pytest.raises(UserError, match=r"name the files in it, such as .*train-0.*, or a pattern: '.*/clone/data/\*\.parquet'"):
        read_pairs(tmp_path / "clone")


def write_workbook(path, sheets):
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


HEADER = ["question", "answer"]


def test_the_first_sheet_with_a_table_is_read_without_columns_that_are_empty(tmp_path):
    rows = [[*HEADER, None], *([*row, None] for row in ROWS)]
    task = read_pairs(write_workbook(tmp_path / "p.xlsx", {"About": [["see the second sheet"], ["it has pairs"]], "Data": rows}))
    assert {(left, right) for left, right, _ in everything(task)} == set(ROWS)
    assert "p.xlsx: read the sheet 'Data' of 'About', 'Data'" in task.notes
    with pytest.raises(UserError, match="no records in the sheets 'A', 'B': give a header and a row for each pair"):
        read_pairs(write_workbook(tmp_path / "p.xlsx", {"A": [["see the second sheet"]], "B": [HEADER]}))


def test_sheets_that_are_called_train_and_test_are_the_splits(tmp_path):
    sheets = {"Train": [HEADER, *ROWS[:40]], "dev": [HEADER, *ROWS[40:50]], "test": [HEADER, *ROWS[50:]]}
    task = read_pairs(write_workbook(tmp_path / "p.xlsx", sheets))
    assert [{*part.left} for part in (task.train, task.dev, task.test)] == [
        {left for left, _ in rows} for rows in (ROWS[:40], ROWS[40:50], ROWS[50:])
    ]
    sheets["test"] = [HEADER, ("where is it?", None)]
    with pytest.raises(UserError, match="row 2 of sheet 'test': column 'answer' is empty"):
        read_pairs(write_workbook(tmp_path / "p.xlsx", sheets))
    sheets["test"] = [["q", "a"], *ROWS[50:]]
    with pytest.raises(UserError, match="the sheets 'Train' and 'test' have different columns"):
        read_pairs(write_workbook(tmp_path / "p.xlsx", sheets))


@pytest.mark.parametrize("title", [["Export of 2026", None, None], ["Export of 2026"]])
def test_a_title_above_the_names_of_the_columns_is_left_out_and_said(tmp_path, title):
    rows = [(*row, 1) for row in ROWS[:20]] + [(*row, 0) for row in ROWS[20:]]
    table = pd.DataFrame(rows, columns=["question", "answer", "label"])
    write_workbook(tmp_path / "p.xlsx", {"Sheet": [title, [], ["question", "answer", "label"], *rows]})
    (tmp_path / "p.csv").write_text(",".join(cell or "" for cell in title) + "\n\n" + table.to_csv(index=False))
    for name, unit in (("p.xlsx", "row"), ("p.csv", "line")):
        task = read_pairs(tmp_path / name)
        assert f"{name}: {unit} 1 is a title, and left out: 'Export of 2026'" in task.notes
        assert {(left, right) for left, right, _ in everything(task)} == set(ROWS) and task.kind == "classification"


def test_one_column_of_texts_has_no_title(tmp_path):
    (tmp_path / "corpus.csv").write_text("text,\nhello,\nyes,\n")
    assert read_texts(tmp_path / "corpus.csv") == ["hello", "yes"]
    pd.Series(["good morning", "good night"], name="text").to_csv(tmp_path / "corpus.csv")
    assert read_texts(tmp_path / "corpus.csv") == ["good morning", "good night"]


@pytest.mark.parametrize("encoding", ["cp1251", "gbk", "iso-8859-7", "euc-kr"])
def test_other_scripts_are_not_taken_for_western_letters(tmp_path, encoding):
    word = {"cp1251": "пароль", "gbk": "如何重置密码", "iso-8859-7": "κωδικός", "euc-kr": "비밀번호"}[encoding]
    text = "question,answer\n" + "".join(f"how do I say {word} {row}?,{word} {row}\n" for row in range(20))
    (tmp_path / "p.csv").write_text(text, encoding=encoding)
    with pytest.raises(UserError, match=r"line 2: not valid UTF-8 .* save the file as UTF-8, or convert it, as in: iconv"):
        read_pairs(tmp_path / "p.csv")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_recognized(tmp_path, encoding):
    PAIRS.to_csv(tmp_path / "p.csv", index=False, encoding=encoding)
    task = read_pairs(tmp_path / "p.csv")
    assert {(left, right) for left, right, _ in everything(task)} == set(ROWS) and "p.csv: read as UTF-16" in task.notes


def test_sides_that_say_nothing_are_pointed_to(tmp_path):
    PAIRS.assign(answer="the same").to_csv(tmp_path / "p.csv", index=False)
    assert any("all right texts are the same, 'the same'" in note for note in read_pairs(tmp_path / "p.csv").notes)
    PAIRS.assign(answer=PAIRS["question"]).to_csv(tmp_path / "p.csv", index=False)
    assert "60 of 60 pairs have the same text on both sides" in read_pairs(tmp_path / "p.csv").notes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["train", "--data", "a.csv", "b.csv", "c.csv"],
            "--data takes one file, and 3 follow it: put the pattern in quotes, as in",
        ),
        (["train", "--data", "a.csv", "b.csv"], "a file of pairs goes with --data, each with its own"),
        (["evaluate", "minilm", "--data", "a.csv", "b.csv"], "b.csv is a file: give each file an option of its own"),
    ],
)
def test_a_pattern_that_the_shell_has_replaced_is_recognized(tmp_path, words, message, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        PAIRS.to_csv(f"{name}.csv", index=False)
    with pytest.raises(SystemExit):
        main(words)
    assert message in capsys.readouterr().err


def test_a_source_of_a_recipe_takes_the_same_options(tmp_path):
    PAIRS.assign(
        label=["E", "S", "I"] * 20, part=(["train"] * 8 + ["dev", "test"]) * 6, answer=[None, *PAIRS["answer"][1:]]
    ).to_csv(tmp_path / "p.csv", index=False)
    options = {"split_column": "part", "grades": {"E": 1, "S": 0, "I": "out"}, "skip_empty": True}
    source = {"name": "dishes", "data": [str(tmp_path / "p.csv")], **options}
    task = read_sources(make_recipe({"name": "r", "sources": [source]})).sources["dishes"]
    assert (len(task.train) + len(task.dev) + len(task.test), task.kind) == (39, "classification")
    assert "as given" in task.notes[-1]


def test_a_corpus_leaves_out_empty_cells_and_knows_its_column_in_any_case(tmp_path, capsys):
    PAIRS.assign(answer=[None, " ", *PAIRS["answer"][2:]]).rename(columns={"answer": "Answer"}).to_csv(
        tmp_path / "p.csv", index=False
    )
    assert read_texts(tmp_path / "p.csv") == list(PAIRS["answer"][2:])
    assert "2 of 60 texts are empty, and left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["mine", "no-such-model", "out.xlsx"], ["review", "out.xlsx"], ["review", "t.csv", "--out", "."]]
)
def test_a_table_that_cannot_be_written_is_refused_before_the_work(tmp_path, words, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    PAIRS.to_csv("p.csv", index=False)
    with pytest.raises(SystemExit):
        main([*words, "--data", "p.csv"])
    said = capsys.readouterr().err
    assert "tables are written as .csv" in said and "left text from" not in said


def test_two_columns_of_texts_need_no_usual_names(tmp_path):
    tickets = PAIRS.set_axis(["Ticket", "Solution"], axis=1)
    tickets.assign(number=range(60), score=[row % 2 for row in range(60)]).to_csv(tmp_path / "p.csv", index=False)
    task = read_pairs(tmp_path / "p.csv")
    assert {(left, right) for left, right, _ in everything(task)} == set(ROWS) and len(set(task.train.label.tolist())) == 2
    assert "left text from column 'Ticket'; right text from column 'Solution'; label from column 'score'" in task.notes
    turned = read_pairs(tmp_path / "p.csv", left="Solution")
    assert {(right, left) for left, right, _ in everything(turned)} == set(ROWS)


def test_a_column_of_labels_does_not_stand_in_the_way_of_two_columns_of_texts(tmp_path):
    table = PAIRS.set_axis(["Customer message", "Known issue"], axis=1).assign(**{"Is same?": ["Yes", "No"] * 30})
    table.insert(0, "Ticket ID", range(1000, 1060))
    table.to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(UserError, match=r"column 'Is same\?' looks like labels: --label \"Is same\?\", or --no-label"):
        read_pairs(tmp_path / "p.csv")
    task = read_pairs(tmp_path / "p.csv", label="Is same?")
    assert "left text from column 'Customer message'; right text from column 'Known issue'" in task.notes
    assert {(left, right) for left, right, _ in everything(task)} == set(ROWS) and task.kind == "classification"


@pytest.mark.parametrize(
    "table",
    [
        PAIRS.set_axis(["how are you", "fine"], axis=1).assign(Yes=["Yes", "No"] * 30),
        PAIRS.set_axis(["Ticket", "Solution"], axis=1).assign(comment=PAIRS.answer),
        PAIRS.set_axis(["Ticket", "Solution"], axis=1).assign(owner=[f"name{row}" for row in range(60)]),
        PAIRS.set_axis(["how are you?", "fine"], axis=1),
        PAIRS.set_axis(["Ticket", "Ticket.1"], axis=1).assign(Ticket=range(60)),
    ],
)
def test_texts_are_not_guessed_where_another_column_could_be_one_or_the_header_is_missing(tmp_path, table):
    table.to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(UserError, match=r"which columns are the two texts|the first line seems to be a pair"):
        read_pairs(tmp_path / "p.csv")


@pytest.mark.parametrize("ids", [range(60), [f"Q{row:04d}" for row in range(60)], [f"doc_{row}" for row in range(60)]])
def test_ids_in_the_place_of_texts_are_pointed_to(tmp_path, ids):
    PAIRS.assign(answer=list(ids)).to_csv(tmp_path / "p.csv", index=False)
    said = f"column 'answer' holds numbers or ids such as '{ids[0]}': if texts belong to them, give a file with the texts"
    assert any(note.startswith(said) for note in read_pairs(tmp_path / "p.csv").notes)
    PAIRS.to_csv(tmp_path / "p.csv", index=False)
    assert not any("ids" in note for note in read_pairs(tmp_path / "p.csv").notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "text,text\na,b\n",
            "2 columns are called 'text'; rename all but one, such as text2, and name the two texts with --left",
        ),
        ("text\na\nb\n", "a pair needs two columns, and there is one: text; give a file with both texts of each pair"),
        ("left,right,label\na,b,0\nc,d,0\n", "every label is 0: .*; name another column with --label, or give --no-label"),
    ],
)
def test_a_table_that_gives_no_pairs_says_what_to_give(tmp_path, content, message):
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        read_pairs(tmp_path / "p.csv")


def test_columns_that_are_not_read_are_named(tmp_path):
    PAIRS.assign(result=["OK", "KO"] * 30, id=range(60)).to_csv(tmp_path / "p.csv", index=False)
    assert "not used: columns 'result', 'id'" in read_pairs(tmp_path / "p.csv").notes
    PAIRS.assign(**{f"x{number}": "a" for number in range(8)}).to_csv(tmp_path / "p.csv", index=False)
    assert "not used: columns 'x0', 'x1', 'x2', 'x3', 'x4', 'x5' and 2 more" in read_pairs(tmp_path / "p.csv").notes


def test_a_column_of_marks_is_asked_about_and_one_of_ids_is_not(tmp_path):
    PAIRS.assign(match=["x", None] * 30).to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(UserError, match="column 'match' looks like labels"):
        read_pairs(tmp_path / "p.csv")
    marked = read_pairs(tmp_path / "p.csv", label="match", grades={"x": 1, "": 0})
    assert sum(label == 1 for *_, label in everything(marked)) == 30 and marked.kind == "classification"
    PAIRS.assign(thread_id=[row % 10 for row in range(60)]).to_csv(tmp_path / "p.csv", index=False)
    assert read_pairs(tmp_path / "p.csv").kind == "retrieval"


@pytest.mark.parametrize("text", ["如何重置我的密码", "パスワードを忘れました", "ฉันจะต้มไข่ได้อย่างไร"])
def test_texts_in_scripts_without_blanks_are_texts(tmp_path, text):
    table = pd.DataFrame({"左边": [f"{text}{row}" for row in range(60)], "右边": [f"{row}{text}" for row in range(60)]})
    table.to_csv(tmp_path / "p.csv", index=False)
    assert "left text from column '左边'; right text from column '右边'" in read_pairs(tmp_path / "p.csv").notes


def test_test_pairs_that_dev_has_are_counted(tmp_path):
    PAIRS[:40].to_csv(tmp_path / "train.csv", index=False)
    PAIRS[40:].to_csv(tmp_path / "dev.csv", index=False)
    task = read_pairs(tmp_path / "train.csv", tmp_path / "dev.csv", tmp_path / "dev.csv")
    assert "test: 20 of 20 left texts (20 whole pairs) are in dev too: its scores may be too good" in task.notes


def test_a_file_of_numbered_lines_without_a_header_is_refused_as_one(tmp_path):
    lines = [f"{row}\t{row}\t{row + 1}\t{left}\t{right}\t0" for row, (left, right) in enumerate(ROWS)]
    (tmp_path / "p.tsv").write_text("\n".join(lines))
    with pytest.raises(UserError, match="the first line seems to be a pair, not the names of the columns"):
        read_pairs(tmp_path / "p.tsv")
