"""Records that do not show what their recipe says: which, how they are marked, and that they are made again."""

from __future__ import annotations

import pytest
from lab.agenda import choose_recipes, plan_jobs
from lab.book import compare
from lab.grids import grids_of
from lab.rows import read_row, row_names
from lab.running import missing_jobs
from lab.scored_rows import rows_of
from lab.untuned import count_looks, find_untuned
from lab.validity import problem_of
from made_runs import BEFORE, TODAY, make_run, write

HP1 = ("HP@1", "test")
SCORED_IN_BF16 = ("pfcc-s/mse", "pfcc-s/bsc-row-norm")  # the rows beside them are run again, and scored in float32


def needs_raw_vectors(recipe):
    losses = [stage.loss for stage in recipe.stages]
    return any(loss.kind == "triplet" or (loss.kind in ("bsc", "combo") and loss.normalize not in ("l2",)) for loss in losses)


@pytest.mark.parametrize("finished", [BEFORE, TODAY])
def test_what_needs_raw_vectors_is_invalid_if_it_was_trained_through_a_normalize(finished):
    for name in row_names():
        run = make_run(name, 1, 0.5, 0.5, finished=finished)
        invalid = needs_raw_vectors(read_row(name)) or name in SCORED_IN_BF16
        assert (problem_of(run) is not None) == (finished == BEFORE and invalid), name


def test_former_names_of_settings_are_understood():
    run = make_run("pfcc-s/bsc", 1, 0.5, 0.5, finished=BEFORE)
    loss = run.recipe["stages"][0]["loss"]
    loss["normalise"] = loss.pop("normalize")
    assert problem_of(run) is not None
    loss["normalise"] = "l2"
    assert problem_of(run) is None


def test_an_encoder_without_a_normalize_was_always_trained_on_raw_vectors():
    assert problem_of(make_run("pfcc-s/bsc", 1, 0.5, 0.5, encoder="bert-base-uncased", finished=BEFORE)) is None


def test_invalid_scores_are_marked_and_compared_with_nothing(tmp_path):
    when = {"pfcc-s/bsc": BEFORE, "pfcc-s/mse": TODAY}
    runs = [make_run(name, seed, 0.5, 0.5, finished=finished) for name, finished in when.items() for seed in (1, 2)]
    book = write(tmp_path, runs)
    bsc, mse = (book.find(read_row(name), "minilm") for name in ("pfcc-s/bsc", "pfcc-s/mse"))
    assert compare(bsc, mse, HP1) is None and compare(mse, mse, HP1) is not None
    grid = grids_of("3", book)[0]
    cells = {row[1]: row[3] for row in grid.rows}
    assert (cells["`pfcc-s/bsc`"], cells["`pfcc-s/mse`"]) == ("0.5000 ± 0.0000 †", "0.5000 ± 0.0000")
    assert grid.notes[-1].startswith("† Invalid, to be run again")
    assert {row.row for row in rows_of("3", book) if not row.valid} == {"BSC"}


def test_runs_that_were_made_again_take_the_place_of_invalid_ones(tmp_path):
    old = [make_run("pfcc-s/bsc", seed, 0.9, 0.9, finished=BEFORE) for seed in (1, 2, 3)]
    asked = plan_jobs(choose_recipes("pfcc-s/bsc"), "minilm", [1, 2, 3])
    write(tmp_path, old)
    assert len(missing_jobs(asked, tmp_path)) == 3
    book = write(tmp_path, [make_run("pfcc-s/bsc", 1, 0.5, 0.5)])
    assert [job.seed for job in missing_jobs(asked, tmp_path)] == [3, 2]
    assert book.find(read_row("pfcc-s/bsc"), "minilm").scores(HP1) == [0.5]


def untuned_run(length, dev, test, **more):
    run = make_run("cqa-b/mse", length, 0.5, 0.5, overrides=[f"train.max_seq_length={length}"], **more)
    run.before.update(dev={"MAP": dev}, test={"MAP": test})
    return run


def test_before_is_at_the_length_that_dev_prefers(tmp_path):
    runs = [untuned_run(70, dev=0.6, test=0.7), untuned_run(90, dev=0.65, test=0.5), untuned_run(160, dev=0.5, test=0.9)]
    found = find_untuned("cqa-b", "minilm", ("MAP", "test"), write(tmp_path, runs))
    assert (found.length, found.score, str(found)) == (90, 0.5, "0.5000 (90 tokens)")
    assert find_untuned("cqa-b", "mpnet", ("MAP", "test"), write(tmp_path, [])) is None


def test_before_is_of_runs_that_were_scored_in_float32_where_there_are_some(tmp_path):
    old = [untuned_run(90, dev=0.6, test=0.5, finished=BEFORE).model_copy(update={"seed": seed}) for seed in (1, 2)]
    new = untuned_run(90, dev=0.6, test=0.51, finished="2026-11-18T09:00:00+00:00").model_copy(update={"seed": 3})
    assert find_untuned("cqa-b", "minilm", ("MAP", "test"), write(tmp_path, [*old, new])).score == 0.51


def test_looks_at_test_are_counted_by_settings_and_runs(tmp_path):
    runs = [make_run("stsb/mse", seed, 0.5, 0.5) for seed in (1, 2)] + [make_run("stsb/bsc", 1, 0.5, 0.5)]
    del runs[-1].after["test"]
    assert count_looks("stsb", "minilm", write(tmp_path, runs)) == (1, 2)
