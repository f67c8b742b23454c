"""Several datasets in one training."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.data.sources import read_sources
from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.fast.packing import PackingCollator
from pairtune.runs.record import choice_score
from pairtune.runs.settings import unread_settings
from pairtune.runs.toml import make_recipe, read_recipe, to_toml
from pairtune.sbert.evaluator import evaluate_task
from pairtune.training import run
from pairtune.tune.folds import fold_name, make_folds
from small import WORDS, assert_same_weights

FAQ = [(f"{one} {other}", f"the {one} and the {other}") for one in WORDS for other in WORDS[:3] if one != other]


ONE_LOSS = "those below, without a loss or order of their own"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Questions with answers as .csv, and sentences with grades as .jsonl under other names of columns."""
    folder = tmp_path_factory.mktemp("sources")
    with (folder / "faq.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *FAQ])
    rng = np.random.default_rng(1)
    rows = [(" ".join(rng.choice(WORDS, 3)), " ".join(rng.choice(WORDS, 3)), int(rng.integers(0, 6))) for _ in range(60)]
    lines = [json.dumps({"s1": f"see {left}", "s2": right, "similarity": grade}) for left, right, grade in rows]
    (folder / "sts.jsonl").write_text("\n".join(lines))
    return folder


def sources(folder, **more):
    faq = {"name": "faq", "data": [str(folder / "faq.csv")], "loss": {"kind": "bsc"}, "order": {"by": "examples"}}
    sts = {"name": "sts", "data": [str(folder / "sts.jsonl")], "left": "s1", "right": "s2", "loss": {"kind": "cosent"}}
    return [faq | more.get("faq", {}), sts | more.get("sts", {})]


def recipe(tiny_encoder, folder, **tables):
    train = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-4, "max_seq_length": 16, **tables.pop("train", {})}
    named = {"sources": sources(folder), **tables}
    return make_recipe({"name": "several", "encoder": tiny_encoder, "keep_original": False, "train": train, **named})


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_encoder, folder):
    """A run that nobody stopped."""
    out = tmp_path_factory.mktemp("trained") / "run"
    return out, run(recipe(tiny_encoder, folder), 1, out=out)


def test_scores_are_those_of_each_source_and_their_mean_chooses(trained, tiny_encoder, folder):
    from pairtune import read_pairs

    out, record = trained
    model = load_encoder(str(out / "model"), 16)
    for split in ("dev", "test"):
        own = {
            "faq": evaluate_task(model, read_pairs(folder / "faq.csv"), [split])[split],
            "sts": evaluate_task(model, read_pairs(folder / "sts.jsonl", left="s1", right="s2"), [split])[split],
        }
        for name, values in own.items():
            assert {key: record.after[split][f"{name} {key}"] for key in values} == pytest.approx(values, abs=1e-4)
        assert record.after[split]["mean"] == pytest.approx((own["faq"]["HP@1"] + own["sts"]["Spearman"]) / 2, abs=1e-4)
    means = [choice_score(epoch.dev, "mean") for epoch in record.epochs]
    assert record.metric == "mean" and record.best_epoch == 1 + int(np.argmax(means))


@pytest.fixture
def seen(monkeypatch):
    """The left texts of every batch that the fast step packs."""
    batches = []
    collate = PackingCollator.__call__

    def note(self, rows):
        batches.append([row["left"] for row in rows])
        return collate(self, rows)

    monkeypatch.setattr(PackingCollator, "__call__", note)
    return batches


