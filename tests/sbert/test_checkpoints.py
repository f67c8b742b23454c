"""Which checkpoint a training goes on from, which ones are kept, and what is taken up again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from pairtune.sbert.callbacks import Clock, Progress
from pairtune.sbert.checkpoints import Seal, drop_old, is_whole, newest_usable_checkpoint, seal_folder


def make_checkpoint(folder, step, best=None):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_text(f"weights of step {step}")
    (path / "trainer_state.json").write_text(json.dumps({"best_model_checkpoint": best and f"elsewhere/checkpoint-{best}"}))
    seal_folder(path)
    return path


def test_a_checkpoint_whose_best_epoch_is_damaged_is_not_gone_on_from(tmp_path):
    best = make_checkpoint(tmp_path, 2)
    newest = make_checkpoint(tmp_path, 10, best=2)
    assert newest_usable_checkpoint(tmp_path) == str(newest)  # the tenth step, not the one that sorts last by name
    (best / "model.safetensors").write_text("rust")
    assert newest_usable_checkpoint(tmp_path) is None
    assert not newest.exists() and not best.exists()


def test_a_damaged_checkpoint_is_not_gone_on_from_though_its_best_epoch_is_whole(tmp_path):
    best, newest = make_checkpoint(tmp_path, 2), make_checkpoint(tmp_path, 10, best=2)
    (newest / "model.safetensors").write_text("rust")
    assert newest_usable_checkpoint(tmp_path) == str(best) and not newest.exists()


@pytest.mark.parametrize("harm", ["complete.json", "model.safetensors"])
def test_a_checkpoint_without_its_seal_or_one_of_its_files_is_not_gone_on_from(tmp_path, harm):
    before, newest = make_checkpoint(tmp_path, 4), make_checkpoint(tmp_path, 8)
    (newest / harm).unlink()
    assert newest_usable_checkpoint(tmp_path) == str(before) and not newest.exists()
    (before / "complete.json").write_text("{}")  # of a disk that lost what was written
    assert newest_usable_checkpoint(tmp_path) is None


def test_a_seal_is_of_every_file_in_every_folder_and_may_be_renewed(tmp_path):
    whole = make_checkpoint(tmp_path, 4)
    (whole / "1_Pooling").mkdir()
    (whole / "1_Pooling" / "config.json").write_text("{}")
    seal_folder(whole)
    assert is_whole(whole)
    (whole / "1_Pooling" / "config.json").write_text("rust")
    assert not is_whole(whole)


@pytest.mark.parametrize(("best", "kept"), [(None, {8, 12}), (4, {4, 12})])
def test_a_checkpoint_is_sealed_when_it_is_saved_and_then_older_ones_go(tmp_path, best, kept):
    for step in (4, 8, 12):
        make_checkpoint(tmp_path, step)
    newest = tmp_path / "checkpoint-12"
    (newest / "clock.json").write_text("{}")
    state = TrainerState(global_step=12, best_model_checkpoint=best and f"elsewhere/checkpoint-{best}")
    arguments = TrainingArguments(output_dir=str(tmp_path))
    state.is_world_process_zero = False  # another process of the same training
    Seal().on_save(arguments, state, TrainerControl())
    assert "clock.json" not in (newest / "complete.json").read_text() and len(list(tmp_path.iterdir())) == 3
    state.is_world_process_zero = True
    Seal().on_save(arguments, state, TrainerControl())
    assert is_whole(newest) and "clock.json" in (newest / "complete.json").read_text()
    assert {int(path.name.rpartition("-")[2]) for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("seal", ["[1]", "5", '"all"', "", "[" * 100_000])
def test_a_seal_that_is_none_is_damage_like_any_other(tmp_path, seal):
    before, newest = make_checkpoint(tmp_path, 4), make_checkpoint(tmp_path, 8)
    (newest / "complete.json").write_text(seal)
    assert newest_usable_checkpoint(tmp_path) == str(before) and not newest.exists()


@pytest.mark.parametrize(
    ("best", "kept"), [("checkpoint-4", {4, 12}), ("checkpoint-12", {8, 12}), ("checkpoint-8", {8, 12}), ("gone", {12})]
)
def test_the_newest_by_step_and_the_best_are_kept(tmp_path, best, kept):
    for step in (12, 8, 4):  # the newest was written first
        make_checkpoint(tmp_path, step)
    drop_old(tmp_path, best)
    assert {int(path.name.rpartition("-")[2]) for path in tmp_path.iterdir()} == kept


def test_what_has_no_step_in_its_name_is_no_checkpoint_and_stays(tmp_path):
    for step in (4, 8, 12):
        make_checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-old").mkdir()
    (tmp_path / "checkpoint-16").write_text("a file")
    drop_old(tmp_path, "checkpoint-12")
    assert newest_usable_checkpoint(tmp_path) == str(tmp_path / "checkpoint-12")
    assert {path.name for path in tmp_path.iterdir()} == {f"checkpoint-{end}" for end in (8, 12, "old", 16)}


def test_a_clock_goes_on_from_the_seconds_and_pairs_of_its_checkpoint(tmp_path):
    arguments = TrainingArguments(output_dir=str(tmp_path), num_train_epochs=2)
    state = TrainerState(global_step=6, max_steps=12)
    state.is_world_process_zero = True
    (tmp_path / "checkpoint-6").mkdir()
    first = Clock(pairs_per_epoch=48)
    first.seconds, first.pairs = 30.0, 48.0
    first.on_save(arguments, state, TrainerControl())
    again = Clock(pairs_per_epoch=48)
    again.on_train_begin(arguments, state, TrainerControl())
    assert (again.seconds, again.pairs) == (30.0, 48.0)
    again.on_step_end(arguments, replace(state, global_step=7), TrainerControl())
    assert again.pairs == 48 + 48 * 2 / 12


def test_the_fingerprint_of_a_task_sees_texts_labels_grades_queries_and_splits(small_task):
    before, train = small_task.fingerprint(), small_task.train
    others = [
        replace(small_task, train=replace(train, label=1 - train.label)),
        replace(small_task, test=replace(small_task.test, grade=small_task.test.grade + 1)),
        replace(small_task, test=replace(small_task.test, query=small_task.test.query[::-1])),
        replace(small_task, train=replace(train, right=(*train.right[:-1], "another"))),
        replace(small_task, dev=small_task.test, test=small_task.dev),
        replace(small_task, name="other"),
        replace(small_task, train=replace(train, left=("a\0b", "c", *train.left[2:]))),
        replace(small_task, train=replace(train, left=("a", "b\0c", *train.left[2:]))),
    ]
    assert len({before, *(task.fingerprint() for task in others)}) == 9


@pytest.mark.parametrize(("seconds", "said"), [(100.0, "will take about 11 days 13 h"), (0.01, "")])
def test_a_training_that_takes_days_says_so_after_a_few_steps(tmp_path, capsys, seconds, said):
    arguments = TrainingArguments(output_dir=str(tmp_path), num_train_epochs=10_000)
    state, clock = TrainerState(max_steps=10_000), Clock(pairs_per_epoch=8)
    progress = Progress(clock)
    progress.on_train_begin(arguments, state, TrainerControl())
    for step in range(1, 15):
        state.global_step, clock.seconds = step, clock.seconds + seconds
        progress.on_step_end(arguments, state, TrainerControl())
    lines = [line for line in capsys.readouterr().err.splitlines() if "will take" in line]
    assert len(lines) == bool(said) and all(said in line and "10,000 epochs, 10,000 steps" in line for line in lines)
