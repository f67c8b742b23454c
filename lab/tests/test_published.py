"""The figures of the paper, as they are typed here."""

from __future__ import annotations

from lab.plan import TABLES
from lab.published import PUBLISHED
from lab.rows import read_row, row_names

from pairtune.data.datasets import TASKS


def test_every_row_of_the_paper_has_its_figures_and_every_figure_its_recipe():
    rows = [name for names in TABLES.values() for name in names]
    assert set(PUBLISHED) == set(rows) and set(rows) < set(row_names())
    assert all(0 < value < 1 for one in PUBLISHED.values() for value in one.scores.values())


def test_the_paper_is_quoted_in_metrics_that_the_task_reports():
    for name, one in PUBLISHED.items():
        assert set(one.scores) <= set(TASKS[read_row(name).task].metrics), name
