"""A search from end to end on the tiny encoder: killed, resumed, shared, and blind to test until its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

import searches
from pairtune.errors import UserError
from pairtune.runs.recipe import read_recipe
from pairtune.runs.record import read_records
from pairtune.tune.race import TOO_SHORT
from searches import TRAININGS, small_search

PROGRAM = searches.__file__
RESULTS, CLAIMS = "trial_intermediate_values", "trial_user_attributes WHERE key LIKE 'claim %'"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny_encoder):
    """A search that nobody disturbed."""
    return small_search(tiny_encoder, tmp_path_factory.mktemp("whole") / "run")


def start_search(encoder, out, *options):
    root = Path(__file__).parents[2]
    path = os.pathsep.join(map(str, (root / "src", root / "tests")))
    command = [sys.executable, PROGRAM, encoder, out, *options]
    return subprocess.Popen(list(map(str, command)), env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True)


def results_of(tuned):
    return [(one.number, one.levels, one.scores, one.ended) for one in tuned.tuning.tried]


def test_a_search_leaves_a_model_and_a_recipe_that_trains_it_again(whole):
    from sentence_transformers import SentenceTransformer

    assert SentenceTransformer(str(whole.folder / "model"), device="cpu").encode(["stone river"]).shape == (1, 384)
    again = read_recipe(str(whole.folder / "recipe.toml"))
    assert again.model_dump(mode="json") == whole.run.recipe
    assert whole.tuning.trainings == TRAININGS
    assert len(whole.tuning.tried[0].scores) >= 4 and whole.tuning.tried[0].changes == {}
    assert not (whole.folder / "trials").exists()


def test_every_score_is_on_a_fold_that_the_encoder_as_it_came_was_scored_on(whole):
    for one in whole.tuning.tried:
        assert one.scores.keys() <= whole.tuning.before.keys()


def test_what_test_holds_changes_nothing_but_the_score_on_it(tmp_path, tiny_encoder, whole):
    other = small_search(tiny_encoder, tmp_path / "run", test_seed=77)
    assert results_of(other) == results_of(whole)
    assert other.tuning.chosen == whole.tuning.chosen
    assert other.run.after["dev"] == whole.run.after["dev"] and other.run.after["test"] != whole.run.after["test"]


def test_test_is_scored_once_for_the_winner(whole):
    assert len(read_records(whole.folder.parent / "results.jsonl")) == 1


def test_a_search_that_was_killed_goes_on_and_ends_like_one_that_was_not(tmp_path, tiny_encoder, whole):
    out = tmp_path / "run"
    process = start_search(tiny_encoder, out)
    while process.poll() is None and count_results(out / "tune.log") < 3:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL and 3 <= count_results(out / "tune.log") < TRAININGS
    with pytest.raises(UserError, match="--resume goes on"):
        small_search(tiny_encoder, out)
    resumed = small_search(tiny_encoder, out, resume=True)
    assert results_of(resumed) == results_of(whole)
    assert resumed.run.recipe == whole.run.recipe and resumed.run.after == whole.run.after
    assert count_results(out / "tune.log") == TRAININGS  # nothing was trained twice
    assert not (out / "trials").exists()


def count_results(journal):
    """How many scores of folds are in the journal."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return sum("intermediate_value" in json.loads(line) for line in lines if line.endswith("}"))


def test_two_processes_share_a_search_in_a_database_and_neither_repeats_the_other(tmp_path, tiny_encoder):
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    helper = start_search(tiny_encoder, tmp_path / "helper", f"storage={storage}", "join")
    while helper.poll() is None and not at_work(tmp_path / "shared.db", done=2):
        time.sleep(0.05)
    helper.send_signal(signal.SIGSTOP)  # alive, and at a fold
    leader = start_search(tiny_encoder, tmp_path / "leader", f"storage={storage}")
    said = leader.communicate()[1]
    helper.send_signal(signal.SIGCONT)
    helped = helper.communicate()[1]
    assert leader.returncode == helper.returncode == 0, said + helped
    tuning = json.loads((tmp_path / "leader" / "tuning.json").read_text())
    assert sum(len(one["scores"]) for one in tuning["tried"]) == TRAININGS - 1  # all but the one that the helper is at
    assert count_said(said) + count_said(helped) == TRAININGS and count_said(said) > 0
    assert (tmp_path / "leader" / "model").exists() and not (tmp_path / "helper" / "model").exists()


