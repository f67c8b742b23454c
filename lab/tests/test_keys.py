"""Records are found by what was trained, under the names and defaults of their time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab.agenda import choose_recipes, plan_jobs, record_key
from lab.keys import settings_key
from lab.paper import all_rows, open_rows
from lab.queries import read_queries
from lab.rows import read_row
from lab.running import missing_jobs, parse_since

from pairtune import UserError
from pairtune.runs.record import append_record, read_records

RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture(scope="module")
def records():
    return read_records(RESULTS)


@pytest.fixture
def combo(records):
    return next(run for run in records if run.name == "cqa-a/combo").model_copy(deep=True)


def test_every_record_is_read_and_none_is_another_one(records):
    assert len(records) >= 2925
    assert len({record_key(run) for run in records if run.finished < "2026-11-17"}) == 2925


def test_every_line_of_query_scores_belongs_to_a_record_and_has_its_mean(records):
    found, queries = {record_key(run): run for run in records}, read_queries(RESULTS)
    assert len(queries) >= 2234 and queries.keys() <= found.keys()
    away = [found[key].after["test"][found[key].metric] - scores.mean() for key, scores in queries.items()]
    assert max(away) < 0.003 and min(away) > -1e-4  # cosines were rounded before: new ties, which count against a ranking
    assert sum(abs(one) > 1e-4 for one in away) < 20


@pytest.mark.parametrize("encoder", ["minilm", "mpnet"])
def test_what_was_trained_under_former_names_is_recognised(encoder, records):
    known = {settings_key(run.recipe) for run in records}
    rows = [read_row(name).model_copy(update={"encoder": encoder}) for name in (*all_rows(), *open_rows())]
    unknown = {row.name for row in rows if settings_key(row) not in known}
    since = {"antique/mse", "cqa-b/bsc-clusters", "stsb/bsc-then-mse", "cqa-a/bsc-group-texts", "cqa-b/bsc-group-texts"}
    assert unknown <= since  # which got other settings, or are new
    former = {name for run in records for name in run.recipe["stages"][0]["train"]}
    assert {"rate", "batch", "max_length"} <= former  # the records are as they were written


def test_a_key_does_not_know_names_nor_how_a_run_is_computed(combo):
    key = settings_key(combo.recipe)
    assert key == settings_key(read_row("cqa-a/combo", ["name=other", "seeds=[7]", "train.precision=bf16"]))
    assert key != settings_key(read_row("cqa-a/combo", ["train.learning_rate=1e-4"]))
    del combo.recipe["stages"][0]["train"]["clip"]  # of a time that did not have it
    assert settings_key(combo.recipe) == key
    combo.recipe["stages"][0]["train"]["gone"] = 1  # a setting that pairtune no longer has
    assert settings_key(combo.recipe) != key


def test_rows_keep_the_defaults_of_the_records_whatever_pairtune_has(tmp_path):
    row = read_row("stsb/mse").model_dump(mode="json")
    frozen = json.loads(json.dumps(row["stages"][0]["loss"]))
    assert (frozen["duplicates"], frozen["mix"], row["stages"][0]["train"]["warmup"]) == ("keep", 0.5, 0.1)


def test_what_has_a_record_of_the_same_settings_is_not_run_again(tmp_path, combo):
    append_record(tmp_path / "minilm.jsonl", combo)

    def missing(*overrides, encoder="minilm", seeds=(combo.seed,)):
        return missing_jobs(plan_jobs([read_row("cqa-a/combo", overrides)], encoder, seeds), tmp_path)

    assert not missing()
    assert not missing("name=another", "train.precision=bf16")
    assert missing("train.learning_rate=1e-4")
    assert missing(encoder="mpnet")
    assert sorted(job.seed for job in missing(seeds=(1, 2, 3, 4, 5))) == sorted({1, 2, 3, 4, 5} - {combo.seed})


def test_what_another_folder_has_is_not_run_again_either(tmp_path, combo):
    append_record(tmp_path / "there" / "minilm.jsonl", combo)
    asked = plan_jobs([read_row("cqa-a/combo")], "minilm", [combo.seed, 77])
    assert missing_jobs(asked, tmp_path / "here") == asked
    assert [job.seed for job in missing_jobs(asked, tmp_path / "here", tmp_path / "there")] == [77]


def test_what_was_finished_before_a_date_is_made_again_if_that_is_asked_for(tmp_path, combo):
    append_record(tmp_path / "minilm.jsonl", combo.model_copy(update={"finished": "2026-11-17T23:59:59+00:00"}))
    asked = plan_jobs([read_row("cqa-a/combo")], "minilm", [combo.seed])
    assert missing_jobs(asked, tmp_path, since=parse_since("2026-11-18")) == asked
    assert not missing_jobs(asked, tmp_path, since=parse_since("2026-11-18T00:30+01:00"))
    assert not missing_jobs(asked, tmp_path, since=parse_since(""))
    with pytest.raises(UserError, match="--since is 'monday'; expected a date such as 2026-11-18"):
        parse_since("monday")


def test_a_run_whose_record_lost_its_test_scores_is_made_again(tmp_path, combo):
    del combo.after["test"]
    append_record(tmp_path / "minilm.jsonl", combo)
    asked = plan_jobs([read_row("cqa-a/combo")], "minilm", [combo.seed])
    assert missing_jobs(asked, tmp_path) == asked


def test_of_table_5_at_most_the_row_is_missing_whose_first_stage_now_keeps_its_last_epoch():
    missing = missing_jobs(plan_jobs(choose_recipes("5"), "minilm", [1, 2, 3, 4, 5]), RESULTS)
    assert {job.recipe.name for job in missing} <= {"stsb/bsc-then-mse"}


def test_a_stage_that_keeps_another_epoch_has_another_key():
    own, plain = read_row("stsb/bsc-then-mse"), read_row("stsb/bsc-then-mse", ["select=best"])
    assert own.selects == ("last", "best") and plain.selects == ("best", "best")
    assert settings_key(own) != settings_key(plain)
