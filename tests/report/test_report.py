"""What training leaves for its report, and the page that is made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import precision_recall_curve
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.data.pairs import PairSet
from pairtune.errors import UserError
from pairtune.metrics import score_split
from pairtune.ordering import Order
from pairtune.report.page import write_report
from pairtune.report.plots import is_graded, plot_batch, plot_grades, precision_curve
from pairtune.report.scores import find_intervals
from pairtune.report.summary import name_runs, read_runs
from pairtune.report.wins import find_examples
from pairtune.runs.evidence import Evidence, Judged, Outcome, read_evidence
from pairtune.training import run
from report_runs import NASTY, WORDS, duplicates_task, make_small_recipe, ranking_task, search_task


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_encoder):
    """The folder of a run of four epochs, in which τ is learned and half of the pairs are labelled negatives."""
    folder = tmp_path_factory.mktemp("report") / "twins" / "seed-1"
    run(make_small_recipe(tiny_encoder), 1, out=folder, task=duplicates_task())
    return folder


@pytest.fixture(scope="module")
def evidence(finished):
    found = read_evidence(finished / "evidence.json")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def page(finished):
    return write_report([finished], finished / "report.html").read_text(encoding="utf-8")


# What training writes


def train_tiny(encoder, folder, watched):
    """The weights after two epochs, dropout on; with or without somebody looking."""
    import torch
    from sentence_transformers import SentenceTransformer

    from pairtune.data.material import training_dataset
    from pairtune.sbert.callbacks import Clock
    from pairtune.sbert.trainer import make_trainer
    from pairtune.sbert.watch import Watch

    task, stage = duplicates_task(), make_small_recipe(encoder, train={"epochs": 2}).stages[0]
    torch.manual_seed(3)
    model = SentenceTransformer(encoder, device="cpu")
    clock = Clock(48)
    callbacks = [clock, Watch(clock, 0.5)] if watched else [clock]
    make_trainer(model, training_dataset(model, task, stage, 1), stage, task, 1, folder, callbacks, select="last").train()
    return {name: value.numpy() for name, value in model.state_dict().items()}


def test_watching_does_not_change_a_single_weight(tmp_path, tiny_encoder):
    alone, watched = (train_tiny(tiny_encoder, tmp_path / str(seen), seen) for seen in (False, True))
    assert (tmp_path / "True" / "watched.json").exists() and not (tmp_path / "False" / "watched.json").exists()
    for name in alone:
        np.testing.assert_array_equal(alone[name], watched[name], err_msg=name)


def test_every_epoch_is_measured_and_three_of_them_are_shown(evidence):
    (stage,) = evidence.stages
    assert stage.order == "examples"
    assert sorted(stage.hardness) == [1, 2, 3, 4] and sorted(stage.snapshots) == [1, 2, 4]
    assert all(found.negative < found.hardest <= 1 for found in stage.hardness.values())
    assert stage.steps[-1].epoch == pytest.approx(4, abs=0.3) and stage.steps[0].temperature != stage.steps[-1].temperature
    assert all(set(seen.group) and sum(seen.positive) < len(seen.positive) for seen in stage.snapshots.values())


def test_the_first_batch_is_as_the_encoder_came(evidence, tiny_model):
    seen = evidence.stages[0].snapshots[1]
    tiny_model.max_seq_length = 16
    left, right = (tiny_model.encode(texts, normalize_embeddings=True) for texts in (seen.left, seen.right))
    np.testing.assert_allclose(seen.similarity, left @ right.T, atol=2e-3)
    for i in range(len(left)):
        for j in range(len(right)):
            same = seen.left[i] == seen.left[j] or seen.right[i] == seen.right[j]
            suspect = seen.positive[i] and not same and left[i] @ right[j] > left[i] @ right[i] + 0.05
            assert suspect == ((i, j) in seen.suspects)


@pytest.mark.parametrize("make_task", [duplicates_task, search_task, ranking_task])
def test_the_kept_scores_give_the_recorded_figures(tmp_path, tiny_encoder, make_task):
    task = make_task()
    record = run(make_small_recipe(tiny_encoder, train={"epochs": 1}), 1, out=tmp_path / "run", task=task)
    kept = read_evidence(tmp_path / "run" / "evidence.json")
    for outcome, recorded in ((kept.test.before, record.before["test"]), (kept.test.after, record.after["test"])):
        if outcome.rank is not None:
            assert np.mean(np.array(outcome.rank) == 1) == pytest.approx(recorded["HP@1"])
            assert np.mean(1 / np.array(outcome.rank)) == pytest.approx(recorded["MRR"])
            assert all(
                (score > rival) == (rank == 1)
                for score, rival, rank in zip(outcome.score, outcome.rival_score, outcome.rank, strict=True)
            )
            continue
        pairs = PairSet.of(kept.test.left, kept.test.right, kept.test.label, query=kept.test.query)
        found = score_split(pairs.gold(), np.array(outcome.score), task.metrics, threshold=recorded.get("threshold"))
        assert found == pytest.approx({name: recorded[name] for name in found}, abs=1e-3)
    assert write_report([tmp_path / "run"], tmp_path / "page.html").stat().st_size < 3_000_000


def test_what_an_interrupted_run_has_seen_is_not_lost(tmp_path, tiny_encoder, finished, monkeypatch):
    from pairtune.sbert.watch import Watch

    look = Watch._look

    def pull_the_plug(self, sampler, model, args, state, collate):
        look(self, sampler, model, args, state, collate)
        if round(state.epoch or 0) == 2:
            raise KeyboardInterrupt

    recipe = make_small_recipe(tiny_encoder)
    monkeypatch.setattr(Watch, "_look", pull_the_plug)
    with pytest.raises(KeyboardInterrupt):
        run(recipe, 1, out=tmp_path / "run", task=duplicates_task())
    monkeypatch.setattr(Watch, "_look", look)
    assert not (tmp_path / "run" / "evidence.json").exists()
    run(recipe, 1, out=tmp_path / "run", task=duplicates_task(), resume=True)
    resumed, whole = (read_evidence(folder / "evidence.json") for folder in (tmp_path / "run", finished))
    assert resumed == whole


def test_every_stage_is_watched_triplets_too(tmp_path, tiny_encoder):
    stages = [{"loss": {"kind": "bsc"}}, {"loss": {"kind": "triplet"}, "order": {"by": "uniform"}}]
    recipe = make_small_recipe(tiny_encoder, train={"epochs": 1}, stages=stages)
    run(recipe, 1, out=tmp_path / "run", task=ranking_task())
    first, second = read_evidence(tmp_path / "run" / "evidence.json").stages
    assert (first.order, second.order) == ("examples", "uniform")
    assert not all(first.snapshots[1].positive) and all(second.snapshots[1].positive)  # a triplet's two texts belong together
    text = write_report([tmp_path / "run"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Stage 1, epoch 1" in text and "Stage 2, epoch 1" in text and "; then triplet" in text


def test_a_sample_of_an_epoch_is_made_of_whole_batches_spread_over_it():
    from pairtune.sbert.watch import choose_batches

    order = Order(np.random.default_rng(0).permutation(10_000), np.arange(0, 10_000, 8))
    sample = choose_batches(order, 32)
    assert len(sample) == 256
    starts = [int(np.flatnonzero(order.rows == row)[0]) for row in sample.rows[::32]]
    assert all(start % 32 == 0 for start in starts) and starts[0] < 1_000 and starts[-1] > 9_000
    np.testing.assert_array_equal(sample.groups, np.arange(0, 256, 8))
    short = Order(np.arange(5), np.array([0]))
    np.testing.assert_array_equal(choose_batches(short, 32).rows, np.arange(5))


def test_a_large_test_set_is_kept_in_part_and_by_whole_queries():
    from pairtune.sbert.outcomes import choose_items

    query = np.repeat([str(number) for number in range(4_000)], 3)
    pairs = PairSet.of(["a"] * 12_000, ["b"] * 12_000, query=query)
    rows = choose_items(pairs)
    assert 7_990 <= len(rows) <= 8_000 and len(rows) == 3 * len({query[row] for row in rows})


# How sure a score is


def made_up(kind, before, after, label, total=None, query=None):
    sides = [Outcome(**side) for side in (before, after)]
    count = len(label)
    texts = [f"text {place}" for place in range(count)]
    columns = {"left": texts, "right": texts, "label": label, "grade": label, "query": query or list(range(count))}
    tested = Judged(total=total or count, before=sides[0], after=sides[1], **columns)
    return Evidence(command="pairtune train x", kind=kind, positive_above=0.5, stages=[], test=tested)


def searched(rank):
    texts = ["x"] * len(rank)
    return {"score": [0.5] * len(rank), "rank": rank, "right": texts, "rival": texts, "rival_score": [0.4] * len(rank)}


def test_the_interval_of_a_share_is_that_of_the_binomial():
    rank = [1] * 300 + [2] * 100
    kept = made_up("retrieval", searched(rank), searched(rank), [1.0] * 400)
    found = find_intervals(kept, "HP@1", {"HP@1": 0.75}, {"HP@1": 0.75})
    spread = 1.96 * np.sqrt(0.75 * 0.25 / 400)
    assert found.before.low == pytest.approx(0.75 - spread, abs=0.008)
    assert found.before.high == pytest.approx(0.75 + spread, abs=0.008)
    assert (found.difference.low, found.difference.high) == (0, 0)  # the same items are drawn for both


def test_the_interval_of_a_correlation_is_that_of_scipy():
    rng = np.random.default_rng(1)
    label = rng.random(200)
    scores = label + rng.normal(0, 0.4, 200)
    kept = made_up("regression", {"score": scores.tolist()}, {"score": scores.tolist()}, label.tolist())
    value = float(stats.pearsonr(scores, label).statistic)
    found = find_intervals(kept, "Pearson", {"Pearson": value}, {"Pearson": value})
    options = {"paired": True, "vectorized": False, "n_resamples": 2000, "method": "percentile", "rng": 2}
    other = stats.bootstrap((scores, label), lambda a, b: stats.pearsonr(a, b).statistic, **options).confidence_interval
    assert (found.after.low, found.after.high) == pytest.approx((other.low, other.high), abs=0.02)


def test_keeping_a_quarter_of_the_items_does_not_widen_the_interval():
    rank = [1] * 300 + [2] * 100
    part = made_up("retrieval", searched(rank), searched(rank), [1.0] * 400, total=1600)
    found = find_intervals(part, "HP@1", {"HP@1": 0.75}, {"HP@1": 0.75})
    assert found.after.high - found.after.low == pytest.approx(2 * 1.96 * np.sqrt(0.75 * 0.25 / 1600), abs=0.008)


def test_queries_are_resampled_whole():
    query = [number for number in range(30) for _ in range(10)]
    label = [1.0] + [0.0] * 9
    good, bad = [0.9] + [0.1] * 9, [0.1] + [0.9] * 9
    scores = (good * 20) + (bad * 10)
    kept = made_up("ranking", {"score": scores}, {"score": scores}, label * 30, query=query)
    found = find_intervals(kept, "P@1", {"P@1": 2 / 3}, {"P@1": 2 / 3})
    assert found.after.high - found.after.low == pytest.approx(2 * 1.96 * np.sqrt(2 / 9 / 30), abs=0.06)


# What is shown of it


def test_the_precision_curve_lies_on_the_one_of_scikit_learn(evidence):
    precision, recall, _ = precision_recall_curve(np.array(evidence.test.label) > 0.5, evidence.test.after.score)
    theirs = {(round(r, 4), round(p, 4)) for r, p in zip(recall, precision, strict=True)}
    ours = {(round(r, 4), round(p, 4)) for r, p in precision_curve(evidence, evidence.test.after)}
    assert len(ours) > 30 and ours <= theirs


def examples_of(evidence, **more):
    found = find_examples(evidence, **more)
    assert found is not None
    return found


def test_where_nothing_was_wrong_there_are_neither_wins_nor_mistakes():
    found = examples_of(made_up("retrieval", searched([1, 1]), searched([1, 1]), [1.0, 1.0]))
    assert not found.wins and not found.mistakes and find_examples(None) is None


def test_wins_and_mistakes_of_pairs_are_judged_by_place_not_by_score():
    label = [1.0, 1.0, 0.0, 0.0]
    before, after = [0.1, 0.8, 0.9, 0.2], [0.6, 0.4, 0.5, 0.3]  # all cosines shrink; pair 0 rises to the top, pair 2 falls
    found = examples_of(made_up("classification", {"score": before}, {"score": after}, label), count=2)
    assert [one.left for one in found.wins] == ["text 0", "text 3"]
    assert found.wins[0].truth == "positive" and (found.wins[0].before, found.wins[0].after) == ("0.10", "0.60")
    assert {one.left for one in found.mistakes} == {"text 1", "text 2"}


def test_a_win_in_a_search_is_a_better_rank():
    before, after = searched([8, 108, 1, 3]), searched([1, 101, 1, 9])
    found = examples_of(made_up("retrieval", before, after, [1.0] * 4))
    assert [one.left for one in found.wins] == ["text 0"]
    assert [(one.left, one.before, one.after) for one in found.mistakes] == [
        ("text 1", "rank 108", "rank 101"),
        ("text 3", "rank 3", "rank 9"),
    ]
    assert found.mistakes[0].instead == "x" and found.wins[0].instead == ""


@pytest.mark.parametrize("kind", ["classification", "regression", "ranking", "retrieval"])
def test_no_pair_is_both_a_win_and_a_mistake(kind):
    rng, count = np.random.default_rng(7), 80
    label = (np.arange(count) % 5 / 4 if kind == "regression" else np.arange(count) % 2.0).tolist()
    ranks, scores = rng.integers(1, 9, (2, count)).tolist(), rng.random((2, count)).tolist()
    sides = [searched(one) for one in ranks] if kind == "retrieval" else [{"score": one} for one in scores]
    query = (np.arange(count) // 4).tolist() if kind == "ranking" else None
    found = examples_of(made_up(kind, *sides, label, query=query))
    wins, mistakes = ({(one.left, one.right) for one in examples} for examples in (found.wins, found.mistakes))
    assert wins and mistakes and not wins & mistakes


def test_graded_pairs_are_shown_as_label_against_cosine_and_have_no_positives():
    grade = [float(row % 6) for row in range(600)]
    scores = [0.1 * value + 0.001 * (row % 7) for row, value in enumerate(grade)]
    kept = made_up("regression", {"score": scores}, {"score": scores}, [value / 5 for value in grade])
    points, means = plot_grades(kept, kept.test.after).data
    given = {(row, round(score, 4)) for row, score in zip(kept.test.grade, scores, strict=True)}
    assert set(zip(points.x, points.y, strict=True)) <= given and len(points.x) == 600
    assert means.x.tolist() == sorted({*kept.test.grade})
    assert means.y.tolist() == pytest.approx(
        [np.mean([y for x, y in zip(kept.test.grade, scores, strict=True) if x == at]) for at in means.x], abs=1e-4
    )
    fine = made_up("regression", {"score": scores}, {"score": scores}, [row / 599 for row in range(600)])
    assert is_graded(fine) and len(plot_grades(fine, fine.test.after).data[1].x) == 11
    assert not is_graded(made_up("classification", {"score": scores}, {"score": scores}, [row % 2 for row in range(600)]))


def test_a_batch_shows_its_groups_positives_negatives_and_suspects(evidence):
    seen = evidence.stages[0].snapshots[1].model_copy(update={"suspects": [(2, 5)]})
    figure = plot_batch(seen, 1.0)
    marks = {trace.name: set(zip(trace.y, trace.x, strict=True)) for trace in figure.data[1:]}
    assert marks["positive pair"] == {(i, i) for i, positive in enumerate(seen.positive) if positive}
    assert marks["labelled negative"] == {(i, i) for i, positive in enumerate(seen.positive) if not positive}
    assert marks["likely false negative"] == {(2, 5)}
    assert len(figure.layout.shapes) == sum(seen.group.count(group) > 1 for group in set(seen.group))


@pytest.mark.parametrize("kind", ["given", "mined"])
def test_a_batch_shows_the_negatives_that_the_loss_has_seen(tmp_path, tiny_encoder, tiny_model, kind):
    task, more = search_task(), {"negatives": kind, **({"mined": 1} if kind == "mined" else {})}
    if kind == "given":
        given = replace(task.train, negatives=[(f"wrong {row} {WORDS[row % 12]}", "never") for row in range(len(task.train))])
        task = replace(task, train=given)
    recipe = make_small_recipe(tiny_encoder, train={"epochs": 1, "batch_size": 8, **more}, loss={"kind": "bsc"})
    run(recipe, 1, out=tmp_path / "seed-1", task=task)
    seen = read_evidence(tmp_path / "seed-1" / "evidence.json").stages[0].snapshots[1]
    count = len(seen.left)
    if kind == "given":
        wrong = dict(zip(task.train.left, task.train.negatives, strict=True))
        assert seen.negatives == [wrong[left][column] for column in (0, 1) for left in seen.left]
    else:
        held = dict(zip(task.train.left, [*task.train.right[1:], task.train.right[0]], strict=True))  # until they are mined
        assert len(seen.negatives) == count and {*seen.negatives} <= {*task.train.corpus}
        assert seen.negatives != [held[left] for left in seen.left]
    tiny_model.max_seq_length = 16
    left, right = (tiny_model.encode(texts, normalize_embeddings=True) for texts in (seen.left, [*seen.right, *seen.negatives]))
    np.testing.assert_allclose(seen.similarity, left @ right.T, atol=2e-3)
    figure = plot_batch(seen, 1.0)
    own = next(trace for trace in figure.data if trace.name == "own negative")
    assert list(zip(own.y, own.x, strict=True))[:count] == [(row, count + row) for row in range(count)]
    page = write_report([tmp_path / "seed-1"], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Right of the orange line" in page and f"{len(seen.negatives)} own negatives" in page


class Outside(HTMLParser):
    """What a page would fetch or point to."""

    def __init__(self):
        super().__init__()
        self.found, self.scripts = [], 0

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        self.found += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action")]


def test_the_page_points_to_nothing_but_itself_and_no_text_breaks_out(page, evidence):
    outside = Outside()
    outside.feed(page)
    assert outside.found and all(target.startswith("#") for target in outside.found)
    assert NASTY in evidence.test.left and "<script>alert" not in page and "alert(1)" in page
    assert outside.scripts == page.count('class="plot"') + 2
    assert len(page) < 2_500_000


def test_the_page_says_what_was_trained_and_how_it_went(page, finished):
    record = json.loads((finished / "record.json").read_text())
    assert f"{record['after']['test']['F1']:.4f}" in page and f"{record['before']['test']['AP']:.4f}" in page
    for text in (
        "small/twins",
        "Temperature τ",
        "Precision against recall",
        "Biggest wins",
        "Worst mistakes",
        "the threshold chosen on dev",
    ):
        assert text in page, text


def test_the_title_of_a_page_is_the_name_of_the_run(page):
    assert "<title>twins – pairtune report</title>" in page and "<h1>twins</h1>" in page


def test_a_run_without_evidence_still_has_its_scores_and_curves(tmp_path, finished):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "record.json").write_text((finished / "record.json").read_text())
    text = write_report([tmp_path / "old"], tmp_path / "old.html").read_text(encoding="utf-8")
    assert "HP@1" not in text and "F1" in text and "trained by an older version" in text


def test_runs_are_called_by_what_tells_them_apart(tmp_path):
    folders = [tmp_path / "a" / "seed-1", tmp_path / "a" / "seed-2", tmp_path / "b" / "seed-1"]
    assert list(name_runs(folders).values()) == ["a, seed 1", "a, seed 2", "b"]
    twins = [tmp_path / "x" / "a" / "seed-1", tmp_path / "y" / "a" / "seed-1"]
    assert list(name_runs(twins).values()) == [str(folder) for folder in twins]


def test_refusals_say_what_to_give(tmp_path):
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "recipe.json").write_text("{}")
    with pytest.raises(UserError, match="begun is not finished: its report can be made when it is"):
        read_runs([tmp_path / "begun"])
    with pytest.raises(UserError, match="is not the folder of a run: give one that `pairtune train` made"):
        read_runs([tmp_path])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "record.json").write_text("{}")
    with pytest.raises(UserError, match=r"record\.json is damaged or was not made by pairtune"):
        read_runs([tmp_path / "broken"])


def change(*path):
    """A change of one value in a table: the last of the path takes the place of what is there."""

    def apply(values):
        for step in path[:-2]:
            values = values[step]
        values[path[-2]] = path[-1]

    return apply


APART = {
    "no epochs": ("record.json", change("epochs", [])),
    "no metric on test": ("record.json", change("after", "test", {})),
    "kept epochs of other stages": ("record.json", change("kept_epochs", [1, 2, 3])),
    "no stages": ("record.json", change("recipe", "stages", 3)),
    "a batch without cells": ("evidence.json", change("stages", 0, "snapshots", "1", "similarity", [])),
    "fewer scores than pairs": ("evidence.json", change("test", "before", "score", [])),
    "fewer labels than pairs": ("evidence.json", change("test", "label", [])),
}


@pytest.mark.parametrize("apart", APART)
def test_files_of_a_run_that_do_not_go_together_are_told_in_words(tmp_path, finished, apart):
    name, damage = APART[apart]
    for other in ("record.json", "evidence.json"):
        values = json.loads((finished / other).read_text())
        if other == name:
            damage(values)
        (tmp_path / other).write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"record\.json and evidence\.json do not go together \(\w+: .*train again"):
        write_report([tmp_path], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_making_a_report_does_not_import_torch(finished, tmp_path):
    program = (
        "import sys; from pathlib import Path; from pairtune.report.page import write_report\n"
        f"write_report([Path({str(finished)!r})], Path({str(tmp_path / 'page.html')!r}))\n"
        "print([name for name in ('torch', 'transformers', 'pairtune.training') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_command_line_leaves_a_page_for_each_seed_and_one_that_compares_them(tmp_path, tiny_encoder, finished):
    pairs = duplicates_task().train
    rows = zip(pairs.left, pairs.right, pairs.label.tolist(), strict=True)
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps({"left": left, "right": right, "label": label}) + "\n" for left, right, label in rows))
    settings = [f'encoder="{tiny_encoder}"', "train.epochs=1", "train.batch_size=8", "train.max_seq_length=16", "seeds=[1,2]"]
    options = [part for setting in settings for part in ("--set", setting)]
    out = tmp_path / "own"
    command = ["train", "own/labelled", "--data", str(data), "--label", "label", "--out", str(out), "--json", *options]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert json.loads(result.stdout)["report"] == str(out / "report.html")
    assert (out / "seed-1" / "report.html").exists() and "own, seed 2" in (out / "report.html").read_text(encoding="utf-8")
    result = CliRunner().invoke(
        app, ["report", str(out), str(finished), "--out", str(tmp_path / "all.html")], catch_exceptions=False
    )
    assert result.stdout.strip() == str(tmp_path / "all.html")
    text = (tmp_path / "all.html").read_text(encoding="utf-8")
    assert all(label in text for label in ("3 runs", "own, seed 1", "own, seed 2", "twins"))
