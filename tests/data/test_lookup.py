"""Where a task is looked for, what is said where it is not, and that the table is light."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import datasets
import pytest

from pairtune.data.datasets import TASKS, load_task, task_status
from pairtune.errors import UserError
from pairtune.metrics import check_metrics

ROW = "genre\tfile\t2012\t1\t2.5\tleft {0}\tright {0}\n"


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A machine with no data."""
    monkeypatch.delenv("PAIRTUNE_DATA", raising=False)
    monkeypatch.setenv("PAIRTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def put_stsb(folder, text):
    (folder / "stsb").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (folder / "stsb" / f"sts-{split}.csv").write_text(ROW.format(text))


def test_the_table_has_the_names_that_recipes_use():
    assert list(TASKS) == ["stsb", "mrpc", "qqp", "antique", "cqa-a", "cqa-b", "pfcc-s", "stdlib"]


@pytest.mark.parametrize("name", TASKS)
def test_every_metric_of_a_task_is_known(name):
    assert TASKS[name].metric in TASKS[name].metrics
    assert check_metrics(TASKS[name].metrics, retrieval=TASKS[name].kind == "retrieval") is None  # it would raise


def test_an_unknown_task_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"unknown task 'sts'; known: stsb, mrpc, .*stdlib"):
        load_task("sts")


def test_the_named_folder_comes_before_the_cache(nowhere, monkeypatch):
    put_stsb(nowhere / "cache" / "data", "cached")
    assert load_task("stsb").train.left == ("left cached",)
    put_stsb(nowhere / "mine", "mine")
    monkeypatch.setenv("PAIRTUNE_DATA", str(nowhere / "mine"))
    assert load_task("stsb").train.left == ("left mine",)
    put_stsb(nowhere / "given", "given")
    assert load_task("stsb", nowhere / "given").train.left == ("left given",)


@pytest.mark.parametrize("name", [name for name in TASKS if name != "stdlib"])
def test_status_says_how_to_get_what_is_not_there(nowhere, name):
    status = task_status(name)
    assert status.found is None and status.rows == {} and TASKS[name].how in status.says


def test_status_says_what_is_wrong_with_files_that_cannot_be_read(nowhere):
    put_stsb(nowhere, "x")
    (nowhere / "stsb" / "sts-dev.csv").write_text("broken\n")
    status = task_status("stsb", nowhere)
    assert status.found is None and "sts-dev.csv line 1: 1 columns, expected 7 or 9" in status.says


@pytest.mark.parametrize("name", ["cqa-a", "cqa-b", "pfcc-s"])
def test_a_task_without_files_says_where_it_looked_and_how_to_get_it(nowhere, name):
    with pytest.raises(UserError, match=rf"task {name}: there is no folder .*cache/data/\w+\. To get the data: "):
        load_task(name)


def test_without_a_network_the_hub_tasks_say_which_files_to_bring(nowhere):
    with pytest.raises(UserError, match=r"the hub gave no sentence-transformers/stsb: .* bring the files: Stsbenchmark"):
        load_task("stsb")


def hub(monkeypatch, **splits):
    """The hub is outside the machine: this is what it would send."""
    sent = {name: datasets.Dataset.from_list(rows) for name, rows in splits.items()}
    monkeypatch.setattr(datasets, "load_dataset", lambda repository, config=None: datasets.DatasetDict(sent))


def test_stsb_from_the_hub_is_already_divided_by_five(nowhere, monkeypatch):
    rows = [{"sentence1": "a", "sentence2": "b", "score": 0.76}]
    hub(monkeypatch, train=rows, validation=rows, test=rows)
    task = load_task("stsb")
    assert task.dev.label.tolist() == pytest.approx([0.76]) and task.dev.grade.tolist() == pytest.approx([3.8])
    assert task.source == "network"


def test_mrpc_from_the_hub_keeps_the_split_of_glue(nowhere, monkeypatch):
    rows = [{"sentence1": f"a{i}", "sentence2": f"b{i}", "label": i % 2, "idx": i} for i in range(6)]
    hub(monkeypatch, train=rows[:3], validation=rows[3:4], test=rows[4:])
    task = load_task("mrpc")
    assert task.train.left == ("a0", "a1", "a2") and task.dev.label.tolist() == [1] and task.test.right == ("b4", "b5")


def test_qqp_from_the_hub_halves_the_validation_set_because_test_labels_are_withheld(nowhere, monkeypatch):
    rows = [{"question1": f"a{i}", "question2": f"b{i}", "label": i % 2, "idx": i} for i in range(100)]
    hidden = [{**row, "label": -1} for row in rows]
    hub(monkeypatch, train=rows, validation=rows, test=hidden)
    task = load_task("qqp")
    assert len(task.train) == 100 and 30 < len(task.dev) < 70
    assert sorted(task.dev.left + task.test.left) == sorted(row["question1"] for row in rows)
    assert any("withheld" in note for note in task.notes)


def test_antique_without_files_asks_for_the_optional_package(nowhere, monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(UserError, match=r"ir_datasets is not installed: .*pip install ir_datasets"):
        load_task("antique")


def test_antique_through_ir_datasets_is_the_same_task(nowhere, monkeypatch):
    asked = [SimpleNamespace(query_id=f"q{i}", text=f"question {i}") for i in range(10)]
    judged = [SimpleNamespace(query_id=f"q{i}", doc_id=f"q{i}_{j}", relevance=4 - j) for i in range(10) for j in (0, 3)]
    answers = {row.doc_id: SimpleNamespace(text=f"answer {row.doc_id}") for row in judged}
    source = SimpleNamespace(
        qrels_iter=lambda: iter(judged),
        queries_iter=lambda: iter(asked),
        docs_store=lambda: SimpleNamespace(get_many=lambda ids: {name: answers[name] for name in ids}),
    )
    package = ModuleType("ir_datasets")
    package.load = lambda name: source
    monkeypatch.setitem(sys.modules, "ir_datasets", package)
    task = load_task("antique")
    assert len(task.train) == 18 and len(task.dev) == 2 and len(task.test) == 20
    assert task.test.right[0] == "answer q0_0" and task.test.label[:2].tolist() == [1, 0]


def test_the_table_of_tasks_imports_nothing_heavy():
    code = "import sys, pairtune.data.datasets, pairtune.data.own_tables, pairtune.data.negatives; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "datasets", "pyarrow", "sentence_transformers", "scipy"} & set(loaded)
