"""The page of evidence: made from the records, of rows and changes that were trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.book import Book
from lab.changes import both_sides, recipes_of_evidence, sections
from lab.evidence_page import changes_grid, loss_grid, make_evidence, rows_grid, spread_grid
from lab.keys import settings_key
from made_runs import make_run, write

LAB = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def book():
    return Book(LAB / "results")


def test_the_page_of_evidence_is_current(book):
    page = (LAB / "evidence.md").read_text(encoding="utf-8")
    assert page == make_evidence(book), "the records have changed: make results writes lab/evidence.md again"


def test_every_change_changes_something_and_was_trained_on_both_sides_or_is_planned(book):
    for section in sections():
        for change in section.get("changes", ()):
            before, after = (one.recipe() for one in both_sides(change))
            assert settings_key(before) != settings_key(after), change
            trained = any(len(book.find(before, one)) and len(book.find(after, one)) for one in book.encoders)
            assert trained or section.get("planned"), change


def test_what_is_planned_can_be_run_by_one_word():
    names = {recipe.name for recipe in recipes_of_evidence(["train.precision=bf16"])}
    assert {"cqa-a/bsc", "cqa-a/bsc+by-words", "pfcc-s/bsc+skip_nearest-5"} <= names


def test_a_change_shows_both_sides_and_their_difference(tmp_path):
    runs = [make_run("stsb/mse", seed, 0.80 + seed / 1000, 0.7) for seed in (1, 2, 3)]
    runs += [make_run("stsb/pearson", seed, 0.85 + seed / 1000, 0.6) for seed in (1, 2, 3)]
    (row,) = changes_grid([{"row": "stsb/mse", "to": "loss.kind=pearson"}], write(tmp_path, runs)).rows
    assert row[:5] == ("`stsb/mse`", "–", "as it is → `loss.kind=pearson`", "Spearman", "minilm")
    assert row[5:7] == ("0.7000 → 0.6000", "0.8020 → 0.8520") and row[8] == "3, 3"
    assert row[7].startswith("+0.0500 (+0.0") and row[7].endswith(" ✓")


def test_the_best_loss_on_dev_is_bold_whatever_test_says(tmp_path):
    runs = [make_run("stsb/mse", seed, 0.9, 0.5) for seed in (1, 2)] + [make_run("stsb/bsc", seed, 0.8, 0.6) for seed in (1, 2)]
    rows = {row[0]: row for row in loss_grid(write(tmp_path, runs), "minilm").rows}
    assert rows["`stsb`"][3:5] == ("0.9000 ± 0.0000 (2)", "**0.8000 ± 0.0000 (2)**")
    assert rows["`mrpc`"][3:] == ("–",) * 5


def test_rows_show_the_settings_that_tell_them_apart(tmp_path):
    book = write(tmp_path, [make_run("stsb/bsc", 1, 0.8, 0.5)])
    (row,) = rows_grid(["stsb/bsc"], ["loss.temperature", "order.by"], book).rows
    assert row == ("`stsb/bsc`", "`0.1`", "`examples`", "Spearman", "0.8326", "0.8000 (1)")


def test_the_spread_is_from_the_lowest_to_the_highest_seed(tmp_path):
    book = write(tmp_path, [make_run("stsb/bsc", seed, 0.8 + seed / 100, 0.5) for seed in (1, 2, 5)])
    assert spread_grid(["stsb/bsc"], book).rows == (("`stsb/bsc`", "Spearman", "minilm", "0.8100 to 0.8500", "0.0400"),)
