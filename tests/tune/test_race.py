"""The course of a race, over scores that are drawn instead of trained: what is really better is known."""

from __future__ import annotations

import numpy as np
import pytest

from pairtune.runs.record import Run
from pairtune.runs.toml import make_recipe
from pairtune.tune.folds import Folds
from pairtune.tune.ledger import Ledger
from pairtune.tune.plan import Budget
from pairtune.tune.race import Course
from pairtune.tune.space import Space
from pairtune.tune.tried import ENOUGH
from pairtune.tune.worker import Done

BASE = make_recipe({"name": "base", "loss": {"kind": "pearson"}, "train": {"epochs": 3}})
NOISE = 0.004
SPACE = Space.around(BASE, "regression")
ONE, OTHER = [next(iter(SPACE.changes(levels).items())) for levels in list(SPACE.neighbors(SPACE.start))[:2]]  # two changes


def make_course(path, trainings, folds=5):
    ledger = Ledger.open(path / "journal.log", "simulated")
    ledger.begin({}, SPACE)
    budget = Budget(seconds=None, trainings=trainings)
    return Course(ledger, SPACE, Folds(None, tuple(range(1, folds + 1)), True), budget, "Spearman")


def simulate(course, effects, seed=0, fails=lambda levels: False):
    """Race; a fold has its own difficulty, a setting its effect, and each training some luck. The jobs in their order."""
    difficulty = np.random.default_rng(seed).normal(0.7, 0.05, size=20)
    jobs = []
    while (job := course.next_job()) is not None:
        levels = next(one for one in course.ledger.entries() if f"variant-{one.number}" == job.recipe.name).levels
        luck = np.random.default_rng([seed, job.seed, *"".join(sorted(levels.values())).encode()]).normal(scale=NOISE)
        score = difficulty[job.seed] + luck + sum(effects.get(change, 0.0) for change in course.space.changes(levels).items())
        record = Run.model_construct(after={"dev": {"Spearman": score}}, before={"dev": {"Spearman": 0.4}})
        course.settle(job, Done(problem="out of memory") if fails(levels) else Done(record, took=1.0))
        jobs.append(job)
    return jobs


def winner(course):
    entries = course.review()
    return course.space.changes(entries[course.best(entries)].levels)


def test_a_setting_that_is_clearly_better_is_found(tmp_path):
    course = make_course(tmp_path, trainings=30)
    simulate(course, {OTHER: 0.03, ONE: -0.02})
    assert winner(course) == dict([OTHER])


def test_settings_that_are_better_together_are_found_one_after_the_other(tmp_path):
    course = make_course(tmp_path, trainings=60)
    simulate(course, {ONE: 0.03, OTHER: 0.03})
    assert {ONE, OTHER} <= set(winner(course).items())  # luck may add one that does nothing


@pytest.mark.parametrize("seed", range(3))
def test_a_start_that_nothing_beats_by_more_than_its_noise_is_kept_or_lost_to_what_is_as_good(tmp_path, seed):
    course = make_course(tmp_path, trainings=40)
    simulate(course, {}, seed)
    assert len(winner(course)) <= 1


def test_a_fold_is_scored_by_a_trained_epoch_even_where_the_original_encoder_is_better(tmp_path):
    assert BASE.keep_original
    assert not any(job.recipe.keep_original for job in simulate(make_course(tmp_path, trainings=8), {}))


def test_losers_are_dropped_before_they_cost_as_much_as_the_start(tmp_path):
    course = make_course(tmp_path, trainings=40)
    worse = {(axis.name, level): -0.05 for axis in course.space.axes for level in course.space.labels(axis)}
    simulate(course, worse)
    entries = course.review()
    tried = [len(one.scores) for one in entries[1:]]
    assert winner(course) == {} and max(tried) <= 2 and np.mean(tried) < 1.5


def test_all_are_judged_on_the_same_folds_in_the_same_order(tmp_path):
    course = make_course(tmp_path, trainings=30)
    simulate(course, {ONE: 0.01})
    for entry in course.ledger.entries():
        assert sorted(entry.scores) == list(range(1, len(entry.scores) + 1))
    assert len(course.ledger.entries()[0].scores) >= ENOUGH


def test_no_training_is_made_twice_and_the_limit_holds(tmp_path):
    course = make_course(tmp_path, trainings=25)
    jobs = simulate(course, {})
    assert len({job.key + str(job.recipe.stages) for job in jobs}) == len(jobs) <= 25


def test_a_candidate_that_fails_is_passed_over(tmp_path):
    course = make_course(tmp_path, trainings=30)
    simulate(course, {OTHER: 0.03}, fails=lambda levels: ONE in levels.items())
    failed = [one for one in course.ledger.entries() if one.ended.startswith("failed")]
    assert failed and all(one.ended == "failed: out of memory" and not one.scores for one in failed)
    assert winner(course) == dict([OTHER])


def test_when_the_leader_has_ended_the_race_nobody_trains_on(tmp_path):
    course = make_course(tmp_path, trainings=30)
    assert course.next_job() is not None
    course.ledger.close()
    assert course.next_job() is None
