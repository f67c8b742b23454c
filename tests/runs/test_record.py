"""Records: appended whole, read back, never lost; folders of runs that refuse to be overwritten."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os

import pytest

from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError
from pairtune.runs.folder import RunFolder, ask_for, disk_in_words, fingerprint_folder
from pairtune.runs.lock import check_free
from pairtune.runs.recipe import make_recipe
from pairtune.runs.record import Run, append_record, best_index, mean_and_spread, read_records


def record(seed=1, dev=0.5, test=0.4):
    return Run(
        name="stsb/combo",
        task="stsb",
        encoder="minilm",
        seed=seed,
        metric="Spearman",
        recipe={},
        before={"dev": {"Spearman": 0.1}, "test": {"Spearman": 0.1}},
        after={"dev": {"Spearman": dev}, "test": {"Spearman": test}},
        epochs=[],
        best_epoch=1,
        pairs={"train": 10, "dev": 5, "test": 5},
        seconds=1.5,
        pairs_per_second=20.0,
        device="cpu",
        versions={"torch": "2"},
        finished="2026-11-15T10:00:00+00:00",
        model="runs/x/model",
    )


def test_a_record_comes_back_as_it_was(tmp_path):
    path = tmp_path / "deep" / "results.jsonl"
    append_record(path, record(1))
    append_record(path, record(2))
    assert read_records(path) == [record(1), record(2)]
    assert read_records(path.parent) == [record(1), record(2)]
    assert path.read_text().count("\n") == 2
    path.write_text(path.read_text().replace("\n", "\n\n"))  # an editor's blank lines
    assert read_records(path) == [record(1), record(2)]


def append_many(path, first):
    for seed in range(first, first + 25):
        append_record(path, record(seed))


def test_records_of_many_processes_do_not_mix(tmp_path):
    path = tmp_path / "results.jsonl"
    processes = [multiprocessing.Process(target=append_many, args=(path, first)) for first in (0, 25, 50, 75)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(run.seed for run in read_records(path)) == list(range(100))


def test_a_line_cut_short_by_a_crash_costs_only_itself(tmp_path, capsys):
    path = tmp_path / "results.jsonl"
    append_record(path, record(1))
    with path.open("ab") as file:
        file.write(b'{"name": "half a rec')
    append_record(path, record(2))
    assert [run.seed for run in read_records(path)] == [1, 2]
    assert "results.jsonl, line 2: not a run record" in capsys.readouterr().err


def test_missing_results_say_what_to_do(tmp_path):
    with pytest.raises(UserError, match="train something first"):
        read_records(tmp_path / "none.jsonl")


RECIPE = make_recipe({"name": "a/b"})


def own_task(*words):
    pairs = PairSet.of(words, words)
    return Task("mine", "retrieval", pairs, pairs, pairs, "MRR", ("MRR",))


TASK = own_task("a", "b")


def open_folder(path, recipe=RECIPE, seed=1, task=TASK, **how):
    """As a training does it."""
    folder, asked = RunFolder(path), ask_for(recipe, seed, task.fingerprint(recipe.extra_splits))
    folder.check(asked, **how)
    folder.begin(asked, overwrite=how.get("overwrite", False))
    return folder


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not empty and was not made by pairtune"):
        open_folder(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


def test_an_unfinished_run_asks_whether_to_resume(tmp_path):
    open_folder(tmp_path / "run")
    with pytest.raises(UserError, match="unfinished run: --resume goes on with it"):
        open_folder(tmp_path / "run")
    assert not open_folder(tmp_path / "run", resume=True).finished


def test_a_finished_run_is_not_overwritten_unless_asked(tmp_path):
    folder = open_folder(tmp_path / "run")
    folder.finish(record(), tmp_path / "results.jsonl")
    with pytest.raises(UserError, match="holds a finished run"):
        open_folder(tmp_path / "run")
    assert open_folder(tmp_path / "run", resume=True).record() == record()
    assert not open_folder(tmp_path / "run", overwrite=True).finished


def test_resuming_with_other_settings_names_them(tmp_path):
    open_folder(tmp_path / "run")
    other = make_recipe({"name": "a/b", "loss": {"temperature": 0.2}})
    with pytest.raises(UserError, match=r"seed is 1 there, 2 now, .*loss\.temperature is 0\.1 there, 0\.2 now"):
        open_folder(tmp_path / "run", other, 2, resume=True)


def test_resuming_with_other_data_is_refused(tmp_path):
    open_folder(tmp_path / "run")
    with pytest.raises(UserError, match=r"other settings \(data is 'mine, 6 pairs, \w{12}' there, 'mine, 9 pairs, \w{12}' now\)"):
        open_folder(tmp_path / "run", task=own_task("a", "b", "c"), resume=True)
    with pytest.raises(UserError, match=r"data is .* there, .* now"):
        open_folder(tmp_path / "run", task=own_task("ab", ""), resume=True)
    found = json.loads((tmp_path / "run" / "recipe.json").read_text())
    del found["data"]  # of a version that did not write it down
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(found))
    open_folder(tmp_path / "run", resume=True)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"the folder of the run cannot be written \(.+\); give another --out"):
        open_folder(tmp_path / "file" / "seed-1")


def test_a_remembered_value_is_computed_once(tmp_path):
    folder = open_folder(tmp_path / "run")
    calls = []
    for _ in range(2):
        assert folder.remember("before", lambda: calls.append(1) or {"x": 1.5}) == {"x": 1.5}
    assert len(calls) == 1
    (folder.path / "before.json").write_text('{"x": 1.')  # of a disk that lost its end
    assert folder.remember("before", lambda: {"x": 1.5}) == folder.remember("before", dict) == {"x": 1.5}


def test_the_earliest_of_equally_good_epochs_is_chosen():
    assert best_index([0.3, 0.7, 0.7]) == 1


def test_one_seed_has_no_spread():
    assert mean_and_spread([0.5]) == (0.5, 0.0)
    assert mean_and_spread([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))


def test_a_folder_is_held_by_one_process_at_a_time_and_free_when_it_is_done(tmp_path):
    folder = open_folder(tmp_path / "run")
    with folder.hold():
        with (
            pytest.raises(UserError, match=rf"in use: process {os.getpid()} on .+ has been writing it since .+ UTC"),
            folder.hold(),
        ):
            pass
        with pytest.raises(UserError, match="is in use"):
            check_free(folder.path)
    check_free(folder.path)
    check_free(tmp_path / "none")
    with folder.hold():
        pass


def test_overwriting_loses_all_but_the_lock(tmp_path):
    folder = open_folder(tmp_path / "run")
    (folder.path / "checkpoints").mkdir()
    (folder.path / "before.json").write_text("{}")
    with folder.hold():
        folder.begin(ask_for(RECIPE, 2, "data"), overwrite=True)
    assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "recipe.json"]
    assert json.loads((folder.path / "recipe.json").read_text())["seed"] == 2


def test_the_fingerprint_of_a_folder_sees_every_file_and_name_but_the_card(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    for name in ("tokenizer.json", "1_Pooling/config.json"):
        (tmp_path / name).write_text(name)
    found = {fingerprint_folder(tmp_path)}
    (tmp_path / "README.md").write_text("a card")
    assert {fingerprint_folder(tmp_path)} == found
    (tmp_path / "1_Pooling/config.json").write_text("other")
    found.add(fingerprint_folder(tmp_path))
    (tmp_path / "tokenizer.json").rename(tmp_path / "tokenizer.txt")
    assert len(found | {fingerprint_folder(tmp_path)}) == 3


def test_a_run_is_in_the_results_once_whenever_its_process_died(tmp_path):
    folder, results = open_folder(tmp_path / "run"), tmp_path / "results.jsonl"
    results.mkdir()  # the process dies before it can append
    with pytest.raises(OSError, match=r"results\.jsonl"):
        folder.finish(record(1), results)
    assert folder.pending and not folder.finished  # the record is told of last
    results.rmdir()
    append_record(results, record(1))  # or after it has appended
    assert folder.publish(results) == record(1) and folder.finished and not folder.pending
    assert read_records(results) == [record(1)]
    append_record(results, record(2))
    assert read_records(results) == [record(1), record(2)]


def test_a_finished_run_does_without_its_encoder_and_its_file(tmp_path):
    encoder, file = tmp_path / "encoder", tmp_path / "pairs.parquet"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    file.write_bytes(b"pairs")
    recipe = make_recipe({"name": "a/b", "encoder": str(encoder), "train": {"file": str(file)}})
    open_folder(tmp_path / "run", recipe)
    (encoder / "config.json").write_text("other")
    with pytest.raises(UserError, match="encoder is "):
        open_folder(tmp_path / "run", recipe, resume=True)
    file.write_bytes(b"other")
    with pytest.raises(UserError, match=r"files\..*pairs\.parquet is '5 bytes, "):
        open_folder(tmp_path / "run", recipe, resume=True)
    (encoder / "config.json").unlink()
    encoder.rmdir()
    file.unlink()
    assert open_folder(tmp_path / "run", recipe, resume=True)


def test_a_process_that_dies_while_it_empties_a_folder_leaves_no_half_of_anything(tmp_path, monkeypatch):
    folder = open_folder(tmp_path / "run")
    for name in ("model", "checkpoints"):
        (folder.path / name).mkdir()
        (folder.path / name / "weights").write_text("whole")
    (folder.path / "record.json.pending").write_text("{}")

    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", die)
    with pytest.raises(KeyboardInterrupt):
        folder.begin(ask_for(RECIPE, 2, "data"), overwrite=True)
    monkeypatch.undo()
    assert not folder.finished and not folder.pending  # first of all
    (folder.path / "record.json").write_text("{}")
    folder.begin(ask_for(RECIPE, 2, "data"), overwrite=True)
    assert [path.name for path in folder.path.iterdir()] == ["recipe.json"]


def test_a_process_that_died_when_it_began_has_claimed_nothing(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json.part").write_text('{"see')
    assert open_folder(tmp_path / "run").begun


@pytest.mark.parametrize("content", ["", "nonsense", "[1]", '{"recipe": 3}', '{"files": []}', '{"seed": 1}'])
def test_a_folder_whose_recipe_or_record_is_damaged_is_refused_in_words(tmp_path, content):
    folder = open_folder(tmp_path / "run")
    (folder.path / "recipe.json").write_text(content)
    with pytest.raises(UserError, match=r"recipe\.json is damaged or|holds a run with other settings"):
        open_folder(tmp_path / "run", resume=True)
    assert open_folder(tmp_path / "run", overwrite=True).begun
    (folder.path / "record.json").write_text(content)
    with pytest.raises(UserError, match=r"record\.json is damaged or was not made by pairtune: --overwrite starts again"):
        folder.record()


RUST = "Error while serializing: I/O error: {} (os error {})"
UNWRITTEN = [
    (OSError(errno.ENOSPC, "No space left on device"), "free some space; the last"),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), "free some space; the last"),
    (RuntimeError(RUST.format("No space left on device", errno.ENOSPC)), "free some space; the last"),
    (RuntimeError(RUST.format("File too large", errno.EFBIG)), "raise the limit on the size of files"),
    (OSError(errno.EROFS, "Read-only file system"), "let this user write there; the last"),
    (PermissionError(errno.EACCES, "Permission denied", "model"), "let this user write there; the last"),
    (RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos"), "free some space, if the disk is full"),
]


@pytest.mark.parametrize(("problem", "advice"), UNWRITTEN, ids=[str(problem)[:30] for problem, _ in UNWRITTEN])
def test_a_write_that_failed_is_answered_with_what_helps(tmp_path, problem, advice):
    with pytest.raises(UserError, match=rf"could not write to .*\): {advice}") as found, disk_in_words(tmp_path):
        raise problem
    assert found.value.__cause__ is problem


@pytest.mark.parametrize(
    "problem", [FileNotFoundError(errno.ENOENT, "No such file"), OSError("no model there"), ValueError("os error"), KeyError(28)]
)
def test_what_has_nothing_to_do_with_the_disk_is_raised_as_it_is(tmp_path, problem):
    with pytest.raises(type(problem)) as found, disk_in_words(tmp_path):
        raise problem
    assert found.value is problem


def test_a_dev_set_that_leaves_nothing_to_gain_is_named_as_the_reason():
    perfect = record().model_copy(update={"kept_epochs": [0], "before": {"dev": {"Spearman": 1.0}}})
    assert perfect.advise().startswith("the encoder as it came has a Spearman of 1.000 on dev, where no epoch can be better")
