from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback

from pairtune.encoders.embedding import encode_texts
from pairtune.errors import UserError
from pairtune.ordering import Side, epoch_seed, order_pairs
from pairtune.runs.recipe import OrderSettings
from pairtune.sbert.hard_batches import ORDER_FILE, HardBatches, encode_side
from pairtune.sbert.memory import Encoded, Kept
from pairtune.sbert.sampler import OrderedBatchSampler

NOUNS = ["cat", "dog", "tree", "river", "king", "bread", "python", "snake", "house", "moon"]
VERBS = ["eats", "sees", "finds", "leaves", "makes"]
LEFT = [f"the {noun} {verb}" for noun in NOUNS for verb in VERBS][:44]
RIGHT = [f"what {text.split()[1]}?" for text in LEFT]  # each right text stands five times
PAIRS = Dataset.from_dict({"left": LEFT, "right": RIGHT})
BATCH, STEPS = 8, 6  # six batches an epoch, the last of four pairs


class Notes(SentenceTransformerDataCollator):
    """The host's collator, which also notes the rows of every batch that it is given."""

    def __call__(self, features):
        self.__dict__.setdefault("seen", []).append([LEFT.index(row["left"]) for row in features])
        return super().__call__(features)


@pytest.mark.parametrize("name", ["examples", "words"])
def test_the_first_epoch_can_be_left_as_the_data_came(tiny_encoder, tmp_path, name):
    trainer = make_trainer(tiny_encoder, tmp_path, by(name, first="original"))
    trainer.train()
    seen = trainer.data_collator.seen
    assert [row for batch in seen[:STEPS] for row in batch] == list(range(len(LEFT)))
    later = [row for batch in seen[STEPS : 2 * STEPS] for row in batch]
    assert sorted(later) == list(range(len(LEFT))) and later != list(range(len(LEFT)))


