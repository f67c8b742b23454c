"""Which runs a table asks for, in which order, and what is refused."""

from __future__ import annotations

import pytest
from lab.agenda import choose_recipes, cost_of, job_key, plan_jobs
from lab.keys import settings_key
from lab.paper import open_rows
from lab.rows import read_row
from lab.searches import searches

from pairtune import UserError


def test_the_longest_runs_come_first_and_none_twice():
    jobs = plan_jobs([*choose_recipes("all"), *choose_recipes("2")], "minilm", [1, 2])
    assert [job.cost for job in jobs] == sorted((job.cost for job in jobs), reverse=True)
    assert len(jobs) == len({job_key(job) for job in jobs}) == 2 * (38 + len(open_rows()))
    few, many = (cost_of(read_row("pfcc-s/best", [f"train.splits={splits}"])) for splits in ("train", "train+titles"))
    assert many > 5 * few


def test_the_recipes_of_a_search_are_at_most_two_dozen_and_all_different():
    for task, search in searches().items():
        for rows in filter(None, (search.first, search.second)):
            recipes = [row.recipe() for row in rows]
            assert 5 <= len(set(map(settings_key, recipes))) == len(recipes) <= 24, task
            assert {recipe.task for recipe in recipes} == {task}


def test_an_unknown_table_and_preset_are_refused_with_what_there_is():
    known = "1, 2, 3, 4, 5, discussion, open, comparators, evidence, best, all, everything"
    with pytest.raises(UserError, match=f"there is no table '6'; known: {known}"):
        choose_recipes("6")
    with pytest.raises(UserError, match="unknown preset 'code'; known: paper, released"):
        choose_recipes("1", "code")
    with pytest.raises(UserError, match="open has no row in the preset released"):
        choose_recipes("open", "released")


def test_a_best_recipe_can_be_run_by_its_name():
    assert [recipe.name for recipe in choose_recipes("cqa-b/best")] == ["cqa-b/best"]
