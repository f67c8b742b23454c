from __future__ import annotations

from dataclasses import replace

import pytest

from pairtune.data.material import take_splits, training_dataset
from pairtune.data.pairs import PairSet, Task
from pairtune.data.sources import arrange
from pairtune.errors import UserError
from pairtune.runs.folder import ask_for
from pairtune.runs.toml import make_recipe
from pairtune.training import run
from small import small_pairs, small_recipe


def make_task(kind="retrieval"):
    """Three pairs each, and titles of which one is a text of dev, one a text of test."""
    train, dev, test = (PairSet.of([f"{name} {row}" for row in range(3)], list("xyz")) for name in ("train", "dev", "test"))
    titles = PairSet.of(["title 0", "dev 1", "title 1", "test 2"], list("xyzx"))
    return Task("made", kind, train, dev, test, "MRR", ("MRR",), notes=("as it came",), extra={"titles": titles})


def ask(**train):
    return make_recipe({"name": "made/bsc", "task": "made", "train": train})


def test_a_stage_trains_on_the_splits_it_names_in_their_order():
    task = make_task()
    assert take_splits(task, "train") is task.train
    assert take_splits(task, "train+titles").left == ("train 0", "train 1", "train 2", "title 0", "title 1")
    assert take_splits(task, "titles+train").left[:2] == ("title 0", "title 1")
    assert training_dataset(None, task, ask(splits="titles").stages[0], 1)["right"] == ["x", "z"]


def test_no_extra_pair_has_a_left_text_that_dev_or_test_has():
    rotated = replace(make_task(), dev=PairSet.of(["title 1"], ["z"]))
    assert take_splits(rotated, "titles").left == ("title 0", "dev 1")


def test_pairs_of_extra_splits_keep_label_and_grade():
    task = make_task("ranking")
    graded = PairSet.of(["q", "q"], ["good", "bad"], [1, 0], query=["7", "7"], grade=[2, 0])
    pairs = take_splits(replace(task, extra={"more": graded}), "train+more")
    assert pairs.label.tolist() == [1, 1, 1, 1, 0] and pairs.grade.tolist() == [1, 1, 1, 2, 0]
    assert pairs.query.tolist()[-2:] == ["7", "7"]


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (
            "train+dev",
            r'dev is for evaluation: dev = "joined" is there for it; to train on, there is: train, titles, seen',
        ),
        ("test", r'train.splits = "test": test is for evaluation; to train on, there is: train, titles'),
        ("train+tittles", r"task made has no split 'tittles'; to train on, there is: train, titles"),
        ("train+train", r"train is named twice; name each split once"),
        ("train+seen", r"every pair of seen is in train already.*: leave it out"),
    ],
)
def test_splits_that_cannot_be_trained_on_are_refused_before_anything_is_written(splits, message, tmp_path):
    seen = PairSet.of(["train 0", "test 0"], ["x", "y"])
    task = replace(make_task(), extra={**make_task().extra, "seen": seen})
    with pytest.raises(UserError, match=message):
        run(ask(splits=splits), 1, out=tmp_path / "run", task=task)
    assert not (tmp_path / "run").exists()


def test_filling_goes_with_the_queries_of_train_alone():
    with pytest.raises(UserError, match=r'train.candidates = 9 fills the queries of train, and train.splits = "train\+titles"'):
        arrange(make_task("ranking"), ask(splits="train+titles", candidates=9), 1)


def test_the_notes_say_what_was_trained_on_beside_train():
    assert arrange(make_task(), ask(), 1).notes == ("as it came",)
    assert arrange(make_task(), ask(splits="train+titles"), 1).notes == (
        "as it came",
        "train: train+titles, 5 pairs; 2 left out, as they are in train or their left text is in dev or test",
    )


def test_a_pair_that_is_there_already_does_not_come_twice():
    again = PairSet.of(["train 1", "train 1", "new"], ["y", "other", "y"])
    pairs = take_splits(replace(make_task(), extra={"again": again}), "train+again")
    assert list(zip(pairs.left, pairs.right, strict=True))[3:] == [("train 1", "other"), ("new", "y")]


def test_splits_that_are_no_line_of_names_are_explained():
    with pytest.raises(UserError, match=r"train.splits is 'train, titles'; name the task's splits with a \+ between them"):
        ask(splits="train, titles")


def ask_of(recipe, task):
    return ask_for(recipe, 1, task.fingerprint(recipe.extra_splits))


def test_a_run_goes_on_only_with_the_extra_pairs_that_it_began_with():
    task = make_task()
    other = replace(task, extra={"titles": PairSet.of(["another"], ["x"])})
    assert ask_of(ask(), task) == ask_of(ask(), other)
    added = ask(splits="train+titles")
    assert ask_of(added, task)["data"] != ask_of(added, other)["data"] != ask_of(ask(), other)["data"]


def test_titles_first_then_the_pairs_themselves(tiny_encoder, tmp_path):
    splits = [small_pairs(size, seed) for size, seed in ((40, 1), (20, 2), (20, 3), (32, 4))]
    task = Task("small", "regression", *splits[:3], "Spearman", ("Spearman",), extra={"titles": splits[3]})
    stages = [{"train": {"splits": "titles", "epochs": 1}}, {"train": {"epochs": 1}}]
    recipe = small_recipe(tiny_encoder, stages=stages)
    record = run(recipe, 1, out=tmp_path / "run", task=task)
    assert record.notes[-1].startswith("train: titles, 32 pairs; 0 left out")
    assert round(record.pairs_per_second * record.seconds) == 32 + 40
    with pytest.raises(UserError, match=r"other settings \(data"):
        run(recipe, 1, out=tmp_path / "run", task=replace(task, extra={"titles": small_pairs(32, 5)}), resume=True)
