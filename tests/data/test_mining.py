"""Hard negatives: those of sentence-transformers for the same settings, and none that is a right answer."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers.util import mine_hard_negatives
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.data.mining import Lexical, Wanted, mine_negatives, rank_by, rank_by_words
from pairtune.data.own_tables import read_pairs
from pairtune.data.pairs import PairSet
from pairtune.errors import UserError
from small import sentence


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(3)
    left = [f"{sentence(rng)} {row}" for row in range(40)]
    left += left[:5]  # five queries have a second answer
    right = [f"{' '.join(text.split()[:3])} {sentence(rng)}" for text in left]
    return left, right, [f"{sentence(rng)} {row}" for row in range(60)]


def negatives_by_pair(mined):
    return {
        (left, right): list(others)
        for left, right, others in zip(mined.pairs.left, mined.pairs.right, mined.pairs.negatives, strict=True)
    }


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"count": 2}, {"num_negatives": 2}),
        ({"count": 3, "skip": 2, "ranks": 12}, {"num_negatives": 3, "range_min": 2, "range_max": 12}),
        ({"count": 2, "relative_margin": 0.05}, {"num_negatives": 2, "relative_margin": 0.05}),
        ({"count": 1, "absolute_margin": 0.1}, {"num_negatives": 1, "absolute_margin": 0.1}),
        ({"count": 2, "highest": 0.85, "lowest": 0.5}, {"num_negatives": 2, "max_score": 0.85, "min_score": 0.5}),
    ],
)
@pytest.mark.parametrize("with_corpus", [False, True])
def test_the_negatives_are_those_of_sentence_transformers(tiny_model, texts, ours, theirs, with_corpus):
    left, right, corpus = texts
    extra = corpus if with_corpus else None
    dataset = Dataset.from_dict({"left": left, "right": right})
    expected = mine_hard_negatives(dataset, tiny_model, corpus=extra, output_format="n-tuple", verbose=False, **theirs)
    columns = [name for name in expected.column_names if name.startswith("negative")]
    wanted = {(row["left"], row["right"]): [row[name] for name in columns] for row in expected}
    mined = mine_negatives(PairSet.of(left, right), Wanted(**ours), rank_by(tiny_model), corpus=extra)
    assert negatives_by_pair(mined) == wanted and mined.short == len(left) - len(wanted)


def test_scores_are_cosines_and_keep_the_margin(tiny_model, texts):
    left, right, _ = texts
    mined = mine_negatives(PairSet.of(left, right), Wanted(2, relative_margin=0.1), rank_by(tiny_model))
    encoded = tiny_model.encode([*mined.pairs.left, *mined.pairs.right], normalize_embeddings=True)
    own = (encoded[: len(mined.pairs)] * encoded[len(mined.pairs) :]).sum(axis=1)
    np.testing.assert_allclose(mined.score, own, atol=1e-5)
    assert (mined.negative_score <= 0.9 * mined.score[:, None] + 1e-6).all() and (np.diff(mined.negative_score) <= 0).all()


def test_neither_a_right_answer_nor_the_query_itself_is_a_negative():
    pairs = PairSet.of(["red stone", "red stone", "blue river"], ["red stone wall", "a red stone", "blue river bed"])
    mined = mine_negatives(pairs, Wanted(1), rank_by_words, corpus=["red stone", "red stone and river", "blue"])
    assert negatives_by_pair(mined)["red stone", "a red stone"] == ["red stone and river"]


def test_negative_pairs_get_no_negatives_and_no_positive_is_refused():
    pairs = PairSet.of(["a b", "a b"], ["a c", "b d"], [1, 0])
    assert negatives_by_pair(mine_negatives(pairs, Wanted(1), rank_by_words, corpus=["b e"])) == {("a b", "a c"): ["b e"]}
    with pytest.raises(UserError, match="no pair is positive"):
        mine_negatives(PairSet.of(["a"], ["b"], [0]), Wanted(1), rank_by_words)
    with pytest.raises(UserError, match=r"no pair has enough negatives \(1\) within the limits"):
        mine_negatives(PairSet.of(["a b"], ["a c"]), Wanted(1, highest=-1), rank_by_words, corpus=["b", "c", "d"])


def test_a_cross_encoder_has_the_last_word():
    pairs = PairSet.of(["red stone"], ["a red stone"])
    corpus = ["red stone wall", "stone", "red"]

    def short_first(left, right):
        return -np.array([len(text) for text in right], float)

    by_length = mine_negatives(pairs, Wanted(1, ranks=4), rank_by_words, corpus=corpus, rescore=short_first)
    assert by_length.pairs.negatives == (("red",),) and by_length.negative_score.tolist() == [[-3]]


def test_bm25_is_the_sum_of_its_formula():
    corpus = ["the cat sat", "a cat and a cat", "dogs"]
    lexical = Lexical(["cat the"], corpus)
    mean = (3 + 5 + 1) / 3

    def weight(frequency, length, holding):
        rarity = math.log(1 + (3 - holding + 0.5) / (holding + 0.5))
        return rarity * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length / mean))

    expected = [weight(1, 3, 2) + weight(1, 3, 1), weight(2, 5, 2), 0]
    scores, places = lexical.rank(3)
    assert places.tolist() == [[0, 1, 2]] and scores[0].tolist() == pytest.approx(expected)
    assert lexical.score(np.array([0, 0]), np.array([1, 0])).tolist() == pytest.approx([expected[1], expected[0]])


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_what_is_mined_is_read_as_columns_of_negatives(tmp_path, texts, ending):
    left, right, _ = texts
    (tmp_path / "p.csv").write_text("query,answer\n" + "\n".join(f"{a},{b}" for a, b in zip(left, right, strict=True)))
    out = tmp_path / f"mined.{ending}"
    result = CliRunner().invoke(app, ["mine", "bm25", str(out), "--data", str(tmp_path / "p.csv"), "--count", "2", "--json"])
    assert result.exit_code == 0, result.output
    task = read_pairs(test=out)
    assert len(task.test) == json.loads(result.stdout)["pairs"] and {len(row) for row in task.test.negatives} == {2}
    answers = set(zip(left, right, strict=True))
    assert not any((one, other) in answers for one, row in zip(task.test.left, task.test.negatives, strict=True) for other in row)


def test_texts_without_a_word_are_not_ranked_by_words():
    pairs = PairSet.of([f"what is {row} of them" for row in range(12)], ["★" * (row + 1) for row in range(12)])
    with pytest.raises(UserError, match=r"no text of the corpus has a word .*: use an encoder instead, such as minilm"):
        mine_negatives(pairs, Wanted(1), rank_by_words)