@pytest.mark.parametrize("share", ["size", "equal"])
def test_no_batch_mixes_sources_and_each_has_its_share(tmp_path, tiny_encoder, folder, seen, share):
    run(recipe(tiny_encoder, folder, share=share, train={"epochs": 1}), 1, out=tmp_path / "run", checkpoints=False)
    kinds = [{text.startswith("see ") for text in batch} for batch in seen]
    assert all(len(kind) == 1 for kind in kinds)
    counts = [sum(kind == {value} for kind in kinds) for value in (False, True)]
    rows = [sum(len(batch) for batch, kind in zip(seen, kinds, strict=True) if kind == {value}) for value in (False, True)]
    if share == "equal":
        assert counts[0] == counts[1] > 0
    else:
        assert counts == [-(-count // 8) for count in rows] and rows == [27, 50]


def test_batches_mix_where_they_are_told_to(tmp_path, tiny_encoder, folder, seen):
    plain = [{key: value for key, value in source.items() if key not in ("loss", "order")} for source in sources(folder)]
    mixed = recipe(tiny_encoder, folder, sources=plain, mix_sources=True, train={"epochs": 1})
    record = run(mixed, 1, out=tmp_path / "run", checkpoints=False)
    assert any(len({text.startswith("see ") for text in batch}) == 2 for batch in seen)
    assert "faq HP@1" in record.after["test"]


def test_the_plain_step_trains_on_them_too_with_the_prompts_of_each(tmp_path, tiny_encoder, folder, monkeypatch):
    from pairtune.data import material

    columns = {}
    make = material.training_dataset

    def note(model, task, *rest):
        columns[task.name] = task.train.left[0]
        return make(model, task, *rest)

    monkeypatch.setattr("pairtune.data.sources.training_dataset", note)
    prompted = sources(folder, faq={"prompts": {"left": "query: "}})
    record = run(
        recipe(tiny_encoder, folder, sources=prompted, train={"fast": False, "epochs": 1}),
        1,
        out=tmp_path / "run",
        checkpoints=False,
        keep_model=False,
    )
    assert record.epochs[0].loss > 0
    assert columns["faq"].startswith("query: ") and columns["sts"].startswith("see ")


def test_a_run_on_several_sources_that_died_goes_on_to_the_same_weights(tmp_path, tiny_encoder, folder, trained, monkeypatch):
    from pairtune.sbert.hard_batches import HardBatches

    begin = HardBatches.on_epoch_begin

    def die(self, args, state, control, **kwargs):
        if state.global_step:
            raise RuntimeError("the machine went down")
        begin(self, args, state, control, **kwargs)

    monkeypatch.setattr(HardBatches, "on_epoch_begin", die)
    with pytest.raises(RuntimeError, match="went down"):
        run(recipe(tiny_encoder, folder), 1, out=tmp_path / "died")
    monkeypatch.setattr(HardBatches, "on_epoch_begin", begin)
    run(recipe(tiny_encoder, folder), 1, out=tmp_path / "died", resume=True)
    assert_same_weights(tmp_path / "died" / "model", trained[0] / "model")


def test_the_command_line_trains_such_a_recipe_and_writes_its_report(tmp_path, tiny_encoder, folder):
    path = tmp_path / "several.toml"
    path.write_text(to_toml(recipe(tiny_encoder, folder, train={"epochs": 1})))
    result = CliRunner().invoke(app, ["train", str(path), "--out", str(tmp_path / "run"), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["metric"] == "mean" and (tmp_path / "run" / "seed-1" / "report.html").exists()
    assert "faq: retrieval: every pair is positive" in result.stderr and "sts: regression" in result.stderr


def test_the_report_of_a_source_with_labels_yes_and_no_shows_its_f1_and_no_threshold(tmp_path, tiny_encoder, folder):
    splits = ("train", "train", "dev", "dev", "test", "test")
    rows = [
        {"left": f"is it {left}", "right": right, "label": row % 2, "split": splits[row % 6]}
        for row, (left, right) in enumerate(FAQ)
    ]
    (tmp_path / "yes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    yes = {"name": "yes", "data": [str(tmp_path / "yes.jsonl")], "loss": {"kind": "cosent"}}
    path = tmp_path / "several.toml"
    path.write_text(to_toml(recipe(tiny_encoder, folder, sources=[sources(folder)[0], yes], train={"epochs": 1})))
    result = CliRunner().invoke(app, ["train", str(path), "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "run" / "seed-1" / "report.html").read_text()
    assert "yes F1" in page and "yes F1" in result.stdout and "yes threshold" not in result.stdout


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"dev": "rotating"}, "dev and dev_candidates work with one dataset only"),
        ({"mix_sources": True}, "source faq has a loss or order of its own"),
        ({"train": {"file": "more.parquet"}}, r"train\.file works with one dataset only"),
        (
            {"train": {"negatives": "mined"}, "loss": {"kind": "mse"}, "sources": ONE_LOSS},
            "no source has a loss that can use them: take bsc or combo",
        ),
    ],
)
def test_what_is_about_one_dataset_is_refused(tmp_path, tiny_encoder, folder, tables, message):
    if tables.get("sources") == ONE_LOSS:
        tables = {**tables, "sources": [{**source, "loss": {}, "order": {}} for source in sources(folder)]}
    with pytest.raises(UserError, match=message):
        run(recipe(tiny_encoder, folder, **tables), 1, out=tmp_path / "run")


def test_negatives_are_mined_among_the_texts_of_the_sources_whose_loss_uses_them(tmp_path, tiny_encoder, folder, monkeypatch):
    rows = []
    pack = PackingCollator.__call__
    monkeypatch.setattr(PackingCollator, "__call__", lambda self, batch: rows.extend(batch) or pack(self, batch))
    graded = sources(folder, faq={"loss": {"kind": "combo"}})
    mined = recipe(tiny_encoder, folder, sources=graded, train={"epochs": 1, "negatives": "mined", "mined": 2})
    run(mined, 1, out=tmp_path / "run", checkpoints=False)
    answers, right = dict(FAQ), {answer for _, answer in FAQ}
    faq = [row for row in rows if not row["left"].startswith("see ")]
    negatives = [row[f"negative_{number}"] for row in faq for number in (1, 2)]
    assert faq and {*negatives} <= right, "never a text of the other source"
    assert all(answers[row["left"]] not in (row["negative_1"], row["negative_2"]) for row in faq)
    assert len(faq) < len(rows) and not any("negative_1" in row for row in rows if row["left"].startswith("see "))


def test_inspect_looks_at_each_source_by_its_own_settings(tmp_path, tiny_encoder, folder):
    path = tmp_path / "several.toml"
    path.write_text(to_toml(recipe(tiny_encoder, folder)))
    result = CliRunner().invoke(app, ["inspect", str(path)])
    assert result.exit_code == 0, result.output
    assert (
        "source faq" in result.stdout and "source sts" in result.stdout and "retrieval: every pair is positive" in result.stdout
    )
    seen = json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).stdout)["sources"]
    assert {name: one["data"]["pairs"] for name, one in seen.items()} == {"faq": len(FAQ), "sts": 60}


def test_a_search_tries_what_the_sources_share_and_its_recipe_names_them(tmp_path, tiny_encoder, folder):
    path, out = tmp_path / "several.toml", tmp_path / "tuned"
    path.write_text(to_toml(recipe(tiny_encoder, folder, train={"epochs": 1})))
    search = ["tune", str(path), "--minutes", "0", "--trainings", "6", "--out", str(out), "--json"]
    result = CliRunner().invoke(app, search)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["metric"] == "mean" and found["trainings"] > 1
    tried = json.loads((out / "tuning.json").read_text())["tried"]
    assert all({*one["changes"]} <= {"learning rate", "epochs", "batch size", "temperature"} for one in tried)
    assert [source["name"] for source in read_recipe(str(out / "recipe.toml")).model_dump()["sources"]] == ["faq", "sts"]


def test_no_fold_shows_test_and_each_holds_out_pairs_of_every_source(tiny_encoder, folder):
    task = read_sources(recipe(tiny_encoder, folder))
    folds = make_folds(task, pairs=30)
    for number in folds.numbers:
        fold = folds(fold_name(number))
        assert len(fold.train) <= 32 and [*fold.sources] == ["faq", "sts"]
        for name, source in fold.sources.items():
            seen = {*source.train.left, *source.dev.left}
            assert len(source.train) and len(source.dev) and not seen & {*task.sources[name].test.left}
            assert not {*source.train.left} & {*source.dev.left}


def test_a_setting_that_one_source_reads_is_not_called_unread(tiny_encoder, folder):
    odd = recipe(tiny_encoder, folder, order={"group": 3, "shingle": 2}, loss={"temperature": 0.07})
    assert list(unread_settings(odd)) == ["order.shingle"], "the order by examples reads group, batch softmax the temperature"


def test_a_source_may_name_one_file_without_a_list():
    assert make_recipe({"name": "r", "sources": [{"name": "faq", "data": "faq.csv"}]}).sources[0].data == ("faq.csv",)


def test_a_setting_that_a_source_does_not_have_is_told_with_those_that_it_has():
    with pytest.raises(
        UserError, match=r"sources\.0\.dat is not a setting; did you mean sources\.0\.data\?; known here: name, data"
    ):
        make_recipe({"name": "r", "sources": [{"name": "faq", "data": "faq.csv", "dat": "more.csv"}]})


def test_mistakes_in_a_source_are_named(tmp_path, tiny_encoder, folder):
    twice = sources(folder, sts={"name": "faq"})
    with pytest.raises(UserError, match="two sources are called 'faq'"):
        run(recipe(tiny_encoder, folder, sources=twice), 1, out=tmp_path / "run")
    wrong = sources(folder, faq={"loss": {"knd": "bsc"}})
    with pytest.raises(UserError, match=r"source faq: loss\.knd is not a setting; did you mean loss\.kind\?"):
        run(recipe(tiny_encoder, folder, sources=wrong), 1, out=tmp_path / "run")
    for command in ("inspect", "tune", "train"):
        path = tmp_path / "several.toml"
        path.write_text(to_toml(recipe(tiny_encoder, folder)))
        with pytest.raises(UserError, match=r"names its data under \[\[sources\]\]"):
            CliRunner().invoke(app, [command, str(path), "--data", str(folder / "faq.csv")], catch_exceptions=False)
