"""Filled queries, against a plain count of words and by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairtune.data.negatives import check_filling, fill_dev, fill_queries
from pairtune.data.pairs import PairSet, Task
from pairtune.errors import UserError
from small import WORDS, small_pairs, small_recipe

QUESTIONS = ["why is the sky blue", "how to bake bread", "what is a black hole"]
ANSWERS = [
    ["light scatters in the air", "to know, ask a pilot about the sky"],
    ["mix flour and water", "the bread needs a hot oven", "how hot is up to you"],
    ["a star that fell into itself", "a hole in my sock is black", "the sky has many"],
]


def make_pairs():
    left = [question for question, own in zip(QUESTIONS, ANSWERS, strict=True) for _ in own]
    right = [answer for own in ANSWERS for answer in own]
    grade = np.array([4, 3, 4, 4, 2, 4, 1, 2])
    names = [f"question {QUESTIONS.index(text)}" for text in left]
    return PairSet.of(left, right, (grade - 1) / 3, query=names, grade=grade)


def make_task(pairs, kind="ranking"):
    return Task("made", kind, pairs, pairs, pairs, "MRR", ("MRR",), notes=("dev: all of it",))


def fill(pairs, count):
    check_filling(make_task(pairs), pairs, count, "train.candidates")
    return fill_queries(pairs, count)


def split(filled, given):
    """The given pairs and the others, each in order."""
    known = set(zip(given.left, given.right, strict=True))
    mine = np.array([pair in known for pair in zip(filled.left, filled.right, strict=True)])
    return filled.take(mine), filled.take(~mine)


def plain_cosine(left, right, pool):
    """Words weighed by how few texts of the pool have them, as scikit-learn documents its TF-IDF."""
    found = Counter(word for text in pool for word in set(text.split()))
    weights = {word: math.log((1 + len(pool)) / (1 + count)) + 1 for word, count in found.items()}
    one, other = ({word: n * weights[word] for word, n in Counter(t.split()).items() if word in weights} for t in (left, right))
    dot = sum(value * other.get(word, 0.0) for word, value in one.items())
    return dot / math.sqrt((sum(v * v for v in one.values()) or 1.0) * (sum(v * v for v in other.values()) or 1.0))


def test_the_given_pairs_keep_their_order_and_each_query_has_what_was_asked_for():
    pairs = make_pairs()
    filled = fill(pairs, 5)
    given, _ = split(filled, pairs)
    assert (given.left, given.right) == (pairs.left, pairs.right)
    assert given.label.tolist() == pairs.label.tolist() and given.grade.tolist() == pairs.grade.tolist()
    assert filled.query.tolist() == [f"question {number}" for number in range(3) for _ in range(5)]  # a query's stay together
    assert all(QUESTIONS[int(name.split()[1])] == left for name, left in zip(filled.query, filled.left, strict=True))


def test_the_texts_that_share_most_words_come_first():
    pairs = make_pairs()
    _, others = split(fill(pairs, 4), pairs)
    added = {}
    for left, right in zip(others.left, others.right, strict=True):
        added.setdefault(left, []).append(right)
    for question, own in zip(QUESTIONS, ANSWERS, strict=True):
        others = [text for text in pairs.right if text not in own]
        ranked = sorted(others, key=lambda text: -plain_cosine(question, text, pairs.right))
        assert added[question] == ranked[: 4 - len(own)]
    assert added[QUESTIONS[0]][0] == "the sky has many"


def test_what_is_added_has_label_0_and_the_lowest_grade():
    pairs = make_pairs()
    _, added = split(fill(pairs, 5), pairs)
    assert set(added.label) == {0.0} and set(added.grade) == {1.0}
    better = pairs.take(pairs.grade >= 2)  # nobody has grade 1 now, and 1 is still what label 0 means
    assert split(fill(better, 4), better)[1].grade == pytest.approx(1.0)
    good = PairSet.of(["a", "b"], ["x", "y"])
    assert fill(good, 2).grade.tolist() == fill(good, 2).label.tolist() == [1.0, 0.0, 1.0, 0.0]
    three = PairSet.of(["a", "a", "b"], ["x", "y", "z"], [0, 0, 1], grade=[1, 0, 2])  # two grades count as negative
    assert split(fill(three, 3), three)[1].grade.tolist() == [0, 0, 0]


def test_queries_that_have_enough_stay_as_they_are():
    pairs = make_pairs()
    assert Counter(fill(pairs, 3).query) == {"question 0": 3, "question 1": 3, "question 2": 3}
    same = fill(pairs, 2)
    assert (same.left, same.right) == (pairs.left, pairs.right)


def test_two_queries_with_the_same_left_text_do_not_fill_each_other():
    pairs = PairSet.of(["why", "why", "how"], ["because", "so it is", "like this"], [1, 1, 0], query=["1", "2", "3"])
    with pytest.raises(
        UserError, match=r"query '1' has 1 of them, and the other queries have only 1 that it has not: set it to 2"
    ):
        fill(pairs, 3)
    assert fill(pairs, 2).right[:4] == ("because", "like this", "so it is", "like this")


def test_a_query_is_not_filled_with_its_own_text():
    pairs = PairSet.of(["how to bake", "how to boil", "how to fry"], ["how to boil", "how to bake", "in oil"])
    filled = fill(pairs, 2)
    assert not any(left == right for left, right in zip(filled.left, filled.right, strict=True))


def test_names_of_queries_may_be_numbers():
    pairs = PairSet.of(["a", "b"], ["x", "y"], query=np.array([1, 2], dtype=object))
    assert fill(pairs, 2).query.tolist() == [1, 1, 2, 2]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(WORDS)), min_size=8, max_size=30, unique=True), st.randoms())
def test_the_order_of_the_pairs_does_not_matter(rows, random):
    def filled_of(rows):
        pairs = PairSet.of([f"{WORDS[q]} {WORDS[q + 1]}" for q, _ in rows], [f"the {word}" for _, word in rows])
        filled = fill(pairs, 2)
        return Counter(zip(filled.left, filled.right, filled.label.tolist(), strict=True))

    if len({word for _, word in rows}) < 8:  # then some query may have too few others
        return
    mixed = list(rows)
    random.shuffle(mixed)
    assert filled_of(mixed) == filled_of(rows)


def test_texts_without_words_can_be_filled():
    pairs = PairSet.of(["?", "!"], ["…", "+"])
    assert fill(pairs, 2).right == ("…", "+", "+", "…")
    nothing = pairs.take([])
    assert len(fill(nothing, 2)) == 0


def test_only_a_ranking_can_be_filled():
    with pytest.raises(
        UserError, match="dev_candidates = 5: task made is a regression, and only the queries of a ranking can be filled: leave"
    ):
        fill_dev(make_task(make_pairs(), "regression"), 5)


def test_dev_is_filled_and_says_so():
    task = fill_dev(make_task(make_pairs()), 4)
    assert len(task.dev) == 12 and len(task.train) == len(task.test) == 8
    assert task.notes[-1] == "dev: filled with right texts of other queries, to 4 for each query, 8 to 12 pairs"


def test_a_recipe_fills_what_it_trains_and_is_selected_on(tmp_path, tiny_encoder):
    from pairtune.training import run

    recipe = small_recipe(tiny_encoder, train={"candidates": 5, "epochs": 1}, dev_candidates=6)
    record = run(recipe, 1, out=tmp_path / "run", task=ranking(), keep_model=False, checkpoints=False)
    assert record.pairs == {"train": 24 * 5, "dev": 12 * 6, "test": 24}
    assert record.notes[-1].endswith("24 to 72 pairs")


def ranking():
    splits = [small_pairs(count, seed) for count, seed in ((48, 1), (24, 2), (24, 3))]
    return Task("small", "ranking", *splits, "MRR", ("MRR", "P@1"))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"candidates": 8000}, "train.candidates = 8000: query '.*' has 2 of them"),
        ({"candidates": 8, "positives_only": True}, "train.positives_only = true keeps only the positives of them: set one"),
        ({"candidates": 8, "negatives": "logarithmic"}, 'train.negatives = "logarithmic" keeps only the positives of them'),
    ],
)
def test_what_cannot_be_filled_is_refused_before_anything_is_lost(tmp_path, tiny_encoder, train, message):
    from pairtune.training import run

    done = tmp_path / "run" / "record.json"
    done.parent.mkdir()
    (done.parent / "recipe.json").write_text("{}")
    done.write_text("{}")
    with pytest.raises(UserError, match=message):
        run(small_recipe(tiny_encoder, train=train), 1, out=done.parent, task=ranking(), overwrite=True)
    assert done.exists()
