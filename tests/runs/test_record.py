"""Records: appended whole, read back, never lost; folders of runs that refuse to be overwritten."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import threading
from pathlib import Path

import pytest

from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError
from pairtune.runs import folder as folders
from pairtune.runs import record as records
from pairtune.runs.folder import (
    RunFolder,
    ask_for,
    disk_in_words,
    drop_folder,
    fingerprint_file,
    fingerprint_folder,
    whole_folder,
    write_whole,
)
from pairtune.runs.lock import check_free, hold_folder, take_lock
from pairtune.runs.record import (
    Epoch,
    Run,
    Trained,
    append_record,
    best_index,
    choice_score,
    dotted,
    is_unchanged,
    kept_run,
    mean_and_spread,
    read_history,
    read_records,
)
from pairtune.runs.toml import make_recipe


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
    path = tmp_path / "how" / "deep" / "results.jsonl"
    append_record(path, record(1))
    append_record(path, record(2))
    assert read_records(path) == [record(1), record(2)]
    assert read_records(path.parent) == [record(1), record(2)]
    assert path.read_text().count("\n") == 2
    append_record(path.with_name("zz.jsonl"), record(3))
    assert read_records(path.parent) == [record(1), record(2), record(3)]


def test_blank_lines_of_an_editor_are_no_records_and_no_news(tmp_path, capsys):
    path = tmp_path / "results.jsonl"
    append_record(path, record(1))
    path.write_text(path.read_text().replace("\n", "\n\n"))
    assert read_records(path) == [record(1)] and capsys.readouterr().err == ""


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


def test_a_line_that_is_no_record_does_not_hide_what_follows_it(tmp_path, capsys):
    path = tmp_path / "results.jsonl"
    path.write_text(f"nonsense\n\n{record(1).model_dump_json()}\nnonsense\n{record(2).model_dump_json()}\n")
    assert [run.seed for run in read_records(path)] == [1, 2]
    said = capsys.readouterr().err
    assert "line 1: not a run record" in said and "line 4: not a run record" in said


def test_a_record_is_appended_when_no_other_process_is_at_it(tmp_path, monkeypatch):
    """The file is looked at under the lock: whoever held it before may have died in the middle of a line."""
    path = tmp_path / "results.jsonl"

    def take_after_another(descriptor, *, wait):
        assert wait and take_lock(descriptor, wait=True)
        path.write_bytes(b'{"name": "half a rec')
        return True

    monkeypatch.setattr(records, "take_lock", take_after_another)
    append_record(path, record(1))
    assert path.read_text().splitlines() == ['{"name": "half a rec', record(1).model_dump_json()]


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
    folder = open_folder(tmp_path / "run", overwrite=True)  # where there is nothing to lose
    folder.stage(1).mkdir(parents=True)
    folder.stage(2).mkdir()
    folder.finish(record(), tmp_path / "results.jsonl")
    with pytest.raises(UserError, match="holds a finished run"):
        open_folder(tmp_path / "run")
    assert not (folder.path / "checkpoints").exists()  # nothing goes on from there
    assert open_folder(tmp_path / "run", resume=True).record() == record()
    assert not open_folder(tmp_path / "run", overwrite=True).finished


def test_resuming_with_other_settings_names_them(tmp_path):
    open_folder(tmp_path / "run")
    other = make_recipe({"name": "a/b", "loss": {"temperature": 0.2}})
    with pytest.raises(UserError, match=r"seed is 1 there, 2 now, .*loss\.temperature is 0\.1 there, 0\.2 now"):
        open_folder(tmp_path / "run", other, 2, resume=True)


def test_settings_that_only_one_side_has_are_named_as_well(tmp_path):
    begun = make_recipe({"name": "a/b", "prompts": {"left": "q: "}, "ignore": ["x", "y"]})
    open_folder(tmp_path / "run", begun)
    for other, told in (
        ({"prompts": {"right": "a: "}, "ignore": ["x", "y"]}, r"left is 'q: ' there, None now, .*right is None there"),
        ({"prompts": {"left": "q: "}, "ignore": ["x"]}, r"\(recipe\.ignore is \['x', 'y'\] there, \['x'\] now\)"),
        ({"prompts": {"left": "q: "}, "ignore": ["x", "z"]}, r"\(recipe\.ignore\.1 is 'y' there, 'z' now\)"),
    ):
        with pytest.raises(UserError, match=told):
            open_folder(tmp_path / "run", make_recipe({"name": "a/b", **other}), resume=True)


def test_a_run_is_known_again_whatever_other_seeds_its_recipe_has_but_not_under_another_name(tmp_path):
    open_folder(tmp_path / "run")
    assert open_folder(tmp_path / "run", make_recipe({"name": "a/b", "seeds": [1, 2]}), resume=True)
    with pytest.raises(UserError, match=r"recipe\.name is 'a/b' there, 'c' now"):
        open_folder(tmp_path / "run", make_recipe({"name": "c"}), resume=True)


def test_a_run_of_a_version_with_fewer_settings_is_known_and_one_with_more_is_another(tmp_path):
    folder = open_folder(tmp_path / "run")
    found = json.loads((folder.path / "recipe.json").read_text())
    del found["recipe"]["average_of"], found["recipe"]["stages"][0]["loss"]["guide"]
    (folder.path / "recipe.json").write_text(json.dumps(found))
    assert open_folder(tmp_path / "run", resume=True)
    found["recipe"]["sharpness"] = 3
    (folder.path / "recipe.json").write_text(json.dumps(found))
    with pytest.raises(UserError, match=r"recipe\.sharpness is 3 there, None now"):
        open_folder(tmp_path / "run", resume=True)


def test_to_keep_and_to_lose_and_a_path_that_nobody_can_write_are_refused(tmp_path):
    with pytest.raises(UserError, match="give one of the two"):
        open_folder(tmp_path / "run", resume=True, overwrite=True)
    for letter in "\ud800\udfff":
        with pytest.raises(UserError, match="is not valid UTF-8: give another --out"):
            open_folder(tmp_path / letter)


def test_resuming_with_other_data_is_refused(tmp_path):
    open_folder(tmp_path / "run")
    with pytest.raises(UserError, match=r"other settings \(data is 'mine, 6 pairs, \w{12}' there, 'mine, 9 pairs, \w{12}' now\)"):
        open_folder(tmp_path / "run", task=own_task("a", "b", "c"), resume=True)
    with pytest.raises(UserError, match=r"data is .* there, .* now"):
        open_folder(tmp_path / "run", task=own_task("ab", ""), resume=True)
    found = json.loads((tmp_path / "run" / "recipe.json").read_text())
    del found["data"], found["files"], found["encoder"]  # of a version that did not write them down
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


def test_where_the_main_metric_is_equal_the_others_choose():
    same, more = {"HP@1": 0.5, "HP@5": 0.7, "MRR": 0.6}, {"HP@1": 0.5, "HP@5": 0.7, "MRR": 0.61}
    assert choice_score(more, "HP@1") > choice_score(same, "HP@1")
    assert choice_score({**same, "HP@1": 0.51}, "HP@1") > choice_score({"HP@1": 0.5, "HP@5": 1.0, "MRR": 1.0}, "HP@1")
    lucky, steady = {"F1": 0.5, "F1@best": 0.7, "AP": 0.6}, {"F1": 0.6, "F1@best": 0.6, "AP": 0.6}
    assert choice_score(lucky, "F1") > choice_score(steady, "F1")  # at the best threshold of each
    assert choice_score({"F1": 0.5, "threshold": 0.9}, "F1") == choice_score({"F1": 0.5, "threshold": 0.1}, "F1") == 0.5


def test_one_seed_has_no_spread():
    assert mean_and_spread([0.5]) == (0.5, 0.0)
    assert mean_and_spread([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))


def test_a_folder_is_held_by_one_process_at_a_time_and_free_when_it_is_done(tmp_path):
    folder = open_folder(tmp_path / "run")
    (folder.path / ".lock").write_text('{"pid": 1, "host": "of a process that was killed"}')
    since = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    with folder.hold():
        with (
            pytest.raises(UserError, match=rf"in use: process {os.getpid()} on .+ has been writing it since {since}"),
            folder.hold(),
        ):
            pass
        with pytest.raises(UserError, match="is in use"):
            check_free(folder.path)
    assert (folder.path / ".lock").read_text() == ""
    check_free(folder.path)
    check_free(tmp_path / "none")
    check_free(folder.path / "recipe.json")
    with folder.hold(), hold_folder(tmp_path / "of" / "another"):
        pass


@pytest.mark.parametrize("content", ["", "{", "5", "{}", "[]"])
def test_a_folder_is_in_use_also_where_nobody_can_read_by_whom(tmp_path, content):
    with hold_folder(tmp_path):
        (tmp_path / ".lock").write_text(content)
        with pytest.raises(UserError, match="is in use: another process is writing it; wait until it is done"):
            check_free(tmp_path)


def test_a_lock_that_cannot_be_waited_for_is_an_error_and_no_free_pass(tmp_path):
    with (tmp_path / "file").open("w") as file:
        closed = file.fileno()
    assert not take_lock(closed, wait=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        take_lock(closed, wait=True)


def test_who_waits_for_a_lock_gets_it_after_the_one_who_had_it(tmp_path):
    happened = []
    with (tmp_path / "file").open("w") as held, (tmp_path / "file").open("w") as wanted:
        assert take_lock(held.fileno(), wait=True)
        waiting = threading.Thread(target=lambda: happened.append(take_lock(wanted.fileno(), wait=True)))
        waiting.start()
        waiting.join(0.1)  # whoever does not wait is done by now
        happened.append("let go")
        held.close()
        waiting.join()
    assert happened == ["let go", True]


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
    (tmp_path / ".gitattributes").write_text("of git")
    (tmp_path / "tokenizer.json").rename(tmp_path / "tokenizer.txt")
    found.add(fingerprint_folder(tmp_path))
    (tmp_path / ".gitattributes").unlink()
    assert len(found | {fingerprint_folder(tmp_path)}) == 3
    (tmp_path / "tokenizer.txt").rename(tmp_path / "1_Pooling" / "tokenizer.txt")
    assert len(found | {fingerprint_folder(tmp_path)}) == 4


def test_the_fingerprint_of_a_file_is_that_of_its_size_and_its_ends(tmp_path):
    path, middle, megabyte = tmp_path / "pairs.parquet", 100, 2**20

    def fingerprint(first=b"a", last=b"z", more=0, inside=b" "):
        path.write_bytes(first + b"b" * (megabyte - 1) + inside * (middle + more) + b"y" * (megabyte - 1) + last)
        return fingerprint_file(path)

    assert len({fingerprint(), fingerprint(first=b"A"), fingerprint(last=b"Z"), fingerprint(more=1)}) == 4
    assert fingerprint().startswith(f"{2 * megabyte + middle:,} bytes, ") and fingerprint_file(tmp_path / "none") == "gone"
    whole = tmp_path / "small.parquet"  # of one that is not larger than both ends, every byte counts
    found = set()
    for place in range(0, 2 * megabyte, megabyte // 4):
        whole.write_bytes(b"b" * place + b"c" + b"b" * (2 * megabyte - place - 1))
        found.add(fingerprint_file(whole))
    assert len(found) == 8


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "recipe.json"
    write_whole(path, "before")

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "after")
    assert path.read_text() == "before"


def test_a_folder_takes_its_name_when_it_is_whole_and_leaves_nothing_else(tmp_path):
    model = tmp_path / "model"
    for left in ("model.part", ".model.gone"):  # of processes that died
        (tmp_path / left).mkdir()
        (tmp_path / left / "half").write_text("")
    for content in ("first", "second"):
        with whole_folder(model) as aside:
            aside.mkdir()
            (aside / "weights").write_text(content)
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
        assert [path.name for path in model.iterdir()] == ["weights"] and (model / "weights").read_text() == content

    def fail():
        with whole_folder(model) as aside:
            aside.mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["model"] and (model / "weights").read_text() == "second"
    drop_folder(model)
    assert not any(tmp_path.iterdir())


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


def test_a_folder_that_has_taken_the_name_of_an_encoder_is_another_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = make_recipe({"name": "a/b", "encoder": "someone/model"})  # of the hub
    open_folder(tmp_path / "run", recipe)
    assert open_folder(tmp_path / "run", recipe, resume=True)
    (tmp_path / "someone" / "model").mkdir(parents=True)
    with pytest.raises(UserError, match="encoder is 'gone' there, "):
        open_folder(tmp_path / "run", recipe, resume=True)


def test_a_process_that_dies_while_it_empties_a_folder_leaves_no_half_of_anything(tmp_path, monkeypatch):
    folder = open_folder(tmp_path / "run")
    for name in ("model", "checkpoints"):
        (folder.path / name).mkdir()
        (folder.path / name / "weights").write_text("whole")
    (folder.path / "record.json.pending").write_text("{}")

    def die(path, **__):
        if not Path(path).exists():
            return
        for file in Path(path).glob("*"):
            file.unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", die)
    with pytest.raises(KeyboardInterrupt):
        folder.begin(ask_for(RECIPE, 2, "data"), overwrite=True)
    monkeypatch.undo()
    assert not folder.finished and not folder.pending  # first of all
    assert all((path / "weights").exists() for path in (folder.model, folder.path / "checkpoints") if path.exists())
    (folder.path / "record.json").write_text("{}")
    folder.begin(ask_for(RECIPE, 2, "data"), overwrite=True)
    assert [path.name for path in folder.path.iterdir()] == ["recipe.json"]


def test_a_process_that_dies_before_it_has_begun_anew_leaves_a_folder_of_ours(tmp_path, monkeypatch):
    folder = open_folder(tmp_path / "run")

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "write_whole", die)
    with pytest.raises(KeyboardInterrupt):
        folder.begin(ask_for(RECIPE, 2, "data"), overwrite=True)
    assert folder.begun


def test_a_process_that_died_when_it_began_has_claimed_nothing(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text("")
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
    (PermissionError(errno.EPERM, "Operation not permitted", "model"), "let this user write there; the last"),
    (shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")]), "free some space; the last"),
    (RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos"), "free some space, if the disk is full"),
    (RuntimeError("basic_ios::clear: iostream error\nfailed writing file data/0"), "free some space, if the disk is full"),
]


@pytest.mark.parametrize(("problem", "advice"), UNWRITTEN, ids=[str(problem)[:30] for problem, _ in UNWRITTEN])
def test_a_write_that_failed_is_answered_with_what_helps(tmp_path, problem, advice):
    with pytest.raises(UserError, match=rf"could not write to .*\): {advice}") as found, disk_in_words(tmp_path):
        raise problem
    assert found.value.__cause__ is problem and "\n" not in str(found.value)


def test_a_write_that_failed_is_known_by_what_was_behind_it(tmp_path):
    with pytest.raises(UserError, match="free some space; the last"), disk_in_words(tmp_path):
        raise RuntimeError("could not save") from OSError(RUST.format("No space left on device", errno.ENOSPC))


def test_of_a_folder_that_could_not_be_copied_the_first_file_is_told(tmp_path):
    files = [("a", "b", "[Errno 28] No space left on device: 'b'"), ("c", "d", "[Errno 28] No space left on device: 'd'")]
    with pytest.raises(UserError) as found, disk_in_words(tmp_path):
        raise shutil.Error(files)
    assert f"could not write to {tmp_path} ([Errno 28] No space left on device: 'b'): free some space;" in str(found.value)


def test_a_write_that_failed_is_known_by_its_number_where_its_words_have_none(tmp_path):
    problem = OSError("the disk is full")
    problem.errno = errno.ENOSPC  # as Windows has it, whose words say WinError 112
    with pytest.raises(UserError, match="free some space"), disk_in_words(tmp_path):
        raise problem


@pytest.mark.parametrize(
    "problem", [FileNotFoundError(errno.ENOENT, "No such file"), OSError("no model there"), ValueError("os error"), KeyError(28)]
)
def test_what_has_nothing_to_do_with_the_disk_is_raised_as_it_is(tmp_path, problem):
    with pytest.raises(type(problem)) as found, disk_in_words(tmp_path):
        raise problem
    assert found.value is problem


def epoch(stage, number, **scores):
    return Epoch(stage=stage, epoch=number, dev={"Spearman": scores.get("dev", 0.5)})


def test_the_host_logs_the_mean_of_some_steps_and_an_epoch_has_the_mean_of_all():
    """Against a loop over the steps: losses 1 to 5 in one epoch, logged after three and two, then 6 and 7."""
    log = [
        {"loss": 2.0, "step": 3, "temperature": 0.1},
        {"loss": 4.5, "step": 5},
        {"eval_dev_MAP": 0.3, "eval_runtime": 9.0, "epoch": 1.0},
        {"loss": 6.5, "step": 7, "temperature": 0.2},
        {"eval_dev_MAP": 0.4, "epoch": 2.0},
        {"eval_dev_MAP": 0.5, "epoch": 3.0},
    ]
    found = read_history(log, 2)
    assert [one.loss for one in found] == [pytest.approx(sum(range(1, 6)) / 5), pytest.approx(6.5), None]
    assert [(one.stage, one.epoch, one.dev) for one in found] == [(2, n, {"MAP": s}) for n, s in ((1, 0.3), (2, 0.4), (3, 0.5))]
    assert [one.temperature for one in found] == [0.1, 0.2, 0.2]


def test_a_model_is_unchanged_only_where_no_stage_kept_an_epoch():
    stages = [Trained([], kept, 1.0, 1.0, 1) for kept in (0, 0, 2)]
    assert is_unchanged(stages[:2]) and not is_unchanged(stages)
    for kept, unchanged in (([], False), ([0], True), ([0, 0], True), ([0, 1], False)):
        assert record().model_copy(update={"kept_epochs": kept}).unchanged is unchanged


def test_what_was_kept_is_told_in_words():
    epochs = [epoch(1, 1), epoch(1, 2), epoch(1, 3), epoch(2, 1), epoch(2, 2)]
    for update, told, place in (
        ({"kept_epochs": [3, 1], "best_epoch": 1}, "epoch 1 of 2, the best on dev", 4),
        ({"kept_epochs": [3, 2], "best_epoch": 2, "recipe": {"select": "last"}}, "epoch 2 of 2, the last", 5),
        ({"kept_epochs": [3, 2], "recipe": {"select": "average"}}, "the mean of the weights after each of 2 epochs", 5),
        ({"kept_epochs": [2, 0], "best_epoch": 0}, "what the stage before left, which no epoch of the last stage beat on dev", 2),
        ({"kept_epochs": [0, 0], "best_epoch": 0}, "the original encoder, which no epoch beat on dev", 0),
        (
            {"kept_epochs": [3, 1], "best_epoch": 1, "mean_of": 3},
            "the mean of the weights of 3 trainings; of the first, epoch 1 of 2, the best on dev",
            4,
        ),
        ({"kept_epochs": [], "best_epoch": 2}, "epoch 2 of 2, the best on dev", 5),  # of a version that did not write them down
    ):
        found = record().model_copy(update={"epochs": epochs, **update})
        assert (found.describe_kept(), found.kept_place) == (told, place)


def test_where_no_epoch_was_better_the_advice_names_the_best_of_them():
    found = record().model_copy(update={"kept_epochs": [0], "epochs": [epoch(1, 1, dev=0.04), epoch(1, 2, dev=0.02)]})
    assert "(Spearman 0.100 against 0.040)" in found.advise() and record().advise() is None


def test_the_seed_that_is_best_on_dev_is_kept_and_where_dev_was_trained_on_the_first():
    runs = [record(1, dev=0.5, test=0.9), record(2, dev=0.6, test=0.1), record(3, dev=0.4, test=0.5)]
    assert kept_run(runs) == 1
    assert kept_run([run.model_copy(update={"recipe": {"dev": "joined"}}) for run in runs]) == 0
    assert kept_run([runs[1].model_copy(update={"recipe": {"dev": "joined"}})]) == 0


def test_settings_of_several_stages_are_numbered():
    table = {"stages": [{"loss": {"kind": "bsc"}}, {"loss": {"kind": "mse"}}], "prompts": {"left": "q"}}
    assert dict(dotted(table)) == {"stages.1.loss.kind": "bsc", "stages.2.loss.kind": "mse", "prompts.left": "q"}


def test_a_dev_set_that_leaves_nothing_to_gain_is_named_as_the_reason():
    perfect = record().model_copy(update={"kept_epochs": [0], "before": {"dev": {"Spearman": 1.0}}})
    assert perfect.advise().startswith("the original encoder has a Spearman of 1.000 on dev, where no epoch can be better")
