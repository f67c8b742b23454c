from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pairtune.data.pairs import PairSet, Task
from pairtune.data.splits import connect, number_parts, rotate_dev
from pairtune.errors import UserError


def make_task(kind="regression", count=60, shared=3):
    """Every `shared` pairs have their right text in common; a quarter of them is dev."""
    left, right = [f"left {row}" for row in range(count)], [f"right {row // shared}" for row in range(count)]
    grade = np.arange(count, dtype=np.float32)
    query = [f"query {row // 2}" for row in range(count)]
    pairs = PairSet.of(left, right, grade / count, query=query, grade=grade)
    parts = pairs.take(range(count * 3 // 4)), pairs.take(range(count * 3 // 4, count))
    train, dev = (replace(part, corpus=tuple(dict.fromkeys(part.right))) for part in parts)  # each searches among its own
    return Task("made", kind, train, dev, dev, "Spearman", ("Spearman",), notes=("dev: the last quarter", "no license"))


def test_ten_seeds_hold_every_pair_out_once_and_train_on_the_others():
    task = make_task()
    everything = sorted(task.train.left + task.dev.left)
    rotated = [rotate_dev(task, seed) for seed in range(1, 11)]
    assert sorted(text for one in rotated for text in one.dev.left) == everything
    for one in rotated:
        assert sorted(one.train.left + one.dev.left) == everything
        assert 3 <= len(one.dev) <= 9
        assert one.test is task.test
        assert set(one.dev.right) | set(one.train.right) == set(one.dev.corpus) == set(one.train.corpus)
        assert one.notes[0] == "no license" and one.notes[1].startswith("dev: tenth") and len(one.notes) == 2
    assert rotate_dev(task, 13).dev.left == rotated[2].dev.left


def test_a_pair_keeps_its_label_grade_and_query():
    dev = rotate_dev(make_task(), 4).dev
    rows = [int(text.split()[1]) for text in dev.left]
    assert dev.grade.tolist() == rows and np.allclose(dev.label, np.array(rows) / 60)
    assert dev.query.tolist() == [f"query {row // 2}" for row in rows]


@pytest.mark.parametrize(("kind", "column"), [("retrieval", "right"), ("ranking", "query")])
def test_no_text_or_in_a_ranking_no_query_is_on_both_sides(kind, column):
    for seed in range(1, 11):
        task = rotate_dev(make_task(kind), seed)
        assert not set(getattr(task.train, column)) & set(getattr(task.dev, column))


def test_pairs_are_connected_through_others():
    names = connect(["a", "b", "c", "d"], ["x", "x", "b", "y"])
    assert names[0] == names[1] == names[2] != names[3]


def test_the_tenth_of_a_group_depends_on_names_and_sizes_alone():
    groups = [f"group {row % 30}" for row in range(300)]
    parts = number_parts(groups)
    assert np.bincount(parts).tolist() == [30] * 10
    backwards = number_parts(groups[::-1])[::-1]
    assert parts.tolist() == backwards.tolist()


def test_data_that_hangs_together_is_refused_with_what_to_do():
    with pytest.raises(UserError, match=r"tenth 5 of 60 pairs, which fall into 1 sets that share no text or query, has 0 pairs"):
        rotate_dev(make_task(shared=60), 5)


def test_a_tenth_with_a_single_label_is_refused():
    task = make_task()
    alike = replace(task, train=replace(task.train, label=np.zeros(45)), dev=replace(task.dev, label=np.zeros(15)))
    with pytest.raises(UserError, match=r"has 6 pairs, all labelled 0: take another seed"):
        rotate_dev(alike, 1)
    assert len(rotate_dev(replace(alike, kind="retrieval"), 1).dev) == 6
