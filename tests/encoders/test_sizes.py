"""Smaller embeddings: losses over several dimensions, and what fewer numbers and fewer bits score."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer, quantize_embeddings
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, CosineSimilarityLoss, MatryoshkaLoss, TripletLoss
from sentence_transformers.util.quantization import semantic_search_faiss
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.encoders.embedding import Embeddings, encode
from pairtune.encoders.loading import load_encoder
from pairtune.encoders.sizes import Smaller
from pairtune.errors import UserError
from pairtune.report.page import write_report
from pairtune.runs.recipe import LossSettings
from pairtune.sbert.evaluator import evaluate_sizes, evaluate_task
from pairtune.sbert.losses import BatchSoftmaxLoss, build_loss
from pairtune.serve.matcher import load_matcher
from pairtune.training import run
from small import WORDS, small_pairs, small_recipe

DIMENSIONS = [384, 128, 32]
PAIRS = small_pairs(12, 5)
LABELS = torch.tensor(PAIRS.label, dtype=torch.float32)


@pytest.fixture(scope="module")
def encoder(tiny_encoder):
    return load_encoder(tiny_encoder, 16, "cpu").eval()


def columns(model, count=2):
    return [model.preprocess(list(side)) for side in (PAIRS.left, PAIRS.right, PAIRS.right[::-1])[:count]]


def gradient(model, loss):
    loss.backward()
    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    model.zero_grad()
    return found


@pytest.mark.parametrize("kind", ["bsc", "combo", "cosent", "pearson", "mse", "triplet"])
@pytest.mark.parametrize("part", [0, 5])
def test_a_loss_over_dimensions_is_that_of_the_host(encoder, kind, part):
    if part and kind in ("mse", "triplet"):
        pytest.skip("the host has no cached form of it")
    settings = LossSettings(kind=kind, mini_batch_size=part)
    plain: dict[str, object] = {"cosent": CoSENTLoss, "mse": CosineSimilarityLoss}
    own = plain[kind](encoder) if kind in plain and not part else build_loss(encoder, settings)
    own = TripletLoss(encoder, triplet_margin=0.5) if kind == "triplet" else own
    labels, count = (None, 3) if kind == "triplet" else (LABELS, 2)
    theirs = MatryoshkaLoss(encoder, own, DIMENSIONS)(columns(encoder, count), labels)
    ours = build_loss(encoder, settings, dimensions=DIMENSIONS)(columns(encoder, count), labels)
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), abs=1e-5)
    torch.testing.assert_close(gradient(encoder, ours), gradient(encoder, theirs), atol=1e-5, rtol=1e-3)


def test_embeddings_that_are_cut_stay_raw_where_the_loss_asks_for_that():
    left, right = (torch.randn(6, 8, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    losses = [
        BatchSoftmaxLoss(SentenceTransformer(modules=[torch.nn.Identity()], device="cpu"), normalize="none", dimensions=sizes)
        for sizes in ((), (8, 2))
    ]
    whole, both = (loss.compute_loss_from_embeddings([left, right]) for loss in losses)
    cut = losses[0].compute_loss_from_embeddings([left[:, :2], right[:, :2]])
    assert float(both) == pytest.approx(float(whole + cut), abs=1e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_encoder, small_task):
    """A run over three dimensions."""
    recipe = small_recipe(tiny_encoder, train={"dimensions": DIMENSIONS, "epochs": 1})
    return run(recipe, 1, out=tmp_path_factory.mktemp("sizes") / "run", task=small_task, checkpoints=False)


def test_a_run_records_what_each_size_scores_on_dev(trained, small_task):
    found = {(size.dimension, size.precision): size for size in trained.sizes}
    assert list(found) == [(dimension, precision) for dimension in DIMENSIONS for precision in ("float32", "int8", "binary")]
    assert found[384, "float32"].scores["Spearman"] == pytest.approx(trained.after["dev"]["Spearman"], abs=1e-6)
    assert [size.bytes for size in trained.sizes[:3]] == [1536, 384, 48]
    model = SentenceTransformer(trained.model, device="cpu", truncate_dim=32)
    cut = evaluate_task(model, small_task, ["dev"])["dev"]["Spearman"]
    assert found[32, "float32"].scores["Spearman"] == pytest.approx(cut, abs=1e-6)


def test_the_report_shows_the_score_of_every_size(trained, tmp_path):
    page = write_report([Path(trained.model).parent], tmp_path / "report.html").read_text()
    for size in trained.sizes:
        assert f'<td>{size.dimension}</td><td class="text">{size.precision}</td><td>{size.bytes:,}</td>' in page
        assert f"<td>{size.scores['Spearman']:.4f}</td>" in page


@pytest.mark.parametrize(("precision", "codes", "apart"), [("int8", "uint8", 0.005), ("binary", "ubinary", 1e-6)])
def test_rounded_vectors_score_as_in_the_search_of_the_host(encoder, precision, codes, apart):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(120)]
    cut = encode(SentenceTransformer(modules=list(encoder), device="cpu", truncate_dim=64), texts)
    smaller = Smaller(Embeddings(encoder), 64, precision, calibration=texts)
    scores = smaller(texts[:4]) @ smaller(texts).T
    options = {"corpus_precision": codes, "calibration_embeddings": cut, "top_k": 120, "rescore": precision == "int8"}
    ranges = np.vstack([cut.min(axis=0), cut.max(axis=0)])
    stored = quantize_embeddings(cut, codes, ranges=ranges)
    found, _ = semantic_search_faiss(cut[:4], corpus_embeddings=stored, ranges=ranges, **options)
    for row, hits in zip(scores, found, strict=True):
        for hit in hits:  # of bits, the host counts those that differ
            theirs = hit["score"] if precision == "int8" else 1 - 2 * hit["score"] / 64
            assert row[hit["corpus_id"]] == pytest.approx(theirs, abs=apart)


def test_whole_embeddings_are_only_one_of_the_sizes(encoder, small_task):
    sizes = evaluate_sizes(encoder, small_task, "test", [384, 16], ["float32"])
    assert sizes[0].scores == pytest.approx(evaluate_task(encoder, small_task, ["test"])["test"], abs=1e-6)
    assert sizes[1].scores["Pearson"] < sizes[0].scores["Pearson"]


def run_command(*words):
    result = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_commands_take_a_dimension(tiny_encoder, tmp_path):
    texts = ["stone bridge over the river", "silver needle", "a cloud"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    out = run_command("search", tiny_encoder, tmp_path / "texts.txt", "a bridge of stone", "--dimension", 48, "--json")
    vectors = encode(SentenceTransformer(tiny_encoder, device="cpu", truncate_dim=48), ["a bridge of stone", texts[0]])
    assert vectors.shape == (2, 48)
    assert json.loads(out)["matches"][0] == {"score": pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5), "text": texts[0]}
    rows = zip(PAIRS.left, PAIRS.right, PAIRS.label, strict=True)
    (tmp_path / "pairs.csv").write_text("q,a,y\n" + "".join(f"{left},{right},{label}\n" for left, right, label in rows))
    words = ["evaluate", tiny_encoder, "--data", tmp_path / "pairs.csv", "--left=q", "--right=a", "--label=y"]
    sizes = json.loads(run_command(*words, "--dimension", 64, "--quantize", "--json"))
    assert [(size["dimension"], size["precision"]) for size in sizes][::3] == [(384, "float32"), (64, "float32")]
    assert "binary" in run_command(*words, "--quantize")
    (served,) = load_matcher(tiny_encoder, tmp_path / "texts.txt", dimension=48).models
    assert served.index.faiss.d == 48


def test_an_exported_model_gives_the_smaller_embeddings_by_itself(tiny_encoder, tmp_path):
    assert "lowest cosine 1.0" in run_command("export", tiny_encoder, tmp_path / "out", "--dimension", 48)
    texts = ["another text", "than the ones that were checked"]
    found = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    expected = SentenceTransformer(tiny_encoder, device="cpu", truncate_dim=48).encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_dimension_that_is_not_there_is_refused_before_training(tiny_encoder, small_task, tmp_path):
    with pytest.raises(UserError, match=r"train\.dimensions is 512; embeddings of this encoder have 384 numbers: give 1 to 384"):
        run(small_recipe(tiny_encoder, train={"dimensions": [512, 64]}), 1, out=tmp_path / "run", task=small_task)
    assert not (tmp_path / "run").exists()
