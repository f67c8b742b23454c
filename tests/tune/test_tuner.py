"""A search from end to end on the tiny encoder: killed, resumed, shared, and blind to test until its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import searches
from pairtune.errors import UserError
from pairtune.runs.record import read_records
from pairtune.runs.toml import make_recipe, read_recipe
from pairtune.tune.race import TOO_SHORT
from pairtune.tune.tried import Tried, Tuning
from pairtune.tune.tuner import last_recipe, without_original
from searches import HELD, TRAININGS, small_search
from small import assert_same_weights


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny_encoder):
    """A search that nobody disturbed."""
    return small_search(tiny_encoder, tmp_path_factory.mktemp("whole") / "run")


def start_and_hold(encoder, out, after, *options):
    """A process that has trained so many folds, has claimed another, and waits."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join(map(str, (root / "src", root / "tests")))
    command = list(map(str, [sys.executable, searches.__file__, encoder, out, after, *options]))
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, text=True, **pipes)
    assert process.stdout.readline() == HELD, process.stderr.read()
    return process


@pytest.fixture(scope="module")
def killed(tmp_path_factory, tiny_encoder):
    """The folder of a search that was killed at its fourth training; its test pairs are others."""
    out = tmp_path_factory.mktemp("killed") / "run"
    process = start_and_hold(tiny_encoder, out, 3, "test_seed=77")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    return out


@pytest.fixture(scope="module")
def resumed(killed, tmp_path_factory, tiny_encoder):
    """That search, taken to its end."""
    out = shutil.copytree(killed, tmp_path_factory.mktemp("resumed") / "run")
    return small_search(tiny_encoder, out, test_seed=77, resume=True)


def results_of(tuned):
    return [(one.number, one.levels, one.scores, one.ended) for one in tuned.tuning.tried]


def test_a_search_leaves_a_model_and_a_recipe_that_trains_it_again(whole):
    from sentence_transformers import SentenceTransformer

    assert SentenceTransformer(str(whole.folder / "model"), device="cpu").encode(["stone river"]).shape == (1, 384)
    again = read_recipe(str(whole.folder / "recipe.toml"))
    assert again.model_dump(mode="json") == whole.run.recipe
    made = sum(len(one.scores) for one in whole.tuning.tried)
    assert TRAININGS - 3 < whole.tuning.trainings == made <= TRAININGS  # one or two are not enough for another variant
    assert len(whole.tuning.tried[0].scores) >= 4 and whole.tuning.tried[0].changes == {}
    assert not (whole.folder / "trials").exists()


def test_the_winner_is_averaged_with_the_starting_recipe_or_with_further_seeds_of_its_own(whole):
    others, seeds = len(whole.tuning.finalists), whole.run.recipe["average_of"]
    assert others + seeds == whole.tuning.last == 3
    assert (others > 0) or not whole.tuning.winner.changes
    assert not (whole.folder / "averaged").exists()


def test_every_score_is_on_a_fold_that_the_encoder_as_it_came_was_scored_on(whole):
    for one in whole.tuning.tried:
        assert one.scores.keys() <= whole.tuning.before.keys()


def test_what_test_holds_changes_nothing_but_the_score_on_it(resumed, whole):
    assert results_of(resumed) == results_of(whole)
    assert resumed.tuning.chosen == whole.tuning.chosen
    assert resumed.run.after["dev"] == whole.run.after["dev"] and resumed.run.after["test"] != whole.run.after["test"]


def test_test_is_scored_once_for_the_winner(whole):
    assert len(read_records(whole.folder.parent / "results.jsonl")) == 1


def test_a_search_that_was_killed_is_gone_on_with_only_where_that_is_asked_for(killed, tiny_encoder):
    assert count_results(killed / "tune.log") == 3
    with pytest.raises(UserError, match="--resume goes on"):
        small_search(tiny_encoder, killed)


def test_a_search_that_was_killed_goes_on_and_ends_like_one_that_was_not(resumed, whole):
    assert results_of(resumed) == results_of(whole)
    assert resumed.run.recipe == whole.run.recipe
    assert_same_weights(resumed.folder / "model", whole.folder / "model")
    assert count_results(resumed.folder / "tune.log") == whole.tuning.trainings  # nothing was trained twice
    assert not (resumed.folder / "trials").exists()


def count_results(journal):
    """How many scores of folds are in the journal."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return sum("intermediate_value" in json.loads(line) for line in lines if line.endswith("}"))


def test_two_processes_share_a_search_in_a_database_and_neither_repeats_the_other(tmp_path, tiny_encoder, capsys):
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    helper = start_and_hold(tiny_encoder, tmp_path / "helper", 2, f"storage={storage}", "join")  # alive, and at a fold
    tuning = small_search(tiny_encoder, tmp_path / "leader", storage=storage).tuning
    made = sum(len(one.scores) for one in tuning.tried)
    assert 5 < made < TRAININGS  # all but the one that the helper is at
    assert count_said(capsys.readouterr().err) == made - 2  # the helper's
    _, helped = helper.communicate("go on\n")
    assert helper.returncode == 0 and count_said(helped) == 3, helped
    assert (tmp_path / "leader" / "model").exists() and not (tmp_path / "helper" / "model").exists()


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


def made_tuning(gains, finalists=()):
    """A search whose winner has gained so much over the original encoder on each fold."""
    before = {fold: 0.5 + 0.1 * fold for fold in range(1, len(gains) + 1)}
    scores = {fold: before[fold] + gain for fold, gain in enumerate(gains, start=1)}
    found = Tried(number=0, levels={}, changes={}, scores=scores, seconds=1, folds=len(gains), gain=0, error=None, ended="")
    told = {"name": "n", "task": "t", "kind": "regression", "metric": "Spearman", "encoder": "minilm", "reasons": [], "notes": []}
    how = {"untried": 0, "importance": {}, "noise": None, "seconds": 1, "chosen": 0, "recipe": {"name": "mine"}}
    return Tuning(**told, **how, tried=[found], before=before, finalists=list(finalists))


@pytest.mark.parametrize(
    ("gains", "kept"),
    [
        ([0.07, 0.04, 0.07, 0.11, 0.1], False),  # better on every fold: what a small dev says of epoch 0 is chance
        ([0.3, -0.2, 0.1, -0.1, 0.05], True),  # the folds cannot tell
        ([-0.07, -0.04, -0.1, -0.02], True),
        ([], True),
    ],
)
def test_the_original_encoder_is_kept_out_of_the_last_training_where_all_folds_together_are_against_it(small_task, gains, kept):
    tuning = made_tuning(gains)
    assert last_recipe(small_task, tuning).keep_original == kept
    assert without_original(make_recipe({"name": "other"}), tuning).keep_original == kept