class StopAt(TrainerCallback):
    """Breaks off in the middle of things, as a killed process does."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def in_parts(model):
    return CachedMultipleNegativesRankingLoss(model, mini_batch_size=3)


def by(name, **more):
    return OrderSettings(by=name, group=4, neighbors=12, **more)


def make_trainer(encoder, folder, settings, *, data=PAIRS, loss=MultipleNegativesRankingLoss, callbacks=(), **more):
    torch.manual_seed(0)
    model = SentenceTransformer(encoder, device="cpu")
    model.max_seq_length = 12
    options = {"num_train_epochs": 2, "save_strategy": "no", "seed": 3, "learning_rate": 1e-3, **more}
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        batch_sampler=HardBatches(**settings.model_dump()),
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        **options,
    )
    return SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=data,
        loss=loss(model),
        data_collator=Notes(preprocess_fn=model.preprocess, prompts=args.prompts),
        callbacks=list(callbacks),
    )


def train(*args, resume=None, **more):
    trainer = make_trainer(*args, **more)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def slices(order):
    return [order.rows[start : start + BATCH].tolist() for start in range(0, len(order), BATCH)]


def weights(trainer):
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


@pytest.mark.parametrize("settings", [by("uniform"), by("words", side="right", shingle=2)], ids=["uniform", "words"])
def test_the_trainer_sees_the_batches_of_each_epoch_in_their_order(tiny_encoder, tmp_path, settings):
    trainer = train(tiny_encoder, tmp_path, settings)
    side = Side.of(LEFT if settings.side == "left" else RIGHT)
    expected = [batch for epoch in range(2) for batch in slices(order_pairs(side, settings, epoch_seed(3, epoch)))]
    assert trainer.data_collator.seen == expected


def test_examples_are_ordered_by_the_model_of_that_moment(tiny_encoder, tmp_path):
    vectors = []

    class Look(TrainerCallback):
        def on_epoch_begin(self, args, state, control, model, **kwargs):
            vectors.append(model.encode(LEFT, batch_size=5))

    trainer = train(tiny_encoder, tmp_path, by("examples"), callbacks=[Look()])
    orders = [order_pairs(Side.of(LEFT).encoded(v), by("examples"), epoch_seed(3, epoch)) for epoch, v in enumerate(vectors)]
    assert trainer.data_collator.seen == slices(orders[0]) + slices(orders[1])
    assert not np.allclose(vectors[0], vectors[1], atol=1e-3)


def test_reordering_leaves_no_trace_in_the_training(tiny_encoder, tmp_path):
    modes = []

    class Look(TrainerCallback):
        def on_step_begin(self, args, state, control, model, **kwargs):
            modes.append(all(module.training for module in model.modules()))

    ordered = train(tiny_encoder, tmp_path, by("examples"), num_train_epochs=1)
    rows = [row for batch in ordered.data_collator.seen for row in batch]
    plain = train(tiny_encoder, tmp_path, by("original"), data=PAIRS.select(rows), num_train_epochs=1)
    assert torch.equal(weights(ordered), weights(plain))  # dropout drew the very same numbers

    train(tiny_encoder, tmp_path, by("examples"), callbacks=[Look()], max_steps=1)
    assert modes == [True]


def test_encoding_keeps_the_mode_of_every_module_and_the_random_numbers(tiny_model):
    tiny_model.train()
    tiny_model[0].auto_model.embeddings.eval()
    tiny_model[1].register_forward_hook(lambda *_: torch.rand(1) and None)  # a module that draws in evaluation too
    modes = [module.training for module in tiny_model.modules()]
    before = torch.get_rng_state()
    vectors = encode_texts(tiny_model, LEFT)
    assert [module.training for module in tiny_model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert np.allclose(vectors, tiny_model.encode(LEFT), atol=1e-5)


def test_texts_are_encoded_with_the_prompt_of_the_collator(tiny_encoder, tmp_path):
    trainer = make_trainer(
        tiny_encoder,
        tmp_path,
        by("examples", encode="once"),
        prompts={"left": "a dream: "},
        max_steps=1,
        learning_rate=0,
    )
    trainer.model.prompts, trainer.model.default_prompt_name = {"other": "never used: "}, "other"
    trainer.train()
    model = SentenceTransformer(tiny_encoder, device="cpu")
    model.max_seq_length = 12
    batches = trainer.args.batch_sampler
    assert np.allclose(batches._encoded[0].vectors, model.encode(LEFT, prompt="a dream: "), atol=1e-5)
    assert not np.allclose(batches._encoded[0].vectors, model.encode(LEFT), atol=1e-2)


def test_texts_that_repeat_are_encoded_once(tiny_encoder, tmp_path):
    trainer = train(tiny_encoder, tmp_path, by("examples", side="right", encode="once"), max_steps=1)
    batches = trainer.args.batch_sampler
    assert batches._encoded[0].vectors.shape == (len(set(RIGHT)), 384)
    assert batches.samplers[0].side.texts == tuple(dict.fromkeys(RIGHT))


@pytest.mark.parametrize(("loss", "accumulate", "side"), [("joined", 1, "right"), ("cached", 4, "left")])
def test_reused_vectors_are_those_of_the_training_steps(tiny_encoder, tmp_path, loss, accumulate, side):
    settings = by("examples", encode="reuse", margin=0.5, side=side)
    trainer = make_trainer(
        tiny_encoder,
        tmp_path,
        settings,
        loss=MultipleNegativesRankingLoss if loss == "joined" else in_parts,
        gradient_accumulation_steps=accumulate,
        learning_rate=0,
        num_train_epochs=1,
    )
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    seen, batches = [], trainer.args.batch_sampler
    trainer.add_callback(_Forget(batches, seen))
    trainer.train()
    batches.kept.flush()
    left, right = (trainer.model.encode(texts, normalize_embeddings=True) for texts in (LEFT, RIGHT))
    distinct = list(dict.fromkeys(LEFT if side == "left" else RIGHT))
    assert seen == [True]
    assert np.allclose(batches.kept.encoded.vectors, trainer.model.encode(distinct), atol=1e-4)
    assert np.allclose(batches.kept.encoded.own, (left * right).sum(axis=1), atol=1e-4)
    assert batches.kept.batches_kept == STEPS


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("at_hand", [0, 100])
@pytest.mark.parametrize("waiting", [1, 100])  # each batch is filed by itself, or both together
def test_of_a_text_that_is_seen_twice_the_last_vector_is_kept(device, at_hand, waiting):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    sizes = {"at_hand": at_hand, "waiting": waiting}
    kept = Kept(Encoded(torch.zeros(4, 1)), np.array([0, 1, 0, 2, 0, 3]), 2, 0, torch.device(device), **sizes)
    kept.begin_epoch([[0, 1, 2], [3, 4]], 0)
    for left in ([1.0, 2.0, 3.0], [4.0, 5.0]):
        kept.see(torch.tensor([*left, *(0.0 for _ in left)], device=device)[:, None])
        kept.end_batch()
    kept.flush()
    assert kept.encoded.vectors.device.type == (device if at_hand else "cpu")
    assert kept.encoded.arrays()["vectors"].tolist() == [[5.0], [2.0], [4.0], [0.0]]


class _Forget(TrainerCallback):
    """Wipes the encoded vectors once the first epoch is ordered: what is there at its end comes from the steps."""

    def __init__(self, batches, seen):
        self.batches, self.seen = batches, seen

    def on_step_begin(self, args, state, control, **kwargs):
        if not self.seen:
            self.batches._encoded[0].vectors[:] = 0
            self.batches._encoded[0].own[:] = 0
            self.seen.append(True)


def test_a_loss_that_hides_its_embeddings_is_said_and_the_texts_are_encoded_again(tiny_encoder, tmp_path, capsys):
    class Hidden(MultipleNegativesRankingLoss):
        def forward(self, features, labels=None):
            model, self.model = self.model, torch.nn.Sequential(*self.model)  # the same modules, not the model
            try:
                return super().forward(features, labels)
            finally:
                self.model = model

    few = PAIRS.select(range(16))
    hidden = train(tiny_encoder, tmp_path, by("examples", encode="reuse"), loss=Hidden, data=few)
    assert "this loss does not pass on its embeddings" in capsys.readouterr().err
    fresh = train(tiny_encoder, tmp_path, by("examples"), loss=Hidden, data=few)
    assert hidden.data_collator.seen == fresh.data_collator.seen


@pytest.mark.parametrize(
    "settings",
    [by("examples"), by("neighbors", encode="reuse", margin=0.5), by("clusters", encode="once"), by("words")],
    ids=["each-epoch", "reuse", "once", "words"],
)
def test_a_killed_training_resumes_to_the_same_batches_and_weights(tiny_encoder, tmp_path, settings):
    options = {"data": PAIRS.select(range(20)), "num_train_epochs": 3}  # of three steps each
    whole = train(tiny_encoder, tmp_path / "whole", settings, **options)
    killed = make_trainer(tiny_encoder, tmp_path, settings, callbacks=[StopAt(5)], save_strategy="steps", save_steps=4, **options)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    checkpoint = tmp_path / "checkpoint-4"  # one batch into the second epoch
    assert (checkpoint / ORDER_FILE).exists() == (settings.by != "words")
    resumed = train(tiny_encoder, tmp_path, settings, resume=str(checkpoint), **options)
    assert resumed.data_collator.seen == whole.data_collator.seen[4:]
    assert torch.equal(weights(resumed), weights(whole))


def test_a_checkpoint_without_its_order_or_of_other_data_is_refused(tiny_encoder, tmp_path):
    train(tiny_encoder, tmp_path, by("examples"), save_strategy="steps", save_steps=2, max_steps=2)
    checkpoint = tmp_path / "checkpoint-2"
    with pytest.raises(UserError, match="orders 44 pairs, but the dataset has 40"):
        train(tiny_encoder, tmp_path, by("examples"), data=PAIRS.select(range(40)), resume=str(checkpoint))
    (checkpoint / ORDER_FILE).unlink()
    with pytest.raises(UserError, match=r"resumes at step 2, but .*order\.npz, which holds the order of the interrupted epoch"):
        train(tiny_encoder, tmp_path, by("examples"), resume=str(checkpoint))


def test_training_arguments_are_saved_without_the_model(tiny_encoder, tmp_path):
    trainer = train(tiny_encoder, tmp_path, by("examples", encode="reuse"), save_strategy="steps", save_steps=1, max_steps=1)
    saved = tmp_path / "checkpoint-1" / "training_args.bin"
    assert saved.stat().st_size < 20_000
    again = torch.load(saved, weights_only=False).batch_sampler
    assert again.settings == by("examples", encode="reuse")
    assert again.samplers == [] and trainer.args.batch_sampler.samplers
    assert len(pickle.dumps(trainer.args.batch_sampler)) < 1000


def test_an_evaluation_keeps_the_order_of_the_dataset(tiny_encoder, tmp_path):
    trainer = make_trainer(tiny_encoder, tmp_path, by("uniform"), num_train_epochs=1, per_device_eval_batch_size=BATCH)
    trainer.train()
    trainer.data_collator.seen.clear()
    trainer.evaluate(PAIRS)
    assert [row for batch in trainer.data_collator.seen for row in batch] == list(range(len(PAIRS)))


def test_the_order_joins_every_trainer_that_asks_for_its_batches_and_once(tiny_encoder, tmp_path):
    first = train(tiny_encoder, tmp_path, by("examples"), num_train_epochs=1)
    batches = first.args.batch_sampler
    again = SentenceTransformerTrainer(first.model, first.args, PAIRS, loss=MultipleNegativesRankingLoss(first.model))
    for trainer in (first, again):
        trainer.train()
        assert trainer.callback_handler.callbacks.count(batches) == 1
    named = make_trainer(tiny_encoder, tmp_path, by("examples"), max_steps=1)
    named.add_callback(named.args.batch_sampler)
    named.train()
    assert named.callback_handler.callbacks.count(named.args.batch_sampler) == 1


def test_hard_batches_take_every_setting_of_an_order_and_refuse_what_a_recipe_refuses():
    words = inspect.signature(HardBatches).parameters
    assert {name: word.default for name, word in words.items()} == {
        **{name: field.default for name, field in OrderSettings.model_fields.items()},
        "by": "examples",
    }
    assert HardBatches(by="words", shingle=2).settings == OrderSettings(by="words", shingle=2)
    with pytest.raises(UserError, match="HardBatches: by is 'word'; input should be 'original'"):
        HardBatches(by="word")
    with pytest.raises(UserError, match="skip_nearest"):
        HardBatches(by="words", skip_nearest=1)
    with pytest.raises(UserError, match=r"HardBatches\(by='words'\) makes batches in a trainer"):
        HardBatches(by="words")(PAIRS)


@pytest.mark.parametrize("name", ["original", "uniform", "words"])
def test_several_datasets_are_each_ordered_on_their_own(tiny_encoder, tmp_path, name):
    data = DatasetDict({"one": PAIRS.select(range(20)), "two": PAIRS.select(range(20, 44))})
    trainer = train(tiny_encoder, tmp_path, by(name), data=data, num_train_epochs=1)
    seen = trainer.data_collator.seen
    assert sorted(row for batch in seen for row in batch) == list(range(44))
    for start, texts in ((0, LEFT[:20]), (20, LEFT[20:])):
        mine = [row - start for batch in seen for row in batch if row - start in range(len(texts))]
        assert mine == order_pairs(Side.of(texts), by(name), 3).rows.tolist()


TWO = DatasetDict({"one": PAIRS.select(range(20)), "two": PAIRS.select(range(20, 44))})


def test_an_order_by_meaning_is_made_for_each_of_several_datasets(tiny_encoder, tmp_path):
    prompts = {"one": {"left": "query: "}, "two": {"left": "find the "}}
    trainer = train(tiny_encoder, tmp_path, by("examples"), data=TWO, num_train_epochs=1, prompts=prompts)
    seen = trainer.data_collator.seen
    assert all(max(batch) < 20 or min(batch) >= 20 for batch in seen), "no batch mixes the two"
    model = make_trainer(tiny_encoder, tmp_path, by("examples")).model
    for start, name, texts in ((0, "one", LEFT[:20]), (20, "two", LEFT[20:])):
        mine = [row - start for batch in seen for row in batch if row - start in range(len(texts))]
        side = Side.of(texts, RIGHT[start : start + len(texts)])
        vectors = encode_texts(model, side.texts, prompt=prompts[name]["left"])
        assert mine == order_pairs(side.encoded(vectors), by("examples"), 3).rows.tolist()


@pytest.mark.parametrize("encode", ["each-epoch", "once"])
def test_a_killed_training_on_several_datasets_resumes_to_the_same_weights(tiny_encoder, tmp_path, encode):
    settings, options = by("examples", encode=encode), {"data": TWO, "save_strategy": "steps", "save_steps": 4}
    whole = train(tiny_encoder, tmp_path / "whole", settings, **options)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_encoder, tmp_path, settings, callbacks=[StopAt(5)], **options)
    resumed = train(tiny_encoder, tmp_path, settings, resume=str(tmp_path / "checkpoint-4"), **options)
    assert resumed.data_collator.seen == whole.data_collator.seen[4:]
    assert torch.equal(weights(resumed), weights(whole))


def test_vectors_of_the_steps_are_kept_for_one_dataset_only(tiny_encoder, tmp_path):
    with pytest.raises(UserError, match=r"order\.encode = 'reuse' works on one dataset, not on 2: take 'each-epoch' or 'once'"):
        train(tiny_encoder, tmp_path, by("examples", encode="reuse"), data=TWO)


def sampler(settings, *, data=PAIRS, drop_last=False, labels=("label",)):
    return OrderedBatchSampler(data, BATCH, drop_last, list(labels), seed=3, settings=settings)


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_last_short_batch_is_as_in_the_host(drop_last):
    ours = sampler(by("original"), drop_last=drop_last)
    host = DefaultBatchSampler(SequentialSampler(PAIRS), BATCH, drop_last)
    ours.training = True
    assert list(ours) == list(host)
    assert len(ours) == len(host) == len(list(ours))


def test_a_sampler_gives_the_same_batches_until_its_epoch_changes():
    ours = sampler(by("words"))
    ours.training = True
    first = list(ours)
    assert list(ours) == first
    ours.set_epoch(1)
    assert list(ours) != first
    ours.set_epoch(0)
    assert list(ours) == first


def test_sides_are_the_text_columns_as_the_collator_reads_them():
    labelled = Dataset.from_dict({"label": [1.0], "question": ["q"], "answer": ["a"], "dataset_name": ["d"]})
    assert sampler(by("words"), data=labelled).columns == ["question", "answer"]
    assert sampler(by("words", side="right"), data=labelled).side.texts == ("a",)
    single = Dataset.from_dict({"text": ["a"]})
    with pytest.raises(UserError, match=r"order.side is 'right', but the dataset has the text columns \['text'\]"):
        _ = sampler(by("words", side="right"), data=single).side


def test_a_missing_text_is_refused(tiny_model, tmp_path):
    data = Dataset.from_dict({"left": [*LEFT[:9], None], "right": RIGHT[:10]})
    arguments = SentenceTransformerTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(UserError, match="a text of column 'left' is missing"):
        encode_side(sampler(by("clusters"), data=data), tiny_model, arguments)
    with pytest.raises(UserError, match=r"order.margin compares the two texts of a pair, but .* \['left'\]"):
        encode_side(sampler(by("examples", margin=0.1), data=PAIRS.select_columns("left")), tiny_model, arguments)


def test_vectors_that_nobody_made_are_asked_for():
    ours = sampler(by("examples"))
    ours.training = True
    with pytest.raises(UserError, match="none has encoded the texts for epoch 1"):
        list(ours)


def test_the_log_says_what_the_groups_are_like(tiny_encoder, tmp_path, capsys):
    train(tiny_encoder, tmp_path, OrderSettings(by="examples", neighbors=99, group=3), max_steps=1)
    said = capsys.readouterr().err
    assert "order.neighbors is 99, but there are only 43 other pairs: all are considered" in said
    assert "epoch 1, order by examples: 44 pairs in" in said
