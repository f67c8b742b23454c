"""Training from end to end on the tiny encoder: records, models, stages."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from transformers import TrainerCallback

from pairtune.data.material import training_dataset
from pairtune.data.pairs import PairSet, Task
from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.report.summary import summarize, table_of_runs
from pairtune.runs.lock import hold_folder
from pairtune.runs.record import kept_run, read_records
from pairtune.sbert.trainer import PairTrainer, make_trainer
from pairtune.training import find_others, keep_best_seed, run, train
from small import assert_same_weights, files_of_at_most, sentence, small_recipe, weights


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_encoder, small_task):
    """A finished run: its record, and its folder."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    return run(small_recipe(tiny_encoder), 1, out=folder, task=small_task), folder


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of it that a test may change: its record, and its folder."""
    record, folder = finished
    return record, Path(shutil.copytree(folder, tmp_path / "one"))


def test_a_run_leaves_a_plain_model_a_card_and_a_record(finished):
    from sentence_transformers import SentenceTransformer

    record, folder = finished
    assert read_records(folder.parent / "results.jsonl") == [record]
    assert [epoch.epoch for epoch in record.epochs] == [1, 2]
    assert record.after["dev"]["Spearman"] == pytest.approx(max(epoch.dev["Spearman"] for epoch in record.epochs), abs=1e-5)
    assert record.epochs[record.best_epoch - 1].dev["Spearman"] == pytest.approx(record.after["dev"]["Spearman"], abs=1e-5)
    assert record.after["dev"]["Pearson"] > record.before["dev"]["Pearson"]
    assert record.pairs_per_second > 0 and record.versions["torch"] and record.device
    model = SentenceTransformer(record.model, device="cpu")
    assert model.encode(["stone river"]).shape == (1, 384)
    card = (folder / "model" / "README.md").read_text()
    assert "## Trained with pairtune" in card and "chernyavskiy" in card.lower()
    assert not (folder / "checkpoints").exists()


def test_a_tuned_model_loads_where_pairtune_is_not_installed(finished):
    record, _ = finished
    program = (
        "import sys; sys.modules['pairtune'] = None\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"print(SentenceTransformer({record.model!r}, device='cpu').encode('a').shape)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "(384,)", result.stderr
    assert "pairtune" not in "".join(p.read_text() for p in Path(record.model).glob("*.json"))


def test_the_best_seed_on_dev_becomes_the_model(tmp_path, tiny_encoder, small_task):
    runs = train(small_recipe(tiny_encoder, train={"epochs": 1}), seeds=(1, 2), out=tmp_path / "all", task=small_task)
    best = max(runs, key=lambda one: one.dev_score())
    assert_same_weights(tmp_path / "all" / "model", tmp_path / "all" / f"seed-{best.seed}" / "model")
    assert len(read_records(tmp_path / "results.jsonl")) == 2


def test_overwriting_loses_nothing_before_the_new_run_can_begin(tmp_path, tiny_encoder, small_task):
    recipe = small_recipe(tiny_encoder, train={"epochs": 1})
    train(recipe, seeds=(1, 2), out=tmp_path / "all", task=small_task)
    wrong = recipe.model_copy(update={"encoder": "./none"})
    with pytest.raises(UserError, match="there is no such folder"):
        train(wrong, seeds=(1,), out=tmp_path / "all", task=small_task, overwrite=True)
    assert (tmp_path / "all" / "seed-1" / "record.json").exists()
    with pytest.raises(UserError, match="there is no such folder"):
        run(wrong, 1, out=tmp_path / "new", task=small_task)
    assert not (tmp_path / "new").exists()  # the right command is not refused for the wrong one
    train(recipe, seeds=(3,), out=tmp_path / "all", task=small_task, overwrite=True)
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["model", "seed-3"]


def test_a_run_of_another_seed_that_is_at_work_is_not_lost(tmp_path):
    other = tmp_path / "seed-2"
    other.mkdir()
    (other / "recipe.json").write_text("{}")
    with hold_folder(other):
        assert find_others(tmp_path, (1,), overwrite=False) == [other]
        with pytest.raises(UserError, match="seed-2 is in use: process"):
            find_others(tmp_path, (1,), overwrite=True)
        with pytest.raises(UserError, match="seed-2 is in use: process"):  # begun while the new runs were trained
            keep_best_seed(tmp_path, [], [other])
        assert (other / "recipe.json").exists()


def test_a_model_that_no_run_made_is_left_alone(tmp_path, tiny_encoder, small_task):
    (tmp_path / "model").mkdir()
    with pytest.raises(UserError, match="model was not made by pairtune"):
        train(small_recipe(tiny_encoder), seeds=(1,), out=tmp_path, task=small_task, overwrite=True)


def test_a_disk_that_is_full_when_the_best_model_is_copied_is_said_in_words(copied, tmp_path):
    record, folder = copied
    folder.rename(tmp_path / "seed-1")
    with files_of_at_most(1_000_000), pytest.raises(UserError, match=r"could not write to .* \(\[Errno 27\].*raise the limit on"):
        keep_best_seed(tmp_path, [record], None)
    assert [path.name for path in tmp_path.iterdir()] == ["seed-1"]
    keep_best_seed(tmp_path, [record], None)
    assert_same_weights(tmp_path / "model", tmp_path / "seed-1" / "model")


def test_with_a_rotating_dev_each_seed_has_its_own(tmp_path, tiny_encoder):
    def pairs(name, count):
        return PairSet.of(
            [f"{name} {row}" for row in range(count)], [f"to {name} {row}" for row in range(count)], np.arange(count) / count
        )

    task = Task("own", "regression", pairs("train", 30), pairs("dev", 10), pairs("test", 8), "Spearman", ("Spearman",))
    recipe = small_recipe(tiny_encoder, dev="rotating", train={"epochs": 1})
    runs = train(recipe, seeds=(1, 2), out=tmp_path / "all", task=task)
    assert [one.pairs for one in runs] == [{"train": 36, "dev": 4, "test": 8}] * 2
    assert runs[0].before["dev"] != runs[1].before["dev"] and runs[0].before["test"] == runs[1].before["test"]
    recipe = small_recipe(tiny_encoder, dev="rotating", train={"file": "pairs.parquet"})
    with pytest.raises(UserError, match=r'dev = "rotating" takes pairs of the task, and train.file may have them too'):
        run(recipe, 1, out=tmp_path / "file", task=task)


def test_a_joined_dev_is_trained_on_and_nothing_is_chosen_by_it(tmp_path, tiny_encoder, small_task):
    recipe = small_recipe(tiny_encoder, dev="joined", select="last", train={"epochs": 1})
    runs = train(recipe, seeds=(1, 2), out=tmp_path / "all", task=small_task)
    assert [one.pairs for one in runs] == [{"train": 72, "dev": 24, "test": 24}] * 2
    assert runs[0].notes == ["dev: its 24 pairs are in the training set too, so scores on dev say nothing about new pairs"]
    assert_same_weights(tmp_path / "all" / "model", tmp_path / "all" / "seed-1" / "model")  # the first, whatever dev says
    swapped = [
        one.model_copy(update={"after": {**one.after, "dev": {"Spearman": score}}})
        for one, score in zip(runs, (0, 1), strict=True)
    ]
    assert kept_run(swapped) == 0 and kept_run([one.model_copy(update={"recipe": {}}) for one in swapped]) == 1
    summary = summarize(runs)
    assert summary["test_of_kept"] is summary["dev_mean"] is None and summary["model"] == runs[0].model
    columns = [column.header for column in table_of_runs(runs).columns]
    assert columns[-1] == "dev, trained on"


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("regression", {}, 'dev = "joined" leaves no pairs to choose an epoch by: set select = "last" or "average"'),
        ("classification", {"select": "last"}, 'dev = "joined" would train on the pairs that choose the threshold of F1'),
    ],
)
def test_a_joined_dev_is_refused_where_something_is_chosen_by_it(tmp_path, tiny_encoder, small_task, kind, settings, message):
    with pytest.raises(UserError, match=message):
        run(small_recipe(tiny_encoder, dev="joined", **settings), 1, out=tmp_path / "run", task=replace(small_task, kind=kind))
    assert not (tmp_path / "run").exists()


def test_without_checkpoints_a_run_ends_with_the_same_weights(tmp_path, tiny_encoder, small_task):
    recipe = small_recipe(tiny_encoder, train={"learning_rate": 5e-4, "epochs": 3})
    records = {
        kept: run(recipe, 1, out=tmp_path / kept, task=small_task, checkpoints=kept == "all", keep_model=kept != "scores")
        for kept in ("all", "model", "scores")
    }
    assert_same_weights(tmp_path / "all" / "model", tmp_path / "model" / "model")
    assert not (tmp_path / "scores" / "model").exists()
    assert len({str(record.after) for record in records.values()}) == 1
    assert records["all"].best_epoch < 3  # or the test would not see which epoch was kept


def test_a_run_of_a_version_that_had_fewer_settings_is_known_again(copied, tiny_encoder, small_task):
    recipe = small_recipe(tiny_encoder)
    first, folder = copied
    asked = folder / "recipe.json"
    found = json.loads(asked.read_text())
    del found["recipe"]["dev"], found["recipe"]["stages"][0]["train"]["dropout"]
    asked.write_text(json.dumps(found))
    assert run(recipe, 1, out=folder, task=small_task, resume=True) == first
    with pytest.raises(UserError, match=r"other settings \(recipe.dev is 'given' there, 'rotating' now\)"):
        run(recipe.model_copy(update={"dev": "rotating"}), 1, out=folder, task=small_task, resume=True)


def test_checkpoints_that_a_killed_process_left_in_a_finished_run_are_dropped(copied, tiny_encoder, small_task):
    first, folder = copied
    left = folder / "checkpoints" / "stage-1" / "checkpoint-4" / "model.safetensors"
    left.parent.mkdir(parents=True)
    left.touch()
    assert run(small_recipe(tiny_encoder), 1, out=folder, task=small_task, resume=True) == first
    assert not left.exists()


@pytest.mark.parametrize("stopped", [False, True])
def test_dropout_of_the_first_epoch_only_is_back_after_training(tmp_path, tiny_encoder, small_task, stopped):
    from pairtune.encoders.loading import load_encoder
    from pairtune.sbert.trainer import make_trainer

    shares = []

    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            shares.append((model[0].auto_model.embeddings.dropout.p, state.epoch))
            if stopped and state.epoch > 1:
                raise KeyboardInterrupt

    model = load_encoder(tiny_encoder, 16, "cpu")
    order = {"by": "examples", "neighbors": 4, "encode": "reuse"}
    stage = small_recipe(tiny_encoder, train={"dropout": "first-epoch"}, order=order).stages[0]
    pairs = small_task.train
    dataset = Dataset.from_dict({"left": pairs.left, "right": pairs.right, "label": pairs.label})
    folder = tmp_path / "stages" / "1"
    trainer = make_trainer(model, dataset, stage, small_task, 1, folder, [Look()], select="last", checkpoints=False)
    with pytest.raises(KeyboardInterrupt) if stopped else nullcontext():
        trainer.train()
    assert {share for share, epoch in shares if epoch <= 1} == {0.1}
    assert {share for share, epoch in shares if epoch > 1} == {0.0}
    assert model[0].auto_model.embeddings.dropout.p == 0.1
    assert not model._forward_hooks


def test_a_stage_may_keep_another_epoch_than_the_recipe(tmp_path, tiny_encoder, small_task):
    """Labels upside down, so dev falls: its best epoch is the first, and the stage that asks for its last goes on from there."""
    pairs = small_task.train
    task = replace(small_task, train=PairSet.of(pairs.left, pairs.right, 1 - pairs.label))
    first = {"loss": {"kind": "mse"}, "train": {"learning_rate": 1e-3}}
    second = {"loss": {"kind": "mse"}, "train": {"epochs": 1, "learning_rate": 1e-9}}
    kept = {}
    for select in ("best", "last"):
        recipe = small_recipe(tiny_encoder, stages=[{**first, "select": select}, second])
        assert recipe.selects == (select, "best")
        found = run(recipe, 1, out=tmp_path / select, task=task, checkpoints=False)
        kept[select] = [epoch.dev["Spearman"] for epoch in found.epochs]
    scores = kept["best"][:2]
    assert kept["last"][:2] == scores and scores[0] > scores[1]
    assert [kept[select][2] for select in ("best", "last")] == pytest.approx(scores, abs=1e-4)


def test_stages_follow_each_other_and_the_second_starts_where_the_first_ended(tmp_path, tiny_encoder, small_task):
    stages = [{"loss": {"kind": "bsc"}}, {"loss": {"kind": "mse"}, "train": {"learning_rate": 1e-9}}]
    staged = run(small_recipe(tiny_encoder, stages=stages), 1, out=tmp_path / "two", task=small_task, checkpoints=False)
    run(small_recipe(tiny_encoder, loss={"kind": "bsc"}), 1, out=tmp_path / "one", task=small_task, checkpoints=False)
    assert [(epoch.stage, epoch.epoch) for epoch in staged.epochs] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    one, two = weights(tmp_path / "one" / "model"), weights(tmp_path / "two" / "model")
    for name in one:  # a second stage with a rate of nearly nothing leaves the first one's weights
        np.testing.assert_allclose(one[name], two[name], atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "bias_correction"),
    [
        ({"kind": "bsc"}, False),
        ({"kind": "mse"}, True),
        ({"kind": "pearson"}, True),
        ({"kind": "triplet", "margin": 8.0}, True),  # raw vectors of random words are that far apart
    ],
)
def test_every_loss_lowers_itself(tmp_path, tiny_encoder, small_task, loss, bias_correction):
    train = {"epochs": 2, "bias_correction": bias_correction}
    recipe = small_recipe(tiny_encoder, loss=loss, train=train, select="last")
    record = run(recipe, 1, out=tmp_path / "run", task=small_task, checkpoints=False)
    losses = [epoch.loss for epoch in record.epochs]
    assert min(losses[1:]) < losses[0] and np.isfinite(losses).all()


def test_logarithmic_negatives_give_a_search_task_two_classes(tmp_path, tiny_encoder):
    rng = np.random.default_rng(5)
    corpus = tuple(f"{sentence(rng)} {number}" for number in range(160))
    pairs = PairSet.of([f"find {text}" for text in corpus[:12]], corpus[:12], corpus=corpus)
    task = Task("tiny-search", "retrieval", pairs, pairs, pairs, "HP@1", ("HP@1", "MRR"))
    recipe = small_recipe(tiny_encoder, loss={"kind": "mse"}, train={"epochs": 1, "negatives": "logarithmic"})
    record = run(recipe, 1, out=tmp_path / "run", task=task, checkpoints=False, keep_model=False)
    assert 0 <= record.after["test"]["HP@1"] <= 1 and record.epochs[0].loss > 0


def test_pearson_needs_labels_that_differ(tmp_path, tiny_encoder):
    pairs = PairSet.of(["a", "b"], ["c", "d"])
    task = Task("flat", "regression", pairs, pairs, pairs, "Spearman", ("Spearman",))
    with pytest.raises(UserError, match="all training labels are 1; the Pearson loss needs labels that differ"):
        run(small_recipe(tiny_encoder, loss={"kind": "pearson"}), 1, out=tmp_path / "run", task=task)


def write_parquet(path, pairs, label="y"):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"extra": list(pairs.right), "q": list(pairs.left), "a": list(pairs.right), label: pairs.label}), path
    )


def test_a_parquet_file_in_order_trains_as_the_same_pairs_in_memory(tmp_path, tiny_encoder, small_task, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_parquet(tmp_path / "ordered.parquet", small_task.train)
    file = {"file": str(tmp_path / "ordered.parquet"), "columns": ["q", "a", "y"], "epochs": 1}
    original = {"order": {"by": "original"}}
    run(small_recipe(tiny_encoder, train=file, **original), 1, out=tmp_path / "file", task=small_task, checkpoints=False)
    run(
        small_recipe(tiny_encoder, train={"epochs": 1}, **original),
        1,
        out=tmp_path / "memory",
        task=small_task,
        checkpoints=False,
    )
    assert_same_weights(tmp_path / "file" / "model", tmp_path / "memory" / "model")


def test_a_training_file_that_has_changed_is_not_gone_on_with(tmp_path, tiny_encoder, small_task, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "ordered.parquet"
    write_parquet(path, small_task.train)
    recipe = small_recipe(tiny_encoder, train={"file": str(path), "columns": ["q", "a", "y"], "epochs": 1})
    record = run(recipe, 1, out=tmp_path / "run", task=small_task)
    write_parquet(path, small_task.train.take(range(len(small_task.train))[::-1]))
    with pytest.raises(
        UserError, match=r"other settings \(files.*ordered.parquet is '[\d,]+ bytes, \w{12}' there, '[\d,]+ bytes"
    ):
        run(recipe, 1, out=tmp_path / "run", task=small_task, resume=True)
    path.unlink()  # a finished run does not need it any more
    assert run(recipe, 1, out=tmp_path / "run", task=small_task, resume=True) == record
    asked = json.loads((tmp_path / "run" / "recipe.json").read_text())
    del asked["files"]
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(asked))  # as versions before this one wrote it
    assert run(recipe, 1, out=tmp_path / "run", task=small_task, resume=True) == record


def test_a_training_file_is_mapped_not_loaded(tmp_path, small_task):
    from pairtune.data.material import dataset_of_file

    write_parquet(tmp_path / "ordered.parquet", small_task.train)
    recipe = small_recipe("minilm", train={"file": str(tmp_path / "ordered.parquet"), "columns": ["q", "a", "y"]})
    dataset = dataset_of_file(recipe.stages[0])
    assert dataset.column_names == ["left", "right", "label"] and dataset.cache_files
    assert dataset[3]["left"] == small_task.train.left[3]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"columns": ["q", "b"]}, "has no column b; it has: extra, q, a, y"),
        ({"columns": ["q", "a", "y"], "positives_only": True}, "is trained on as it stands"),
        ({"columns": ["q", "a", "y"], "labels": "graded"}, "is trained on as it stands"),
        ({"columns": ["q", "a", "y"], "candidates": 9}, "is trained on as it stands"),
        ({"columns": ["q", "a", "y"], "splits": "train+more"}, "is trained on as it stands"),
        ({"columns": ["q", "a", "y"], "file": "none.parquet"}, "cannot be read as Parquet"),
    ],
)
def test_a_training_file_that_does_not_fit_is_refused(tmp_path, small_task, train, message):
    from pairtune.data.material import dataset_of_file

    write_parquet(tmp_path / "ordered.parquet", small_task.train)
    recipe = small_recipe("minilm", train={"file": str(tmp_path / "ordered.parquet"), **train})
    with pytest.raises(UserError, match=message):
        dataset_of_file(recipe.stages[0])


SPOILED = {
    "a text is missing": ({"a": ["x", None, "z"]}, "row 2 has no a: leave the row out"),
    "a label is missing": ({"y": [0.0, 1.0, None]}, "row 3 has no y: leave the row out"),
    "a label is not a number": ({"y": [0.0, math.nan, 1.0]}, "row 2 has no y: leave the row out"),
    "labels are texts": ({"y": ["0", "1", "0.5"]}, "column y holds string, and should be the label: set train.columns"),
    "texts are numbers": ({"q": [1, 2, 3]}, "column q holds int64, and should be the text: set train.columns"),
    "labels are of another scale": ({"y": [0, 5, 3]}, "labels lie in 0.0 to 5.0; labels here lie in 0 to 1"),
    "no rows": ({"q": np.array([], str), "a": np.array([], str), "y": np.array([])}, "has no rows: give one that has"),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_training_file_with_rows_that_nothing_can_be_learned_from_is_refused(tmp_path, spoiled):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pairtune.data.material import dataset_of_file

    columns, message = SPOILED[spoiled]
    table = {"q": ["a", "b", "c"], "a": ["x", "y", "z"], "y": [0.0, 1.0, 0.5], **columns}
    pq.write_table(pa.table(table), tmp_path / "spoiled.parquet")
    recipe = small_recipe("minilm", train={"file": str(tmp_path / "spoiled.parquet"), "columns": ["q", "a", "y"]})
    with pytest.raises(UserError, match=message):
        dataset_of_file(recipe.stages[0])


def test_a_training_file_that_has_a_column_twice_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pairtune.data.material import dataset_of_file

    pq.write_table(pa.table([["a"], ["x"], ["y"]], names=["q", "a", "a"]), tmp_path / "twice.parquet")
    recipe = small_recipe("minilm", train={"file": str(tmp_path / "twice.parquet"), "columns": ["q", "a"]})
    with pytest.raises(UserError, match=r"column a is named twice, in the file or in train\.columns: name each once"):
        dataset_of_file(recipe.stages[0])


def test_the_loss_of_an_epoch_is_the_mean_of_its_steps(tmp_path, tiny_encoder, small_task, capsys):
    """Eleven steps to an epoch, and the host logs every ten: against the losses of single steps."""
    task = replace(small_task, train=small_task.train.take(np.arange(44)))
    seen = []

    class Look(PairTrainer):
        def training_step(self, *args, **kwargs):
            loss = super().training_step(*args, **kwargs)
            seen.append(float(loss))
            return loss

    recipe = small_recipe(tiny_encoder, train={"batch_size": 4, "fast": False})
    record = run(recipe, 1, out=tmp_path / "run", task=task, checkpoints=False, keep_model=False)
    told = re.findall(r"epoch \d of 2  loss ([\d.]+)  dev", capsys.readouterr().err)
    stage, folder = recipe.stages[0], tmp_path / "look" / "checkpoints" / "stage-1"
    model = load_encoder(tiny_encoder, 16, "cpu")
    trainer = make_trainer(model, training_dataset(model, task, stage, 1), stage, task, 1, folder, [], select="last")
    trainer.__class__ = Look
    trainer.train()
    means = np.array(seen).reshape(2, 11).mean(axis=1)
    assert [epoch.loss for epoch in record.epochs] == pytest.approx(means, rel=1e-5)
    assert [float(loss) for loss in told] == pytest.approx(means, abs=1e-4)


def test_a_training_that_diverges_is_called_so_with_its_rate(tmp_path, tiny_encoder, small_task):
    recipe = small_recipe(tiny_encoder, train={"learning_rate": 1e30, "clip": 1e30})
    with pytest.raises(
        UserError,
        match=r"training diverged: the loss is NaN or infinite since step \d+\. Lower train.learning_rate \(it is 1e\+30",
    ):
        run(recipe, 1, out=tmp_path / "run", task=small_task)