def at_work(database, done):
    """Whether a process trains a fold, after so many results; read without Optuna, which would set the database up."""
    if not database.exists():
        return False
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection, suppress(sqlite3.OperationalError):
        results, claims = (connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0] for what in (RESULTS, CLAIMS))
        return results >= done and claims > results
    return False  # its tables are being made


def count_said(said):
    """How many results of folds a process has told of."""
    return said.count(", fold ")


def test_jobs_train_at_the_same_time_and_find_the_same_scores(tmp_path, tiny_encoder, whole):
    shared = small_search(tiny_encoder, tmp_path / "run", jobs=2)
    alone = {(one.number, fold): score for one in whole.tuning.tried for fold, score in one.scores.items()}
    both = {(one.number, fold): score for one in shared.tuning.tried for fold, score in one.scores.items()}
    same = alone.keys() & both.keys()
    assert len(same) >= 4 and all(alone[key] == pytest.approx(both[key], abs=1e-5) for key in same)


def test_a_search_that_was_killed_while_its_winner_trained_trains_it_and_races_no_more(tmp_path, tiny_encoder, whole):
    shutil.copytree(whole.folder, tmp_path / "run", ignore=shutil.ignore_patterns("seed-1", "model"))
    finished = small_search(tiny_encoder, tmp_path / "run", resume=True, most_trainings=1000)
    assert finished.tuning == whole.tuning and finished.run.after == whole.run.after


def test_a_folder_keeps_the_search_of_one_set_of_pairs(tmp_path, tiny_encoder, whole):
    with pytest.raises(UserError, match="holds a search on other pairs"):
        small_search(tiny_encoder, whole.folder, train_seed=5, resume=True)
    shutil.copytree(whole.folder, tmp_path / "run", ignore=shutil.ignore_patterns("seed-1", "model", "tuning.json"))
    with pytest.raises(UserError, match="holds a search on other pairs"):
        small_search(tiny_encoder, tmp_path / "run", train_seed=5, resume=True)


def test_a_search_that_has_ended_is_kept(tiny_encoder, whole):
    with pytest.raises(UserError, match="a search that has ended"):
        small_search(tiny_encoder, whole.folder)
    assert small_search(tiny_encoder, whole.folder, resume=True).run == whole.run


def test_without_time_for_a_race_the_start_is_trained(tmp_path, tiny_encoder, whole):
    short = small_search(tiny_encoder, tmp_path / "run", most_trainings=5)
    assert short.tuning.trainings == 0 and short.tuning.notes == [TOO_SHORT]
    assert short.run.after["test"] and short.run.recipe["stages"][0]["loss"]["kind"] == "pearson"


def test_a_search_needs_a_limit(tmp_path, tiny_encoder):
    with pytest.raises(UserError, match="would not end"):
        small_search(tiny_encoder, tmp_path / "run", most_trainings=None)
    with pytest.raises(UserError, match="jobs is 0"):
        small_search(tiny_encoder, tmp_path / "run", jobs=0)


def test_a_storage_that_cannot_be_opened_is_named(tmp_path, tiny_encoder):
    with pytest.raises(UserError, match="--storage nosuch://place: the search cannot be opened"):
        small_search(tiny_encoder, tmp_path / "run", storage="nosuch://place")


def test_a_choice_that_cannot_be_trained_ends_the_search_with_the_reason(tmp_path, tiny_encoder):
    with pytest.raises(UserError, match="the starting recipe cannot be trained"):
        small_search(str(tmp_path / "no such encoder"), tmp_path / "run")
