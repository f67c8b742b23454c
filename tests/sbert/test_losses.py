"""The losses as modules of sentence-transformers: a real encoder, the host's own trainer."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import (
    AnglELoss,
    CoSENTLoss,
    CosineSimilarityLoss,
    MatryoshkaLoss,
    TripletLoss,
)
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.loss import batch_softmax_loss
from pairtune.loss.pointwise import LISTS_WEIGHT, listwise_loss, pearson_loss
from pairtune.loss.terms import NORMALIZATIONS, text_ids
from pairtune.runs.recipe import LossSettings
from pairtune.sbert.losses import FURTHER_LOSSES, LOSSES, BatchSoftmaxLoss, ComboLoss, CosentLoss, PearsonLoss, build_loss

LEFT = [
    "How do I sort a list?",
    "How do I sort a list?",
    "Where is the nearest station, please?",
    "A cat sat on the mat.",
    "What is the capital of France?",
    "Rain.",
]
RIGHT = [
    "Call sorted on it.",
    "Use the sort method of the list.",
    "Two streets to the left, behind the church.",
    "A feline rested on a rug.",
    "Paris is the capital.",
    "It will be sunny tomorrow.",
]
LABELS = torch.tensor([1.0, 0.8, 0.6, 1.0, 0.9, 0.1])


@pytest.fixture(scope="module")
def encoder(tiny_encoder):
    """One encoder for all tests that do not change it; without dropout unless a test asks for it."""
    return SentenceTransformer(tiny_encoder, device="cpu").eval()


def features(model, left=LEFT, right=RIGHT):
    return [model.preprocess(list(left)), model.preprocess(list(right))]


def embeddings(model, left=LEFT, right=RIGHT):
    return [model(column)["sentence_embedding"] for column in features(model, left, right)]


def gradients(module):
    found = {name: parameter.grad.clone() for name, parameter in module.named_parameters() if parameter.grad is not None}
    module.zero_grad()
    return found


def assert_same_gradients(ours, theirs, atol=1e-5):
    assert ours.keys() == theirs.keys()
    assert any(gradient.abs().max() > 100 * atol for gradient in theirs.values())
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=atol, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


# --- what the modules compute ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_coordinates_that_an_encoder_does_not_use_leave_the_gradient_to_the_others(normalize):
    """all-MiniLM-L6-v2 has three: divided by their range of 1e-33, they once had all of the gradient, and clipping took it."""
    model = load_encoder("minilm", 32, "cpu")
    texts = ["how are you", "the quick brown fox", "yes no", "rain in the afternoon", "a large city"]
    first, second = (model(model.preprocess(part))["sentence_embedding"] for part in (texts, texts[::-1]))
    assert (first.amax(dim=0) - first.amin(dim=0)).min() < 1e-20
    batch_softmax_loss(first, second, temperature=1.0, normalize=normalize).backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert 1e-3 < norm < 1e3


def test_batch_softmax_loss_is_the_function_of_the_encoded_columns(encoder):
    settings = {"temperature": 0.07, "normalize": "range-batch", "positive_above": 0.6, "reduction": "mean", "directions": "left"}
    found = BatchSoftmaxLoss(encoder, **settings)(features(encoder), LABELS)
    torch.testing.assert_close(found, batch_softmax_loss(*embeddings(encoder), LABELS, **settings))


@pytest.mark.parametrize("pointwise", ["mse", "pearson", "cosent"])
def test_combo_weighs_bsc_and_the_pointwise_loss_of_raw_cosines_over_all_pairs(encoder, pointwise):
    loss = ComboLoss(encoder, mix=0.3, pointwise=pointwise, normalize="l2-batch")
    bsc = batch_softmax_loss(*embeddings(encoder), LABELS, normalize="l2-batch")
    others = {"mse": CosineSimilarityLoss(encoder), "pearson": PearsonLoss(encoder), "cosent": CoSENTLoss(encoder)}
    other = others[pointwise](features(encoder), LABELS)
    torch.testing.assert_close(loss(features(encoder), LABELS), 0.3 * bsc + 0.7 * other)


def test_lists_are_found_by_the_token_ids_of_the_left_texts(encoder):
    left = [LEFT[0], LEFT[2], LEFT[0].upper(), LEFT[2], LEFT[0], LEFT[3]]  # an uncased encoder reads both the same
    labels = torch.tensor([1.0, 0, 0.2, 1, 0, 1])
    pair = embeddings(encoder, left=left)
    expected = listwise_loss(*pair, labels, torch.tensor([0, 1, 0, 1, 0, 2]))
    expected = 0.9 * (pearson_loss(*pair, labels) + LISTS_WEIGHT * expected) + 0.1 * batch_softmax_loss(*pair, labels)
    loss = ComboLoss(encoder, mix=0.1, pointwise="pearson+listwise")
    torch.testing.assert_close(loss(features(encoder, left=left), labels), expected)
    with pytest.raises(UserError, match="must know which left texts are equal"):
        loss.compute_loss_from_embeddings(pair, labels)


def test_masking_finds_equal_texts_by_their_token_ids(encoder):
    right = [*RIGHT[:4], RIGHT[0].upper(), RIGHT[5]]  # an uncased encoder reads both the same
    ids = torch.tensor([0, 0, 1, 2, 3, 4]), torch.tensor([0, 1, 2, 3, 0, 4])
    expected = batch_softmax_loss(*embeddings(encoder, right=right), LABELS, duplicates="mask", left_ids=ids[0], right_ids=ids[1])
    loss = BatchSoftmaxLoss(encoder, duplicates="mask")
    torch.testing.assert_close(loss(features(encoder, right=right), LABELS), expected)
    with pytest.raises(UserError, match="needs left_ids and right_ids"):
        loss.compute_loss_from_embeddings(embeddings(encoder), LABELS)


def test_equal_token_ids_have_equal_numbers_in_any_batch_and_padding(encoder):
    texts = [*LEFT, *RIGHT, "sort list", "list sort"]
    together = text_ids(encoder.preprocess(texts))
    alone = torch.cat([text_ids(encoder.preprocess([text])) for text in texts])
    assert torch.equal(together, alone)
    assert len(together.unique()) == len(set(texts))

    padded = encoder.preprocess(texts)
    mask, tokens = padded["attention_mask"].bool(), padded["input_ids"]
    order = mask.int().argsort(dim=1, stable=True)  # padding first, then the tokens in their order
    left_padded = {"input_ids": tokens.gather(1, order), "attention_mask": mask.gather(1, order)}
    assert torch.equal(text_ids(left_padded), together)
    flat = {"input_ids": tokens[mask][None], "cu_seq_lens_q": torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))}
    assert torch.equal(text_ids(flat), together)
    bag = {"input_ids": tokens[mask], "offsets": flat["cu_seq_lens_q"][:-1]}
    assert torch.equal(text_ids(bag), together)


# --- cached mini-batches --------------------------------------------------------------------------------------------

CACHED = {
    "bsc": lambda model, **how: BatchSoftmaxLoss(model, learn_temperature=True, duplicates="mask", **how),
    "range": lambda model, **how: BatchSoftmaxLoss(model, temperature=1.2, normalize="range-batch", **how),
    "combo": lambda model, **how: ComboLoss(model, mix=0.4, learn_temperature=True, **how),
    "pearson": PearsonLoss,
    "lists": lambda model, **how: ComboLoss(model, pointwise="pearson+listwise", **how),
}


@pytest.mark.parametrize("name", CACHED)
def test_cached_mini_batches_have_the_loss_and_gradients_of_the_whole_batch(encoder, name):
    outcome = []
    for mini_batch_size in (0, 2):
        loss = CACHED[name](encoder, mini_batch_size=mini_batch_size)
        value = loss(features(encoder), LABELS)
        (value / 4).backward()  # as with four steps of accumulation: the scale must reach the temperature too
        outcome.append((value.detach(), gradients(loss)))
    (whole, whole_gradients), (cached, cached_gradients) = outcome
    torch.testing.assert_close(cached, whole, atol=1e-5, rtol=1e-5)
    assert_same_gradients(cached_gradients, whole_gradients)


def test_cached_mini_batches_replay_dropout(encoder):
    encoder.train()
    assert not torch.equal(embeddings(encoder)[0], embeddings(encoder)[0])
    loss = BatchSoftmaxLoss(encoder, mini_batch_size=2)
    torch.manual_seed(3)
    loss(features(encoder), LABELS).backward()
    cached = gradients(loss)

    torch.manual_seed(3)  # the same draws, in the same order, with one ordinary graph
    sides = []
    for texts in (LEFT, RIGHT):
        column = encoder.preprocess(texts)
        parts = [
            {key: value[begin : begin + 2] for key, value in column.items() if torch.is_tensor(value)} for begin in (0, 2, 4)
        ]
        for part in parts:
            part["attention_mask"] = part["attention_mask"]
            width = int(part["attention_mask"].sum(1).max())
            part.update({key: part[key][:, :width] for key in part if part[key].ndim == 2})
        sides.append(torch.cat([encoder(part)["sentence_embedding"] for part in parts]))
    batch_softmax_loss(*sides, LABELS).backward()
    encoder.eval()
    assert_same_gradients(cached, gradients(loss))


def test_no_gradient_is_asked_for_in_evaluation(encoder):
    with torch.no_grad():
        values = [BatchSoftmaxLoss(encoder, mini_batch_size=k, learn_temperature=True)(features(encoder), LABELS) for k in (0, 2)]
    torch.testing.assert_close(*values)
    assert not values[1].requires_grad


def test_matryoshka_of_the_host_wraps_the_cached_and_the_plain_loss(encoder):
    outcome = []
    for mini_batch_size in (0, 2):
        inner = BatchSoftmaxLoss(encoder, mini_batch_size=mini_batch_size, learn_temperature=True)
        loss = MatryoshkaLoss(encoder, inner, matryoshka_dims=[384, 64])
        loss(features(encoder), LABELS).backward()
        outcome.append(gradients(loss))
    assert_same_gradients(outcome[1], outcome[0])


# --- never NaN ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("mini_batch_size", [0, 1])
@pytest.mark.parametrize("case", ["one class", "no positive", "one pair", "one text"])
def test_poor_batches_give_finite_losses_and_gradients(encoder, name, mini_batch_size, case):
    left, right, labels = LEFT[:3], RIGHT[:3], LABELS[:3]
    if case == "one class":
        labels = torch.ones(3, dtype=torch.int64)
    elif case == "no positive":
        labels = torch.zeros(3)
    elif case == "one pair":
        left, right, labels = left[:1], right[:1], labels[:1]
    else:
        left = right = ["The same text."] * 3
    loss = CACHED[name](encoder, mini_batch_size=mini_batch_size)
    value = loss(features(encoder, left, right), labels)
    value.backward()
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(loss).values())


# --- the host's trainer ---------------------------------------------------------------------------------------------


def train(model, dataset, loss, folder, eval_dataset=None, **more):
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=3,
        num_train_epochs=1,
        learning_rate=1e-3,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=1,
        **more,
    )
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=dataset, eval_dataset=eval_dataset, loss=loss)
    trainer.train()
    return trainer


def losses_of(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("mini_batch_size", [0, 2])
def test_a_plain_script_trains_on_several_datasets_with_prompts(tiny_model, tmp_path, bf16, mini_batch_size):
    texts = {"question": LEFT, "answer": RIGHT}
    datasets = DatasetDict(
        ints=Dataset.from_dict({**texts, "label": [1, 1, 0, 1, 1, 0]}),
        floats=Dataset.from_dict({**texts, "score": LABELS.tolist()}),
        unlabelled=Dataset.from_dict(texts),
    )
    before = tiny_model[0].auto_model.embeddings.word_embeddings.weight.clone()
    loss = BatchSoftmaxLoss(tiny_model, duplicates="mask", mini_batch_size=mini_batch_size)
    prompts = {"question": "query: ", "answer": "text: "}
    trainer = train(tiny_model, datasets, loss, tmp_path, datasets["floats"], bf16=bf16, prompts=prompts, eval_strategy="epoch")
    assert len(losses_of(trainer)) == 6
    assert all(0 < value < 20 for value in losses_of(trainer))
    assert 0 < trainer.evaluate()["eval_loss"] < 20
    assert not torch.equal(before, tiny_model[0].auto_model.embeddings.word_embeddings.weight)


def test_a_dict_of_losses_and_the_model_card_cite_the_paper(tiny_model, tmp_path):
    dataset = Dataset.from_dict({"left": LEFT, "right": RIGHT, "label": LABELS.tolist()})
    losses = {"combo": ComboLoss(tiny_model), "pearson": PearsonLoss(tiny_model)}
    trainer = train(tiny_model, DatasetDict(combo=dataset, pearson=dataset), losses, tmp_path / "run")
    assert all(0 < value < 20 for value in losses_of(trainer))
    trainer.save_model(str(tmp_path / "model"))
    card = (tmp_path / "model" / "README.md").read_text()
    assert "Batch-Softmax Contrastive Loss for Pairwise Sentence Scoring Tasks" in card
    assert '"pointwise": "mse"' in card and '"normalize": "l2"' in card
    assert SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(["fine"]).shape == (1, 384)


@pytest.mark.parametrize(("loss", "columns", "message"), [
    (PearsonLoss, ["left", "right", "third"], "PearsonLoss takes two columns of texts, .* but the dataset has 3"),
    (BatchSoftmaxLoss, ["left"], "and any number of negatives, but the dataset has 1: choose them with select_columns"),
    (ComboLoss, ["left", "right"], "ComboLoss compares cosines with labels, but the dataset has none: add a column"),
    (PearsonLoss, ["left", "right"], "PearsonLoss compares cosines with labels, but the dataset has none"),
])  # fmt: skip
def test_a_dataset_of_the_wrong_columns_is_refused(tiny_model, tmp_path, loss, columns, message):
    dataset = Dataset.from_dict(dict.fromkeys(columns, LEFT))
    with pytest.raises(UserError, match=message):
        train(tiny_model, dataset, loss(tiny_model), tmp_path)


def test_embeddings_are_refused_as_columns_are(encoder):
    with pytest.raises(UserError, match="ComboLoss compares cosines with labels"):
        ComboLoss(encoder).compute_loss_from_embeddings(embeddings(encoder))
    with pytest.raises(UserError, match="takes two columns of texts"):
        PearsonLoss(encoder).compute_loss_from_embeddings([torch.ones(2, 2)] * 3)


def test_a_missing_label_is_refused(encoder):
    labels = torch.tensor([1.0, 1.0, float("nan"), 0, 0, 0])
    with pytest.raises(UserError, match="the label of pair 2 of the batch is NaN"):
        PearsonLoss(encoder)(features(encoder), labels)


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "message"), [
    (lambda model: BatchSoftmaxLoss(model, normalize="l1"), "unknown normalize 'l1'; known: l2, "),
    (lambda model: BatchSoftmaxLoss(model, temperature=-1), "temperature is -1"),
    (lambda model: BatchSoftmaxLoss(model, temperature=20, learn_temperature=True), "a learned one stays between 0.001 and 10"),
    (lambda model: BatchSoftmaxLoss(model, mini_batch_size=-1), "mini_batch_size is -1; give the number of texts"),
    (lambda model: ComboLoss(model, mix=1.5), "mix is 1.5; μ weighs the two losses"),
    (lambda model: ComboLoss(model, pointwise="mae"), "unknown pointwise 'mae'; known: mse, pearson"),
])  # fmt: skip
def test_bad_settings_are_refused_before_training(encoder, make, message):
    with pytest.raises(UserError, match=message):
        make(encoder)


def test_a_static_embedding_trains_whole_but_not_in_mini_batches(encoder):
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)], device="cpu")
    assert BatchSoftmaxLoss(static, duplicates="mask")(features(static), LABELS).isfinite()
    with pytest.raises(UserError, match="mini_batch_size splits batches by rows, which a StaticEmbedding does not have"):
        BatchSoftmaxLoss(static, mini_batch_size=2)


def test_every_kind_of_a_recipe_builds_its_loss(encoder):
    kinds = get_args(LossSettings.model_fields["kind"].annotation)
    assert sorted(LOSSES) == sorted(kinds)
    classes = {
        "bsc": BatchSoftmaxLoss,
        "combo": ComboLoss,
        "pearson": PearsonLoss,
        "cosent": CosentLoss,
        "mse": CosineSimilarityLoss,
        "triplet": TripletLoss,
        "host": AnglELoss,
    }
    for kind in kinds:
        host = {"host": "AnglELoss"} if kind == "host" else {}
        assert type(build_loss(encoder, LossSettings(kind=kind, **host))) is classes[kind]
    assert build_loss(encoder, LossSettings(kind="triplet", margin=0.6)).triplet_margin == 0.6


def test_the_settings_of_a_recipe_reach_the_loss(encoder):
    chosen = {
        "temperature": 0.07,
        "learn_temperature": True,
        "normalize": "range-batch",
        "positive_above": 0.6,
        "reduction": "mean",
        "directions": "right",
        "duplicates": "mask",
        "mix": 0.9,
        "pointwise": "pearson",
        "mini_batch_size": 4,
    }
    config = build_loss(encoder, LossSettings(kind="combo", **chosen)).get_config_dict()
    assert config.pop("gather_across_devices") is True
    assert config == {**chosen, "temperature": pytest.approx(0.07)}


def test_a_loss_of_the_host_is_named_or_refused_with_what_there_is(encoder):
    with pytest.raises(
        UserError, match=r"loss\.host is 'SoftmaxLoss'; known: CosineSimilarityLoss, MultipleNegativesRankingLoss"
    ):
        build_loss(encoder, LossSettings(kind="host", host="SoftmaxLoss"))


def test_a_program_may_add_losses_of_its_own(encoder, monkeypatch):
    class Mine(CosineSimilarityLoss):
        pass

    monkeypatch.setitem(FURTHER_LOSSES, "Mine", Mine)
    assert type(build_loss(encoder, LossSettings(kind="host", host="Mine"))) is Mine
