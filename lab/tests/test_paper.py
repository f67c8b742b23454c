"""The figures of the paper, as they are typed in paper.toml."""

from __future__ import annotations

from lab.paper import all_rows, open_rows, published, tables
from lab.rows import read_row, row_names
from lab.searches import searches

from pairtune.data.datasets import TASKS


def test_every_row_of_the_paper_has_its_figures_and_every_figure_its_recipe():
    assert set(published()) == set(all_rows()) < set(row_names())
    assert all(0 < value < 1 for one in published().values() for value in one.scores.values())


def test_the_paper_is_quoted_in_metrics_that_the_task_reports():
    for name, one in published().items():
        assert set(one.scores) <= set(TASKS[read_row(name).task].metrics), name


def test_every_row_has_a_recipe_in_both_presets_and_no_recipe_is_forgotten():
    released = {name for name in row_names() if name.startswith("released/")}
    assert {f"released/{name}" for name in all_rows()} == released
    others = {name for name in row_names() if not name.endswith("/best")} - released
    of_evidence = {"stdlib/bsc"}  # no dataset of the paper: what false negatives do
    assert {*all_rows(), *open_rows(), *of_evidence} == others


def test_the_tables_are_the_papers_five_and_what_its_discussion_says():
    assert list(tables()) == ["1", "2", "3", "4", "5", "discussion"]
    assert len(all_rows()) == len(set(all_rows())) == 38
    assert list(searches()) == ["antique", "cqa-a", "cqa-b", "pfcc-s", "mrpc", "qqp", "stsb"]
