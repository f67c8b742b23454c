"""The systems that the paper compares with: their losses against plain loops, their pairs, and a run of each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lab.agenda import choose_everything, job_key, plan_everything
from lab.augmented import FOLDER, read_silver, sample_pairs, write_silver
from lab.comparator_tables import comparator_grid, comparator_grids
from lab.comparators import systems
from lab.guises import GUISES, load_guise
from lab.keys import settings_key
from lab.lines import append_line
from lab.rival_losses import RIVALS, nt_xent_loss, supcon_loss
from lab.searches import searches
from made_runs import make_run, write

from pairtune import PairSet, Task, UserError
from pairtune.tune.queue import run_jobs
from pairtune.tune.worker import Setup


@pytest.fixture
def vectors():
    torch.manual_seed(0)
    return torch.randn(5, 8), torch.randn(5, 8)


def cosine(one, other):
    return float(one @ other / one.norm() / other.norm())


def test_supcon_is_the_mean_over_all_positives_of_a_text_outside_the_logarithm(vectors):
    left, right = vectors
    left_ids, right_ids = torch.tensor([0, 0, 1, 2, 3]), torch.tensor([0, 1, 2, 3, 3])
    left[1], right[4] = left[0], right[3]
    pairs = set(zip(left_ids.tolist(), right_ids.tolist(), strict=True))
    total = 0.0
    for one, other, known in ((left, right, False), (right, left, True)):
        names = (right_ids, left_ids) if known else (left_ids, right_ids)
        for i in range(5):
            shares = np.exp([cosine(one[i], other[j]) / 0.1 for j in range(5)])
            goes = [(names[0][i].item(), name) for name in names[1].tolist()]
            good = [j for j in range(5) if (goes[j][::-1] if known else goes[j]) in pairs]
            total -= np.mean(np.log(shares[good] / shares.sum())) / 10
    assert float(supcon_loss(left, right, left_ids, right_ids, 0.1)) == pytest.approx(total, rel=1e-5)


def test_supcon_without_repeats_is_the_ranking_loss_in_both_directions(vectors):
    ids = torch.arange(5)
    ranking = RIVALS["SymmetricRankingLoss"](torch.nn.Identity())
    assert float(supcon_loss(*vectors, ids, ids)) == pytest.approx(float(ranking.compute_loss_from_embeddings([*vectors], None)))


def test_nt_xent_has_all_other_texts_in_its_denominator(vectors):
    both, total = torch.cat(vectors), 0.0
    for i in range(10):
        shares = {j: np.exp(cosine(both[i], both[j]) / 0.1) for j in range(10) if j != i}
        total -= np.log(shares[(i + 5) % 10] / sum(shares.values())) / 10
    assert float(nt_xent_loss(*vectors, 0.1)) == pytest.approx(total, rel=1e-5)


def test_supcon_is_that_of_pytorch_metric_learning_where_texts_of_one_side_repeat(vectors):
    from pytorch_metric_learning.losses import SupConLoss

    left, right = vectors
    questions, answers = torch.tensor([0, 0, 1, 1, 1]), torch.arange(5)
    left[1], left[3:] = left[0], left[2]
    theirs = SupConLoss(temperature=0.1)
    same = questions.clone()  # of the same object it would think that they are the texts themselves, and leave out the diagonal
    ways = [theirs(one, questions, ref_emb=other, ref_labels=same) for one, other in ((left, right), (right, left))]
    assert float(supcon_loss(left, right, questions, answers, 0.1)) == pytest.approx(float(sum(ways)) / 2, rel=1e-5)


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_nt_xent_is_that_of_pytorch_metric_learning_and_so_are_its_gradients(vectors, temperature):
    from pytorch_metric_learning.losses import NTXentLoss

    left, right = (side.requires_grad_() for side in vectors)
    theirs = NTXentLoss(temperature=temperature)(torch.cat([left, right]), torch.arange(5).repeat(2))
    ours = nt_xent_loss(left, right, temperature)
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5)
    for one, other in zip(torch.autograd.grad(ours, [left, right]), torch.autograd.grad(theirs, [left, right]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.fixture
def task():
    pairs = PairSet.of(list("aaaab"), ["g1", "g2", "b1", "b2", "only"], [1, 1, 0, 0, 1])
    return Task("cqa-a", "ranking", pairs, pairs, pairs, "MAP", ("MAP",))


def test_triplets_are_all_positives_with_all_negatives_of_a_left_text(task):
    train = GUISES["triplets"](task).train
    found = {(left, right, *wrong) for left, right, wrong in zip(train.left, train.right, train.negatives, strict=True)}
    assert found == {("a", good, bad) for good in ("g1", "g2") for bad in ("b1", "b2")} and len(train) == 4
    assert len(GUISES["labelled"](task).train) == 2


def test_simcse_pairs_every_text_with_itself(task):
    train = GUISES["texts"](task).train
    assert train.left == train.right and set(train.left) == {*task.train.left, *task.train.right}


def test_sep_stands_between_subject_and_body(task):
    pairs = PairSet.of(["Visa. Where? Here. Now"], ["An answer. Of two"], [1])
    one, two = (GUISES["sep"](Task(name, "ranking", pairs, pairs, pairs, "MAP", ("MAP",))) for name in ("cqa-a", "cqa-b"))
    assert one.train.left == two.test.left == ("Visa [SEP] Where? Here. Now",)
    assert (one.dev.right, two.dev.right) == (("An answer. Of two",), ("An answer [SEP] Of two",))


def test_the_real_triplets_are_as_many_as_the_authors_code_makes(real_data):
    assert len(load_guise("cqa-a+triplets").train) == 18417


def test_silver_pairs_that_are_not_there_yet_are_asked_for(real_data, tmp_path):
    with pytest.raises(UserError, match=r"task stsb\+silver-bm25: no pairs are labelled yet: python -m lab augment makes them"):
        load_guise("stsb+silver-bm25", tmp_path)


def test_every_task_has_the_comparators_that_its_labels_allow():
    counts = {task: sum(system.task == task for system in systems()) for task in searches()}
    assert counts == {"antique": 12, "cqa-a": 13, "cqa-b": 13, "pfcc-s": 10, "mrpc": 12, "qqp": 12, "stsb": 11}
    assert all(system.recipe().stages[0].train.epochs for system in systems())


def test_everything_begins_with_what_makes_the_tables_whole_for_all_encoders():
    groups = choose_everything()
    jobs = plan_everything(groups, ["minilm", "mpnet"], [1, 2, 3, 4, 5])
    assert len({job_key(job) for job in jobs}) == len(jobs)
    place = {settings_key(recipe): number for number, recipes in reversed(list(enumerate(groups))) for recipe in recipes}
    told = [(place[settings_key(job.recipe.model_copy(update={"encoder": "minilm"}))], job.seed > 3) for job in jobs]
    assert list(dict.fromkeys(told))[:4] == [(0, False), (1, False), (0, True), (1, True)]
    tables = jobs[: sum(number < 2 for number, _ in told)]
    assert {job.recipe.encoder for job in tables[: 6 * len(groups[0])]} == {"minilm", "mpnet"}
    rest = told[len(tables) :]
    assert all(number > 1 for number, _ in rest) and [later for _, later in rest] == sorted(later for _, later in rest)
    assert all("+silver" not in job.recipe.task for job in tables)


def test_a_queue_whose_time_is_over_begins_no_run(tmp_path):
    jobs = plan_everything(choose_everything()[:1], ["minilm"], [1])
    assert run_jobs(jobs, workers=2, setup=Setup(tmp_path), file=lambda job, run: pytest.fail(str(job)), seconds=0.0) == {}


def test_a_table_has_the_systems_that_were_run_and_what_each_is_behind_the_reference(tmp_path):
    angle = next(one for one in systems() if (one.task, one.title) == ("stsb", "AnglELoss"))
    runs = [make_run("stsb/combo", seed, 0.86, 0.8) for seed in (1, 2, 3)]
    assert not comparator_grids(write(tmp_path / "without", runs))
    runs += [make_run("stsb/mse", seed, 0.84, 0.8, overrides=angle.trained.changes) for seed in (1, 2, 3)]
    append_line(tmp_path / "with" / FOLDER / "minilm.jsonl", {"task": "stsb", "seed": 1, "test": {"Spearman": 0.91}})
    grid = comparator_grid("stsb", write(tmp_path / "with", runs))
    rows = {row[0]: row[1:] for row in grid.rows}
    assert list(rows) == ["the encoder as it comes", "AnglELoss", "Combo BSC + MSE (`stsb/combo`)", "cross-encoder"]
    assert (
        rows["AnglELoss"][0].startswith("0.8400") and rows["AnglELoss"][1].startswith("-0.0200") and rows["AnglELoss"][2] == "3"
    )
    assert rows["cross-encoder"][0].startswith("0.9100")


def test_new_pairs_are_the_nearest_by_words_that_are_not_gold_and_come_back_as_written(tmp_path):
    pairs = PairSet.of(["red stone", "blue river"], ["a red stone", "the blue river"])
    task = Task("stsb", "regression", pairs, pairs, pairs, "Spearman", ("Spearman",))
    left, right = sample_pairs(task, "bm25")
    assert list(zip(left, right, strict=True)) == [("red stone", "the blue river"), ("blue river", "a red stone")]
    write_silver(tmp_path, "stsb", "bm25", (left, right, np.array([0.25, 0.5])))
    assert read_silver(tmp_path, "stsb", "bm25")[2].tolist() == [0.25, 0.5] and read_silver(tmp_path, "mrpc", "bm25") is None
