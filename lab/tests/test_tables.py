"""The paper's tables from the records alone: figures against hand-made ones, orders, verdicts, and a page that is current."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.best import as_chosen, best_first, best_levels, choose_best, deciding
from lab.book import Book, compare
from lab.changes import Factorial
from lab.cli import app
from lab.grids import best_row, grids_of, released_grid
from lab.keys import settings_key
from lab.paper import all_rows, published, tables
from lab.results_page import make_page
from lab.rows import read_row, row_names
from lab.scored_rows import check_order, recipes_of, rows_of
from lab.searches import deciding_encoders, searches
from made_runs import make_run, write
from typer.testing import CliRunner

from pairtune import UserError

ROOT = Path(__file__).parent.parent
KEYS = ["table", "row", "task", "model", "metric", "primary", "paper", "mean", "std", "n", "best_on_dev", "valid"]


def print_json(*words):
    result = CliRunner().invoke(app, ["tables", *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_rows_for_programs_are_those_of_the_records(tmp_path):
    scores, dev = [0.80, 0.84, 0.85], [0.7, 0.9, 0.8]
    write(tmp_path, [make_run("cqa-a/bsc", seed, scores[seed], dev[seed]) for seed in range(3)])
    rows = print_json("2", "--results", str(tmp_path))
    assert all(list(row) == KEYS for row in rows)
    assert len(rows) == 14 * 2 * 2  # rows, metrics, encoders
    row = next(row for row in rows if (row["row"], row["task"], row["model"], row["metric"]) == ("BSC", "cqa-a", "minilm", "MAP"))
    assert row["primary"] is True and row["paper"] == 0.801 and row["n"] == 3 and row["best_on_dev"] == 0.84
    assert row["mean"] == pytest.approx(statistics.mean(scores)) and row["std"] == pytest.approx(statistics.stdev(scores))
    second = next(row for row in rows if (row["row"], row["task"], row["metric"]) == ("BSC", "cqa-a", "MRR"))
    assert second["primary"] is False and second["paper"] == 0.867 and second["best_on_dev"] == pytest.approx(0.74)
    empty = next(row for row in rows if row["task"] == "cqa-b" and row["model"] == "mpnet")
    assert (empty["mean"], empty["std"], empty["n"], empty["best_on_dev"]) == (None, None, 0, None)


def test_all_tables_have_every_figure_of_the_paper(tmp_path):
    rows = print_json("--results", str(tmp_path))
    found = {(row["task"], row["row"], row["metric"]): row["paper"] for row in rows if row["paper"] is not None}
    expected = {
        (name.partition("/")[0], one.row, metric): score
        for name, one in published().items()
        for metric, score in one.scores.items()
    }
    assert found == expected
    assert {row["table"] for row in rows} == set(tables())


def test_mrpc_has_the_papers_kind_of_figure_and_an_honest_one(tmp_path):
    book = write(tmp_path, [make_run("mrpc/mse", 1, test=0.8, dev=0.95)])
    honest, papers = (row for row in rows_of("4", book) if (row.row, row.task, row.model) == ("MSE", "mrpc", "minilm"))
    assert (honest.metric, honest.mean, honest.paper, honest.primary) == ("F1", 0.8, None, False)
    assert (papers.metric, papers.mean, papers.paper, papers.primary) == ("F1@best", pytest.approx(0.85), 0.8908, True)


def test_a_row_has_one_main_metric_and_it_is_one_that_the_paper_has(tmp_path):
    rows = [row for table in tables() for row in rows_of(table, Book(tmp_path))]
    main = [row for row in rows if row.primary]
    assert len(main) == 2 * len(all_rows())  # two encoders
    assert all(row.paper is not None for row in main)


def test_the_shipped_best_recipes_come_first_and_say_whether_they_clear_the_floor(tmp_path):
    runs = [make_run("pfcc-s/best", seed, test=0.78894, dev=0.7) for seed in (1, 2)]
    runs += [make_run(f"{task}/best", 1, test=test, dev=0.9) for task, test in (("cqa-a", 0.88), ("cqa-b", 0.52), ("stsb", 0.9))]
    book = write(tmp_path, runs)
    first = rows_of("best", book)[0]
    assert (first.row, first.task, first.metric, first.primary, first.paper) == ("antique/best", "antique", "MRR", True, 0.822)
    grid = grids_of("best", book)[0]
    floor = {row[0]: row[grid.head.index("floor")] for row in grid.rows}
    assert floor == {
        **{"`antique`": "0.884", "`mrpc`": "0.8583", "`qqp`": "0.7769"},  # not run
        **{"`pfcc-s`": "0.789 =", "`cqa-a`": "0.889 ✗", "`stsb`": "0.8588 ✓"},
        "`cqa-b`": "(0.505)",  # of other texts
    }
    again = [make_run("cqa-b/mse", 1, test=0.53, dev=0.9, overrides=["select=last"])]  # as the loop, on today's
    again += [make_run("cqa-b/bsc", seed, test=0.5 + seed / 50, dev=0.9, overrides=["select=last"]) for seed in (1, 2)]
    assert cqa_b_floor(tmp_path / "part", [*runs, *again]) == "≥ 0.5300 (0.505)"
    again.append(make_run("cqa-b/combo", 1, test=0.4, dev=0.9, overrides=["select=last"]))
    again.append(make_run("cqa-b/bsc-random", 1, test=0.4, dev=0.9, overrides=["select=last", "train.positives_only=true"]))
    assert cqa_b_floor(tmp_path / "whole", [*runs, *again]) == "0.5300 ✗ (0.505)"
    assert cqa_b_floor(tmp_path / "higher", [*again, make_run("cqa-b/best", 1, test=0.54, dev=0.9)]) == "0.5300 ✓ (0.505)"


def cqa_b_floor(folder, runs):
    grid = grids_of("best", write(folder, runs))[0]
    return next(row for row in grid.rows if row[0] == "`cqa-b`")[grid.head.index("floor")]


def test_records_with_other_settings_are_not_in_the_table(tmp_path):
    other = make_run("stsb/mse", 1, 0.9, 0.9, overrides=["train.learning_rate=1e-4"])
    again = make_run("stsb/mse", 2, 0.7, 0.7), make_run("stsb/mse", 2, 0.8, 0.8)
    book = write(tmp_path, [other, *again])
    row = next(row for row in rows_of("5", book) if (row.row, row.model) == ("MSE", "minilm"))
    assert (row.n, row.mean) == (1, 0.8)  # of two records for a seed the later one


def test_no_torch_is_needed_to_show_a_table(tmp_path):
    program = (
        "import sys; sys.argv = ['lab', 'tables', '--markdown', '--results', sys.argv[1]]\n"
        "from lab.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers', 'datasets', 'duckdb', 'plotly'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(ROOT / "results")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("# Results") and result.stdout.splitlines()[-1] == "[]"


def test_the_queue_needs_nothing_that_only_reports_need():
    program = "import sys, pairtune.tune.queue, pairtune.training; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())
    assert not {"torch", "typer", "duckdb", "plotly", "jinja2", "datasets", "faiss"} & loaded


def test_the_order_of_the_paper_is_checked_pair_by_pair(tmp_path):
    means = {"mse": 0.80, "bsc": 0.70, "combo": 0.75, "mse-then-bsc": 0.82, "bsc-then-mse": 0.86}  # paper: combo just below MSE
    runs = [make_run(f"stsb/{row}", seed, mean + seed / 1000, 0.5) for row, mean in means.items() for seed in (1, 2, 3)]
    order = check_order(recipes_of("5"), write(tmp_path, runs), "minilm")
    assert (order.pairs, order.right, order.sure, order.wrong) == (10, 10, 10, 0)
    reversed_runs = [make_run("stsb/combo", seed, 0.9 + seed / 1000, 0.5) for seed in (1, 2, 3)]
    order = check_order(recipes_of("5"), write(tmp_path, reversed_runs), "minilm")
    assert (order.pairs, order.right, order.wrong) == (10, 7, 3)  # combo is now above all, and above BSC as in the paper
    assert order.beside["stsb/mse"] == -1 and order.beside["stsb/combo"] == 1


def test_one_run_each_leaves_the_order_open(tmp_path):
    order = check_order(
        recipes_of("5"), write(tmp_path, [make_run("stsb/mse", 1, 0.8, 0), make_run("stsb/bsc", 1, 0.9, 0)]), "minilm"
    )
    assert (order.pairs, order.right, order.sure, order.wrong) == (1, 0, 0, 0)


def test_the_best_recipe_is_chosen_on_dev_and_never_on_test(tmp_path):
    rows = searches()["stsb"].first
    runs = [
        make_run(row.base, 1, test=0.9 - place / 100, dev=0.5 + place / 100, overrides=row.changes)
        for place, row in enumerate(rows)
    ]
    assert choose_best("stsb", write(tmp_path, runs[:-1])) is None  # the search is not whole yet
    book = write(tmp_path, runs[-1:])
    assert choose_best("stsb", book) == rows[-1]
    ranked = [row for row, _ in best_first("stsb", book, "minilm", rows)]
    assert ranked == list(rows[::-1])
    assert grids_of("best", book)[-1].rows[0][1] == f"`{rows[-1].name}`"


def test_records_that_lost_their_test_scores_still_choose_and_show_a_dash(tmp_path):
    rows = searches()["stsb"].first
    runs = [make_run(one.base, 1, test=0.9, dev=0.5 + place / 100, overrides=one.changes) for place, one in enumerate(rows)]
    for run in runs:
        del run.before["test"], run.after["test"]
    book = write(tmp_path, runs)
    assert choose_best("stsb", book) == rows[-1]
    assert grids_of("best", book)[-1].rows[0][2:4] == (f"{runs[-1].dev_score():.4f}", "–")
    sample = book.find(rows[0].recipe(), "minilm")
    assert compare(sample, sample, ("Spearman", "test")) is None and sample.best_on_dev(("Spearman", "test")) is None
    assert {row.n for row in rows_of("5", book)} == {0}
    assert "| the encoder as it comes | – | – | – |" in make_page(book)
    again = make_run(rows[0].base, 1, test=0.8, dev=0.7, overrides=rows[0].changes)
    assert write(tmp_path, [again]).find(rows[0].recipe(), "minilm").scores(("Spearman", "test")) == [0.8]


def test_a_second_round_decides_where_there_is_one(tmp_path):
    first = [make_run(one.base, 1, test=0.9, dev=0.9, overrides=one.changes) for one in searches()["cqa-a"].first]
    assert choose_best("cqa-a", write(tmp_path, first)) is None
    second = searches()["cqa-a"].second
    lower = [make_run(one.base, 1, test=0.5, dev=0.5 + place / 100, overrides=one.changes) for place, one in enumerate(second)]
    book = write(tmp_path, lower)  # another dev set: higher figures on the given one say nothing
    assert choose_best("cqa-a", book) == second[-1]
    titles = [grid.title for grid in grids_of("best", book) if "cqa-a" in grid.title]
    assert titles == ["Search, `cqa-a`, minilm", "Second round, by cross-validation, `cqa-a`, minilm"]


def test_where_every_combination_was_run_each_level_is_judged_by_all_that_have_it(tmp_path):
    (design,) = searches()["antique"].combined
    worth = [(0.02, 0.0), (0.0, 0.015), (0.0, 0.03, 0.01)]
    runs = []
    for combination, one in zip(design.combinations, design.changed_rows, strict=True):
        dev = 0.8 + sum(levels[place] for levels, place in zip(worth, combination, strict=True))
        lucky = 0.06 if combination == (1, 0, 2) else 0.0  # the highest of all figures, and one alone
        for encoder in deciding_encoders():
            runs += [make_run(one.base, seed, 0.5, dev + lucky, encoder, one.changes) for seed in range(1, 11)]
    assert choose_best("antique", write(tmp_path, runs[:-11])) is None  # a tenth with minilm, and ten with mpnet, are missing
    book = write(tmp_path, runs[-11:])
    assert best_first("antique", book, "minilm", design.changed_rows)[0][0] == design.changed_row((1, 0, 2))
    assert choose_best("antique", book) == design.changed_row((0, 1, 1))
    titles = [grid.title for grid in grids_of("best", book) if "antique" in grid.title]
    assert titles[-1] == "Every combination, by cross-validation, `antique`, mpnet"


@given(st.lists(st.floats(0, 1), min_size=12, max_size=12), st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_the_best_levels_are_those_with_the_highest_plain_means(first, second):
    design = Factorial(
        "stsb/mse", (), (("", "train.learning_rate=5e-5"), ("", "train.batch_size=60"), ("", "train.epochs=2", "train.epochs=9"))
    )
    means = []
    for factor, levels in enumerate(design.factors):
        found = [[] for _ in levels]
        for scores in (first, second):
            for combination, score in zip(design.combinations, scores, strict=True):
                found[combination[factor]].append(score)
        means.append([statistics.mean(values) for values in found])
    if any(abs(a - b) < 1e-6 for levels in means for a, b in itertools.combinations(levels, 2)):
        return  # either may be called the best
    expected = [levels.index(max(levels)) for levels in means]
    assert best_levels(design, [first, second]) == design.changed_row(expected)


def test_combinations_that_an_encoder_lacks_tilt_nothing():
    design = Factorial("stsb/mse", (), (("", "train.learning_rate=5e-5"), ("", "train.batch_size=60")))
    assert [one.name for one in design.changed_rows][-1] == "stsb/mse+learning_rate-5e-5+batch_size-60"
    easy, hard = [0.90, 0.89, 0.88, 0.87], [0.50, 0.49, 0.48, None]
    assert best_levels(design, [easy, hard]) == design.changed_row((0, 0))


def test_combinations_decide_when_one_encoder_has_all_and_the_other_half(tmp_path):
    design = searches()["pfcc-s"].combined[0]

    def runs_of(places, encoder, seeds=range(1, 11)):
        chosen = [design.changed_rows[place] for place in places]
        return [make_run(one.base, seed, 0.5, 0.5, encoder, one.changes) for one in chosen for seed in seeds]

    assert deciding("pfcc-s", write(tmp_path, runs_of(range(12), "minilm"))) is None
    book = write(tmp_path, runs_of((0, 1, 2, 3), "mpnet"))  # the smaller batch alone
    assert deciding("pfcc-s", book) is None and choose_best("pfcc-s", book) is None
    assert "For `pfcc-s` there are runs of combinations that do not decide yet" in make_page(book)
    book = write(tmp_path, runs_of((4, 6), "mpnet", seeds=(1, 2)))  # other tenths are another dev
    assert deciding("pfcc-s", book) is None
    book = write(tmp_path, [*runs_of((4, 6), "mpnet", seeds=range(3, 11)), *runs_of((1,), "bert-base-uncased", seeds=(1,))])
    assert deciding("pfcc-s", book) == design and "By settings, not by recipes: `pfcc-s`" in make_page(book)
    assert "that do not decide yet" not in make_page(book)  # though the next step has some of these
    fresh = searches()["pfcc-s"].combined[1].changed_row((1, 0, 0))
    book = write(tmp_path, [make_run(fresh.base, 1, 0.5, 0.5, "minilm", fresh.changes)])
    assert deciding("pfcc-s", book) == design and "For `pfcc-s` there are runs of combinations that do not" in make_page(book)


def test_recipes_without_a_common_seed_are_not_compared(tmp_path):
    first, second, third, *_ = searches()["stsb"].first
    runs = [make_run(first.base, seed, 0.5, 0.5, overrides=first.changes) for seed in (1, 2)]
    runs += [make_run(second.base, seed, 0.5, 0.6, overrides=second.changes) for seed in (2, 3)]
    runs += [make_run(third.base, 4, 0.5, 0.9, overrides=third.changes)]
    ranked = best_first("stsb", write(tmp_path, runs), "minilm", (first, second, third))
    assert [row for row, _ in ranked] == [second, first, third]


def test_a_recipe_of_two_rounds_is_one():
    search = searches()["antique"]
    names = [row.name for row in search.changed_rows]
    shared = set(search.second) & set(search.combined[0].changed_rows)
    assert len(shared) == 4
    assert len(names) == len(set(names)) == len(search.first) + len(search.second) + 12 - len(shared)


def test_recipes_are_compared_on_the_seeds_that_all_of_them_have(tmp_path):
    runs = [make_run(row.base, 1, test=0.5, dev=0.5, overrides=row.changes) for row in searches()["stsb"].first]
    first, second, *_ = searches()["stsb"].first
    runs += [make_run(first.base, 2, test=0.9, dev=0.9, overrides=first.changes)]  # one more run, and a lucky one
    runs[1] = make_run(second.base, 1, test=0.5, dev=0.6, overrides=second.changes)
    book = write(tmp_path, runs)
    assert choose_best("stsb", book) == second
    assert best_first("stsb", book, "minilm", searches()["stsb"].first)[0][0] == second


def test_the_released_settings_stand_beside_those_of_the_text(tmp_path):
    assert released_grid(Book(tmp_path)) is None
    runs = [make_run(f"{preset}stsb/bsc", seed, 0.8, 0.8) for preset in ("", "released/") for seed in (1, 2)]
    (row,) = released_grid(write(tmp_path, runs)).rows
    assert row[0] == "`released/stsb/bsc`" and row[3:5] == ("0.8000 ± 0.0000", "0.8000 ± 0.0000")


@pytest.mark.parametrize("task", searches())
def test_the_shipped_best_recipe_is_the_winner_on_dev(task):
    shipped = f"{task}/best" in row_names()
    winner = choose_best(task, Book(ROOT / "results"))
    if winner is not None:
        assert shipped, f"the search is done: write lab/recipes/{task}/best.toml with the settings of {winner.name}"
        best = settings_key(as_chosen(read_row(f"{task}/best")))
        assert best == settings_key(winner.recipe()), f"the winner is {winner.name}"
    elif shipped:
        best = settings_key(as_chosen(read_row(f"{task}/best")))
        assert best in {settings_key(row.recipe()) for row in searches()[task].changed_rows}


def test_a_recipe_that_is_trained_on_dev_shows_the_dev_score_that_it_was_chosen_by(tmp_path):
    joined = read_row("pfcc-s/best").model_copy(update={"dev": "joined"})
    runs = [make_run("pfcc-s/best", seed, test=0.7, dev=0.6, overrides=["dev=rotating"]) for seed in (1, 2)]
    runs += [make_run("pfcc-s/best", seed, test=0.8, dev=1.0, overrides=["dev=joined"]) for seed in (1, 2)]
    row = best_row(joined, ("HP@1", "test"), write(tmp_path, runs), "minilm")
    assert row[4:8] == ("0.6000", "0.8000 ± 0.0000", "–", "2")


def test_the_page_of_results_is_current():
    page = (ROOT / "results.md").read_text(encoding="utf-8")
    assert page == make_page(Book(ROOT / "results")), "the records have changed: make results writes lab/results.md again"


def test_the_tables_are_printed_for_people_too():
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["tables", "5", "--results", str(ROOT / "results")])
    assert result.exit_code == 0 and "Combo" in result.output and "0.8459" in result.output


def test_an_unknown_table_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no table '9'; known: 1, 2, 3, 4, 5, discussion, open, best"):
        rows_of("9", Book(tmp_path))
    with pytest.raises(UserError, match="unknown preset 'code'"):
        rows_of("1", Book(tmp_path), "code")


def test_the_rows_of_the_paper_are_the_rows_of_the_tables():
    assert set(all_rows()) == set(published())
