"""Prompts are the same wherever a text is read: in training, evaluation, search, and in the saved model."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.data.pairs import PairSet, Task, add_prompts, leave_some_plain
from pairtune.encoders.embedding import encode
from pairtune.encoders.prompts import MARKS, Prompts, Sides, choose_prompts, own_prompts
from pairtune.errors import UserError
from pairtune.runs.toml import make_recipe, read_recipe, to_toml
from pairtune.serve.matcher import Question, load_matcher
from pairtune.training import run
from small import WORDS, small_recipe

QUERIES = [f"where is the {word}" for word in WORDS]
ANSWERS = [f"the {word} is here" for word in WORDS]


@pytest.fixture(scope="module")
def asking_encoder(tmp_path_factory, tiny_encoder):
    """An encoder whose config has prompts for queries and passages."""
    model = SentenceTransformer(tiny_encoder, device="cpu")
    model.prompts = {"query": "query: ", "passage": "passage: "}
    folder = tmp_path_factory.mktemp("prompts") / "encoder"
    model.save_pretrained(str(folder))
    return str(folder)


def call(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def cosines(model, left, right):
    named = zip((left, right), ("query", "passage"), strict=True)
    sides = [model.encode(texts, prompt_name=name, normalize_embeddings=True) for texts, name in named]
    return (sides[0] * sides[1]).sum(axis=1)


def test_score_uses_the_prompts_of_the_models_own_config(asking_encoder):
    expected = cosines(SentenceTransformer(asking_encoder, device="cpu"), QUERIES[:1], ANSWERS[:1])
    found = call("score", asking_encoder, "--left", QUERIES[0], "--right", ANSWERS[0])
    assert float(found.stdout) == pytest.approx(expected[0], abs=1e-5)
    assert "left texts begin with 'query: ', right texts with 'passage: '" in found.stderr
    other = call("score", asking_encoder, "--left", QUERIES[0], "--right", ANSWERS[0], "--left-prompt", "", "--right-prompt", "")
    plain = SentenceTransformer(asking_encoder, device="cpu").encode([QUERIES[0], ANSWERS[0]], normalize_embeddings=True)
    assert float(other.stdout) == pytest.approx(float(plain[0] @ plain[1]), abs=1e-5) != pytest.approx(expected[0], abs=1e-4)


def test_search_finds_what_the_host_finds_with_prompts(tmp_path, asking_encoder):
    (tmp_path / "corpus.txt").write_text("\n".join(ANSWERS))
    found = json.loads(call("search", asking_encoder, tmp_path / "corpus.txt", QUERIES[3], "--top", "12", "--json").stdout)
    expected = cosines(SentenceTransformer(asking_encoder, device="cpu"), [QUERIES[3]] * 12, ANSWERS)
    assert {match["text"]: match["score"] for match in found["matches"]} == {
        text: pytest.approx(value, abs=1e-5) for text, value in zip(ANSWERS, expected, strict=True)
    }


def test_evaluate_scores_with_the_prompts(tmp_path, asking_encoder):
    labels = [(row * 7) % 5 for row in range(12)]
    rows = [f"{left},{right},{label}" for left, right, label in zip(QUERIES, ANSWERS, labels, strict=True)]
    (tmp_path / "p.csv").write_text("left,right,label\n" + "\n".join(rows))
    words = ["evaluate", asking_encoder, "--data", tmp_path / "p.csv", "--json"]
    model = SentenceTransformer(asking_encoder, device="cpu")
    asked = model.encode([f"query: {text}" for text in (*QUERIES, *ANSWERS)], normalize_embeddings=True)
    expected = np.corrcoef((asked[:12] * asked[12:]).sum(axis=1), labels)[0, 1]
    assert json.loads(call(*words).stdout)["Pearson"] == pytest.approx(expected, abs=1e-4), "alike: both are queries"
    other = json.loads(call(*words, "--left-prompt", "query: ", "--right-prompt", "passage: ").stdout)["Pearson"]
    assert other == pytest.approx(np.corrcoef(cosines(model, QUERIES, ANSWERS), labels)[0, 1], abs=1e-4)


def test_serving_reads_texts_with_the_prompts_that_are_given(tmp_path, asking_encoder, tiny_encoder):
    (tmp_path / "corpus.txt").write_text("\n".join(ANSWERS))
    given = {"left": "ask: ", "right": "say: "}
    matcher = load_matcher(asking_encoder, tmp_path / "corpus.txt", original=tiny_encoder, prompts=given)
    (answer,) = matcher.answer([Question((QUERIES[3], ANSWERS[2]), top=12)])
    for served in matcher.models:  # both encoders, whatever their own prompts are
        asked = served.model.encode(["ask: " + QUERIES[3]], normalize_embeddings=True)[0]
        expected = served.model.encode(["say: " + text for text in ANSWERS], normalize_embeddings=True) @ asked
        found = {text: score for score, text in answer.matches[served.name]}
        np.testing.assert_allclose([found[text] for text in ANSWERS], expected, atol=1e-5)
        left, right = answer.vectors[served.name]
        assert float(left @ right) == pytest.approx(expected[2], abs=1e-5)


def test_the_command_that_serves_hands_over_the_prompts(monkeypatch, asking_encoder):
    seen = []
    monkeypatch.setattr("pairtune.serve.server.load_matcher", lambda *given: seen.append(given) or sys.exit(0))
    CliRunner().invoke(app, ["serve", asking_encoder, "--port", "0", "--left-prompt", "ask: "])
    CliRunner().invoke(app, ["serve", asking_encoder, "--port", "0"])
    assert [given[-1] for given in seen] == [{"left": "ask: ", "right": ""}, {}]


@pytest.mark.parametrize(("labels", "right"), [((0, 1), "query: "), ((1, 1), "passage: ")])
def test_mining_reads_the_right_texts_as_evaluation_does(tmp_path, asking_encoder, labels, right):
    rows = [f"{left},{other},{labels[row % 2]}" for row, (left, other) in enumerate(zip(QUERIES, ANSWERS, strict=True))]
    (tmp_path / "p.csv").write_text("left,right,label\n" + "\n".join(rows))
    out = tmp_path / "mined.jsonl"
    call("mine", asking_encoder, out, "--data", tmp_path / "p.csv", "--count", "1", "--margin", "-1")
    first = json.loads(out.read_text().splitlines()[0])
    model = SentenceTransformer(asking_encoder, device="cpu")
    texts = [f"query: {first['left']}", f"{right}{first['right']}"]
    both = model.encode(texts, normalize_embeddings=True)
    assert first["right_score"] == pytest.approx(float(both[0] @ both[1]), abs=1e-5)


def test_a_trained_model_keeps_its_prompts_and_scores_as_its_record_says(tmp_path, tiny_encoder):
    pairs = PairSet.of(QUERIES, ANSWERS, corpus=ANSWERS, negatives=[[text] for text in reversed(ANSWERS)])
    task = Task("small", "retrieval", pairs, pairs, pairs, "MRR", ("MRR", "HP@1"))
    prompts = {"left": "ask: ", "right": "say: "}
    record = run(
        small_recipe(tiny_encoder, loss={"kind": "bsc"}, prompts=prompts), 1, out=tmp_path / "run", task=task, checkpoints=False
    )
    model = SentenceTransformer(record.model, device="cpu")
    assert (model.prompts["query"], model.prompts["document"]) == ("ask: ", "say: ")
    scores = model.encode_query(QUERIES, normalize_embeddings=True) @ model.encode_document(ANSWERS, normalize_embeddings=True).T
    ranks = 1 + (scores > scores.diagonal()[:, None]).sum(axis=1)
    assert record.after["test"]["MRR"] == pytest.approx((1 / ranks).mean(), abs=1e-4)


def test_every_text_of_a_task_gets_its_prompt():
    pairs = PairSet.of(["a"], ["b"], corpus=["b", "c"], negatives=[["d"]], query=["q"])
    test = add_prompts(Task("t", "retrieval", pairs, pairs, pairs, "MRR", ("MRR",)), Prompts("l: ", "r: ")).test
    assert (test.left, test.right, test.corpus, test.negatives) == (("l: a",), ("r: b",), ("r: b", "r: c"), (("r: d",),))
    assert test.query.tolist() == ["q"]


def test_the_default_prompt_of_a_model_stands_before_both_sides(tiny_model):
    tiny_model.prompts = {"any": "text: "}
    tiny_model.default_prompt_name = "any"
    assert own_prompts(tiny_model) == Prompts("text: ", "text: ")
    assert encode(tiny_model, ["a"]).shape == (1, 384)


def test_a_model_that_does_not_pool_its_prompt_is_refused(tiny_model):
    tiny_model[1].include_prompt = False
    assert not choose_prompts(tiny_model, {})
    with pytest.raises(UserError, match="leaves prompts out of its pooling"):
        choose_prompts(tiny_model, {"left": "query: "})


def test_prompts_of_a_recipe_survive_its_file(tmp_path):
    recipe = make_recipe({"name": "mine", "prompts": {"left": 'say "x": ', "right": ""}})
    (tmp_path / "mine.toml").write_text(to_toml(recipe))
    assert read_recipe(str(tmp_path / "mine.toml")).prompts == recipe.prompts
    with pytest.raises(UserError, match="prompts"):
        make_recipe({"name": "mine", "prompts": {"query": "x"}})


def marked_run(tmp_path, tiny_encoder, answers=ANSWERS, **settings):
    pairs = PairSet.of([*QUERIES, *QUERIES], [*answers, *answers[1:], answers[0]], [1] * 12 + [0] * 12)
    task = Task("t", "ranking", pairs, pairs, pairs, "MAP", ("MAP",))
    recipe = small_recipe(tiny_encoder, mark_sides=True, **settings)
    return task, run(recipe, 1, out=tmp_path / "run", task=task, checkpoints=False)


def test_marked_sides_are_read_with_the_hosts_own_words(tmp_path, tiny_encoder):
    task, record = marked_run(tmp_path, tiny_encoder)
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    texts = task.test.left[0], task.test.right[0]
    np.testing.assert_allclose(model.encode_query(texts[0]), model.encode(f"question: {texts[0]}"), atol=1e-6)
    np.testing.assert_allclose(model.encode_document(texts[1]), model.encode(f"answer: {texts[1]}"), atol=1e-6)
    evaluated = json.loads(call("evaluate", tmp_path / "run" / "model", "--data", write_pairs(tmp_path, task), "--json").stdout)
    assert evaluated["MAP"] == pytest.approx(record.after["test"]["MAP"], abs=1e-6)
    assert "encode_query" in (tmp_path / "run" / "model" / "README.md").read_text()


def test_a_share_of_the_left_texts_is_left_unmarked_with_all_its_pairs():
    pairs = PairSet.of([*QUERIES, *QUERIES], [*ANSWERS, *ANSWERS[1:], ANSWERS[0]], [1] * 12 + [0] * 12)
    plain = Task("t", "ranking", pairs, pairs, pairs, "MAP", ("MAP",))
    marked = add_prompts(plain, MARKS)
    mixed = leave_some_plain(marked, plain, 0.5, np.random.default_rng(0))
    ways = {}
    for left, right, before in zip(mixed.train.left, mixed.train.right, plain.train.left, strict=True):
        assert left.startswith("question: ") == right.startswith("answer: ")
        ways.setdefault(before, set()).add(left != before)
    assert all(len(way) == 1 for way in ways.values()), "the pairs of a left text are read in one way"
    assert 0 < sum(way == {True} for way in ways.values()) < len(ways)
    assert mixed.dev is marked.dev and mixed.test is marked.test
    assert leave_some_plain(marked, plain, 1.0, np.random.default_rng(0)).train.left == marked.train.left


def test_training_with_half_the_marks_gives_another_model(tmp_path, tiny_encoder):
    _, whole = marked_run(tmp_path / "whole", tiny_encoder)
    _, half = marked_run(tmp_path / "half", tiny_encoder, mark_share=0.5)
    assert half.after != whole.after or half.epochs != whole.epochs
    with pytest.raises(UserError, match="mark_share"):
        make_recipe({"name": "mine", "mark_sides": True, "mark_share": 0})


def write_pairs(folder, task):
    rows = zip(task.test.left, task.test.right, task.test.label.astype(int), strict=True)
    path = folder / "pairs.csv"
    path.write_text("left,right,label\n" + "\n".join(f"{left},{right},{label}" for left, right, label in rows))
    return path


def test_an_encoder_that_marks_do_not_help_is_scored_and_kept_without_them(tmp_path, tiny_encoder):
    _, record = marked_run(tmp_path, tiny_encoder, answers=QUERIES, keep_original=True)  # found without training, all of them
    assert record.before["test"]["MAP"] == 1 and record.unchanged
    assert record.after == record.before
    assert not any(SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu").prompts.values())


def test_sides_of_one_sort_and_encoders_with_prompts_get_no_marks(asking_encoder, tiny_encoder):
    model, asking = (SentenceTransformer(folder, device="cpu") for folder in (tiny_encoder, asking_encoder))
    assert Sides(model, {}, alike=False, mark=True).trained == MARKS
    assert not Sides(model, {}, alike=True, mark=True).trained
    assert not Sides(model, {"left": "", "right": ""}, alike=False, mark=True).trained
    Sides(model, {}, alike=False, mark=True).keep()
    assert own_prompts(model, alike=True) == MARKS, "evaluated on pairs that look alike, a marked model still has two sides"
    assert own_prompts(asking, alike=True) == Prompts("query: ", "query: ")
    assert Sides(asking, {}, alike=False, mark=True).trained == Prompts("query: ", "passage: ")
