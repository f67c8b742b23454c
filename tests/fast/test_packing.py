"""Texts without padding: the same embeddings, losses and gradients as with it."""

from __future__ import annotations

import gc
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
import transformers
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from pairtune.data.pairs import PairSet, Task
from pairtune.encoders.adapters import add_adapter
from pairtune.encoders.embedding import embed
from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.fast.architectures import ARCHITECTURES, first_position, packed_attention, why_padded
from pairtune.fast.attention import attend, attending_within
from pairtune.fast.packing import BLOCKS, Packed, PackingCollator, Tokens, cut_blocks, fill_up, pack, shared_tokens
from pairtune.runs.recipe import AdapterSettings
from pairtune.runs.toml import make_recipe
from pairtune.sbert.trainer import make_trainer

TEXTS = [
    "how are you",
    "a",
    "the quick brown fox jumps over the lazy dog and then over another one",
    "how are you",
    "What is it like to live in a very large city?",
    "yes no",
]
ROWS = 3100  # rows of embeddings: a few more than the tiny encoder's tokenizer has pieces
SHAPE = {"vocab_size": ROWS, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
ROTARY = {**SHAPE, "pad_token_id": 0, "max_position_embeddings": 64}
GROUPED = {**ROTARY, "num_key_value_heads": 2, "head_dim": 16, "bos_token_id": 2, "eos_token_id": 3}
SMALL = {  # model type: its config with small numbers; random weights; windows are shorter than some texts
    "bert": SHAPE,
    "mpnet": SHAPE,
    "distilbert": {"vocab_size": ROWS, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "electra": {**SHAPE, "embedding_size": 16},
    "roberta": SHAPE,
    "xlm-roberta": SHAPE,
    "albert": {**SHAPE, "embedding_size": 16},
    "modernbert": {**ROTARY, "local_attention": 8, "global_attn_every_n_layers": 2},
    "nomic_bert": ROTARY,
    "gte": ROTARY,
    "eurobert": GROUPED,
    "qwen3": {**GROUPED, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "gemma3_text": {
        **GROUPED,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
        "use_bidirectional_attention": True,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "jina_embeddings_v3": {**ROTARY, "attention_probs_dropout_prob": 0.0},
    "llama": GROUPED,
    "mistral": {**GROUPED, "sliding_window": 5},
    "qwen2": GROUPED,
    "t5": {**SHAPE, "d_kv": 16, "d_ff": 64, "dropout_rate": 0.0},
    "deberta-v2": {**SHAPE, "position_buckets": 4, "max_relative_positions": 16, "pos_att_type": "p2c|c2p", "type_vocab_size": 0},
    "deberta": SHAPE,
    "olmo2": GROUPED,
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
WORDS = ["stone", "river", "cloud", "engine", "garden", "paper", "silver", "window", "forest", "needle", "bridge", "candle"]


def small_config(kind):
    """The config of a small encoder; the test is skipped where transformers is too old for it."""
    name = kind.removeprefix("small-")
    if name not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    return transformers.AutoConfig.for_model(name, **SMALL[name])


@pytest.fixture(scope="session")
def small_encoder(tiny_encoder, tmp_path_factory):
    """The folder of a small encoder of some kind, under the vocabulary of the tiny one; made once."""

    @cache
    def make(kind):
        folder = tmp_path_factory.mktemp("small") / kind
        torch.manual_seed(0)
        transformers.AutoTokenizer.from_pretrained(tiny_encoder).save_pretrained(folder)
        transformers.AutoModel.from_config(small_config(kind)).save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture
def make_encoder(tiny_encoder, small_encoder):
    """The tiny encoder with real weights, or a smaller one of another kind."""

    def make(kind, device="cpu"):
        model = load_encoder(tiny_encoder if kind == "bert" else small_encoder(kind), 32, device)
        if kind in ("qwen3", "mistral", "olmo2"):  # as Qwen3-Embedding and E5-Mistral have it
            model[1].pooling_mode, model.tokenizer.padding_side = "lasttoken", "left"
        return model

    return make


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def embed_packed(model, number, tokens, static):
    batch = pack(tokens, number, None, offset=first_position(model), longest=32, static=static)
    with packed_attention(model, batch):
        distinct = model(batch.features())["sentence_embedding"]
    return distinct[batch.index].flatten(0, 1)


@pytest.mark.parametrize("static", [0, 8, 32])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_packed_texts_have_the_embeddings_and_gradients_of_padded_ones(make_encoder, kind, static):
    model = make_encoder(kind).eval()
    assert why_padded(model) is None
    tokens = Tokens()
    padded = model(model.preprocess(TEXTS))["sentence_embedding"]
    packed = embed_packed(model, tokens.places(model, TEXTS).reshape(2, -1), tokens, static)
    torch.testing.assert_close(packed, padded, atol=2e-6, rtol=1e-5)
    weight = torch.randn(padded.shape, generator=torch.Generator().manual_seed(1))
    parameters = list(model.parameters())
    found, expected = (torch.autograd.grad((side * weight).sum(), parameters, allow_unused=True) for side in (packed, padded))
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-5 * max(1, float(other.abs().max())), rtol=1e-4)


@pytest.mark.parametrize("kind", ["small-bert", "mpnet", "modernbert", "qwen3"])
def test_packed_texts_have_the_gradients_of_padded_ones_with_an_adapter(make_encoder, kind):
    model, tokens = make_encoder(kind).eval(), Tokens()
    before = model(model.preprocess(TEXTS))["sentence_embedding"]
    add_adapter(model, AdapterSettings(rank=4), seed=1)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in parameters:  # as after some training
        torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(parameter.numel()))
    assert why_padded(model) is None
    padded = model(model.preprocess(TEXTS))["sentence_embedding"]
    packed = embed_packed(model, tokens.places(model, TEXTS).reshape(2, -1), tokens, 0)
    torch.testing.assert_close(packed, padded, atol=2e-6, rtol=1e-5)
    assert (padded - before).abs().max() > 0.01
    weight = torch.randn(padded.shape, generator=torch.Generator().manual_seed(1))
    for one, other in zip(*(torch.autograd.grad((side * weight).sum(), parameters) for side in (packed, padded)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * max(1, float(other.abs().max())), rtol=1e-4)


@pytest.mark.parametrize("mode", ["cls", "lasttoken", "max"])
def test_texts_pooled_by_some_of_their_tokens_need_none_of_the_padding(make_encoder, mode):
    model = make_encoder("small-bert").eval()
    model[1].pooling_mode = mode
    for count in range(1, 9):
        tokens, texts = Tokens(), TEXTS * count
        padded = model(model.preprocess(texts))["sentence_embedding"]
        packed = embed_packed(model, tokens.places(model, texts).reshape(2, -1), tokens, 32)
        torch.testing.assert_close(packed, padded, atol=2e-6, rtol=1e-5)


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [4, 2])
def test_the_flash_kernel_sees_the_tokens_that_blocks_see(make_encoder, causal, window, heads):
    model, tokens = make_encoder("bert"), Tokens()
    batch = pack(tokens, tokens.places(model, TEXTS).reshape(2, -1), None, offset=0, longest=32).to("cuda")
    module, count = torch.nn.Identity(), batch.ids.shape[1]
    module.is_causal = causal
    generator = torch.Generator("cuda").manual_seed(0)
    sides = [torch.randn(1, number, count, 32, generator=generator, device="cuda") for number in (4, heads, heads)]
    weight = torch.randn(1, count, 4, 32, generator=generator, device="cuda")
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        given = [side.to(dtype).requires_grad_() for side in sides]
        with attending_within(batch):
            out, _ = attend(module, *given, scaling=0.3, sliding_window=window)
        found.append([out.detach(), *torch.autograd.grad((out.float() * weight).sum(), given)])
    for exact, half in zip(*found, strict=True):
        torch.testing.assert_close(half.float(), exact, atol=0.05, rtol=0.05)


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_on_a_gpu_bf16_without_padding_is_near_float32_with_it(make_encoder, kind):
    model, tokens = make_encoder(kind, "cuda").eval(), Tokens()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weight = torch.randn(len(TEXTS), model.get_embedding_dimension(), generator=torch.Generator().manual_seed(1)).cuda()
    features = {name: value.cuda() if torch.is_tensor(value) else value for name, value in model.preprocess(TEXTS).items()}
    padded = model(features)["sentence_embedding"]
    expected = torch.autograd.grad((padded * weight).sum(), parameters, allow_unused=True)
    batch = pack(tokens, tokens.places(model, TEXTS).reshape(2, -1), None, offset=first_position(model), longest=32, static=32)
    batch = batch.to("cuda")
    with packed_attention(model, batch), torch.autocast("cuda", torch.bfloat16):
        packed = model(batch.features())["sentence_embedding"][batch.index].flatten(0, 1).float()
    found = torch.autograd.grad((packed * weight).sum(), parameters, allow_unused=True)
    assert torch.nn.functional.cosine_similarity(packed, padded).min() > 0.999
    joined = [torch.cat([one.flatten() for one in side if one is not None]) for side in (found, expected)]
    assert torch.nn.functional.cosine_similarity(*joined, dim=0) > 0.995


def test_texts_that_the_host_pads_in_front_are_evaluated_as_it_does(make_encoder):
    model, texts = make_encoder("qwen3"), TEXTS * 8  # so many that their tokens are kept, and padded at the end
    np.testing.assert_allclose(embed(model, texts), model.encode(texts), atol=2e-6)


def test_positions_begin_after_the_place_of_padding(make_encoder):
    model = make_encoder("roberta")
    assert first_position(model) == 2
    model[0].auto_model.embeddings.padding_idx = 0
    assert first_position(model) == 1


def test_a_dataset_too_large_to_tokenize_ahead_gives_the_same_batches(make_encoder):
    model = make_encoder("bert")
    data = Dataset.from_dict({"left": TEXTS[:4], "right": ["blue sky", "two pears and more", "goodbye moon", "a"]})
    ahead = PackingCollator(model, data, offset=0)
    lazy = PackingCollator(model, data, offset=0, most_ahead=0)
    assert len(lazy.tokens) == 0
    for rows in ([data[0], data[1]], [data[2], data[3]], [data[0], data[3]]):
        one, other = ahead(rows)["packed"], lazy(rows)["packed"]
        assert all(torch.equal(a, b) for a, b in zip(one.tensors(), other.tensors(), strict=True))


def test_tokens_are_shared_by_vocabulary_and_length_and_hold_no_model(make_encoder):
    import weakref

    model = make_encoder("bert")
    first = shared_tokens(model)
    first.places(model, TEXTS)
    assert shared_tokens(make_encoder("bert")) is first
    other = make_encoder("bert")
    other.max_seq_length = 8
    assert shared_tokens(other) is not first
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_the_encoder_is_as_it_was_after_a_packed_pass(make_encoder):
    model = make_encoder("mpnet").eval()
    before = model.encode(TEXTS)
    tokens = Tokens()
    embed_packed(model, tokens.places(model, TEXTS).reshape(2, -1), tokens, static=0)
    np.testing.assert_array_equal(model.encode(TEXTS), before)
    assert "forward" not in vars(model[0].auto_model.encoder.layer[0].attention.attn)


def test_each_distinct_text_of_a_batch_is_encoded_once(make_encoder):
    model, tokens = make_encoder("bert"), Tokens()
    number = tokens.places(model, ["How are you", "a", "yes no", "how are you"]).reshape(2, -1)
    batch = pack(tokens, number, None, offset=0, longest=32)
    assert len(batch.starts) - 1 == 3  # upper case is lost on this vocabulary
    assert batch.index[0, 0] == batch.index[1, 1] and batch.number[0, 0] == batch.number[1, 1]


def test_a_text_paired_with_itself_is_encoded_twice_for_dropout_to_tell_apart(make_encoder):
    model, tokens = make_encoder("bert"), Tokens()
    batch = pack(tokens, tokens.places(model, ["a", "yes no", "a", "yes no"]).reshape(2, -1), None, offset=0, longest=32)
    assert len(batch.starts) - 1 == 4
    assert set(batch.index[0].tolist()).isdisjoint(batch.index[1].tolist())
    assert batch.number[0].tolist() == batch.number[1].tolist()


def test_the_order_of_a_batch_does_not_depend_on_what_was_tokenized_before(make_encoder):
    model = make_encoder("bert")
    late = Tokens()
    late.add(model, ["unrelated words", *reversed(TEXTS)])
    batches = [pack(one, one.places(model, TEXTS).reshape(2, -1), None, offset=0, longest=32) for one in (Tokens(), late)]
    assert torch.equal(batches[0].ids, batches[1].ids) and torch.equal(batches[0].index, batches[1].index)


def test_blocks_are_the_cheapest_of_all_cuts():
    lengths = np.sort(np.random.default_rng(0).integers(3, 40, 12))

    def cost(bounds):
        return sum((end - start) * lengths[end - 1] ** 2 for start, end in bounds)

    best = min(
        cost(list(zip((0, *inner), (*inner, 12), strict=True)))
        for count in range(BLOCKS)
        for inner in combinations(range(1, 12), count)
    )
    found = cut_blocks(lengths)
    assert cost(found) == best and found[0][0] == 0 and found[-1][1] == 12 and len(found) <= BLOCKS


def test_static_batches_come_in_few_shapes_and_lose_no_token():
    rng = np.random.default_rng(0)
    shapes = set()
    for _ in range(200):
        lengths = rng.integers(3, 33, rng.integers(20, 65))
        ids, filled = fill_up(np.arange(lengths.sum()), lengths, 64, 32)
        assert len(ids) == filled.sum() and (filled[: len(lengths)] == lengths).all() and filled.max() <= 32
        assert lengths.sum() < len(ids) <= 1.25 * lengths.sum() + 32
        assert (np.cumsum(filled) - filled < len(ids)).all()  # every text begins at a token
        shapes.add((len(ids), len(filled)))
    assert len(shapes) <= 14


def test_labels_that_are_not_numbers_and_texts_that_are_not_text_are_refused(make_encoder):
    model = make_encoder("bert")
    data = Dataset.from_dict({"left": ["a"], "right": ["b"], "label": [1.0]})
    collate = PackingCollator(model, data, offset=0, static=0)
    with pytest.raises(UserError, match="label of pair 0 of the batch is NaN"):
        collate([{"left": "a", "right": "b", "label": float("nan")}])
    with pytest.raises(UserError, match="a text of column 'right' is None: drop such pairs"):
        collate([{"left": "a", "right": None, "label": 1.0}])


class Losses(TrainerCallback):
    """The loss of every step."""

    def __init__(self):
        self.values = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.values += [logs["loss"]] if "loss" in logs else []


def step_losses(model, loss, order, fast, folder, precision="float32", epochs=2, dimensions=()):
    rng = np.random.default_rng(3)
    left = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(12) for _ in range(4)]
    right = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in left]
    pairs = PairSet.of(np.repeat(left[:12], 4).tolist(), right, rng.random(48).round(1).tolist())
    task = Task("small", "regression", pairs, pairs, pairs, "Spearman", ("Spearman",))
    sizes = {"epochs": epochs, "batch_size": 8, "max_seq_length": 24}
    train = {**sizes, "learning_rate": 1e-4, "fast": fast, "precision": precision, "dimensions": dimensions}
    recipe = make_recipe({"name": "small/x", "loss": loss, "order": order, "train": train})
    columns = {"left": pairs.left, "right": pairs.right, "label": pairs.label}
    if loss["kind"] == "triplet":
        columns = {"anchor": pairs.left, "positive": pairs.right, "negative": pairs.right[::-1]}
    losses = Losses()
    arguments = (model, Dataset.from_dict(columns), recipe.stages[0], task, 1, folder / "stages" / "1", [losses])
    trainer = make_trainer(*arguments, select="last", checkpoints=False)
    trainer.args.logging_steps = trainer.state.logging_steps = 1
    trainer.train()
    return losses.values


@pytest.mark.parametrize(
    ("loss", "order"),
    [
        ({"kind": "combo"}, {"by": "examples", "group": 4, "neighbors": 6, "encode": "reuse"}),
        ({"kind": "bsc", "duplicates": "mask", "learn_temperature": True}, {"by": "uniform"}),
        ({"kind": "mse"}, {"by": "original"}),
        ({"kind": "triplet"}, {"by": "uniform"}),
        ({"kind": "pearson"}, {"by": "words", "group": 4}),
        ({"kind": "combo", "pointwise": "pearson+listwise"}, {"by": "queries"}),
        ({"kind": "bsc", "duplicates": "mask", "learn_temperature": True, "mini_batch_size": 3}, {"by": "uniform"}),
        ({"kind": "combo", "mini_batch_size": 5}, {"by": "examples", "group": 4, "neighbors": 6, "encode": "reuse"}),
        ({"kind": "mse", "mini_batch_size": 4}, {"by": "original"}),
        ({"kind": "triplet", "mini_batch_size": 4}, {"by": "uniform"}),
    ],
)
def test_every_step_has_the_loss_of_the_plain_path(make_encoder, tmp_path, loss, order):
    kind = "bert" if order["by"] == "examples" else "small-bert"  # neighbors by random weights are nearly equal
    fast, plain = (
        step_losses(without_dropout(make_encoder(kind)), loss, order, fast, tmp_path / str(fast)) for fast in (True, False)
    )
    assert len(fast) == 12 and len(set(fast)) > 6 and np.ptp(fast) > 0.01
    np.testing.assert_allclose(fast, plain, atol=1e-4)


@pytest.mark.parametrize("kind", sorted(set(ARCHITECTURES) - {"bert"}))
def test_every_architecture_has_the_losses_of_the_plain_path(make_encoder, tmp_path, kind):
    how = {"kind": "bsc"}, {"by": "uniform"}
    fast, plain = (
        step_losses(without_dropout(make_encoder(kind)), *how, fast, tmp_path / str(fast), epochs=1) for fast in (True, False)
    )
    assert len(fast) == 6 and len(set(fast)) > 3 and np.ptp(fast) > 0.01
    np.testing.assert_allclose(fast, plain, atol=1e-4)


@pytest.mark.parametrize("loss", [{"kind": "combo"}, {"kind": "triplet"}, {"kind": "bsc", "mini_batch_size": 3}])
def test_every_step_over_dimensions_has_the_loss_of_the_plain_path(make_encoder, tmp_path, loss):
    options = {"epochs": 1, "dimensions": (64, 16)}
    fast, plain, whole = (
        step_losses(without_dropout(make_encoder("small-bert")), loss, {"by": "uniform"}, fast, tmp_path / str(number), **more)
        for number, (fast, more) in enumerate([(True, options), (False, options), (True, {"epochs": 1})])
    )
    np.testing.assert_allclose(fast, plain, atol=1e-4)
    assert min(np.subtract(fast, whole)) > 0.01


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bf16", 0.05)])
@pytest.mark.parametrize("adapter", [False, True])
def test_captured_steps_over_dimensions_or_with_an_adapter_have_the_losses_of_the_plain_path(
    make_encoder, tmp_path, adapter, precision, tolerance
):
    found = []
    for fast, how in ((True, precision), (False, "float32")):
        model = without_dropout(make_encoder("bert", "cuda"))
        if adapter:
            add_adapter(model, AdapterSettings(rank=4, alpha=256), seed=1)
        options = {"precision": how, "epochs": 6, "dimensions": () if adapter else (384, 32)}
        found.append(step_losses(model, {"kind": "combo"}, {"by": "uniform"}, fast, tmp_path / str(fast), **options))
    assert len(found[0]) == 36 and len(set(found[0])) > 18 and np.ptp(found[0]) > 0.05
    np.testing.assert_allclose(*found, atol=tolerance, rtol=tolerance)


def test_parts_have_the_losses_of_the_whole_and_none_holds_more_texts_than_asked_for(make_encoder, tmp_path):
    found, held = {}, {0: [], 3: []}
    for size in held:
        model = without_dropout(make_encoder("bert"))

        def count(module, given, seen=held[size]):
            seen += [len(given[0]["cu_seq_lens_q"]) - 1] if "cu_seq_lens_q" in given[0] else []  # not while it is evaluated

        model[0].register_forward_pre_hook(count)
        found[size] = step_losses(model, {"kind": "bsc", "mini_batch_size": size}, {"by": "uniform"}, True, tmp_path / str(size))
    assert len(held[0]) == 12 and min(held[0]) > 6
    assert max(held[3]) == 3 and len(held[3]) >= 2 * 12 * 3  # twelve steps of at least seven texts, each encoded twice
    np.testing.assert_allclose(found[3], found[0], atol=1e-5)


@pytest.mark.parametrize(
    ("device", "precision", "tolerance"),
    [
        ("cpu", "float32", 1e-5),
        pytest.param("cuda", "float32", 1e-4, marks=[pytest.mark.cuda, needs_gpu]),
        pytest.param("cuda", "bf16", 0.01, marks=[pytest.mark.cuda, needs_gpu]),
    ],
)
@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_the_backward_pass_of_a_part_sees_the_dropout_of_its_forward_pass(
    make_encoder, kind, device, precision, tolerance, tmp_path, monkeypatch
):
    how = {"kind": "bsc", "mini_batch_size": 3}, {"by": "uniform"}, True
    losses = []
    for kept in (True, False):
        if not kept:  # as if all parts were kept in memory
            monkeypatch.setattr("pairtune.fast.step.checkpoint", lambda encode, *given, **_: encode(*given))
        losses.append(step_losses(make_encoder(kind, device), *how, tmp_path / str(kept), precision))
    without = step_losses(without_dropout(make_encoder(kind, device)), *how, tmp_path / "without", precision)
    np.testing.assert_allclose(losses[0], losses[1], atol=tolerance)
    assert np.abs(np.subtract(losses[0], without)).max() > 5 * tolerance


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bf16", 0.05)])
@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_parts_on_a_gpu_have_the_losses_of_the_plain_path(make_encoder, tmp_path, kind, precision, tolerance):
    loss = {"kind": "bsc", "duplicates": "mask", "mini_batch_size": 3}
    fast, plain = (
        step_losses(without_dropout(make_encoder(kind, "cuda")), loss, {"by": "uniform"}, fast, tmp_path / str(fast), how)
        for fast, how in ((True, precision), (False, "float32"))
    )
    assert len(fast) == 12 and len(set(fast)) > 6
    np.testing.assert_allclose(fast, plain, atol=tolerance, rtol=tolerance)


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bf16", 0.05)])
@pytest.mark.parametrize("loss", ["combo", "bsc", "mse", "triplet", "lists"])
@pytest.mark.parametrize("kind", ["bert", "mpnet", "distilbert", "roberta"])
def test_captured_steps_have_the_losses_of_the_plain_path(make_encoder, tmp_path, kind, loss, precision, tolerance):
    orders = {"bsc": {"by": "examples", "group": 4, "neighbors": 6}, "lists": {"by": "queries"}}
    settings = {"kind": "combo", "pointwise": "pearson+listwise"} if loss == "lists" else {"kind": loss}
    order = orders.get(loss, {"by": "uniform"})
    fast, plain = (
        step_losses(without_dropout(make_encoder(kind, "cuda")), settings, order, fast, tmp_path / str(fast), how)
        for fast, how in ((True, precision), (False, "float32"))
    )
    assert len(fast) == 12 and len(set(fast)) > 6
    np.testing.assert_allclose(fast, plain, atol=tolerance, rtol=tolerance)


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bf16", 0.05)])
@pytest.mark.parametrize("kind", sorted(set(ARCHITECTURES) - {"bert", "mpnet", "distilbert", "roberta"}))
def test_captured_steps_of_every_architecture_have_the_losses_of_the_plain_path(
    make_encoder, tmp_path, kind, precision, tolerance
):
    fast, plain = (
        step_losses(
            without_dropout(make_encoder(kind, "cuda")), {"kind": "bsc"}, {"by": "uniform"}, fast, tmp_path / str(fast), how
        )
        for fast, how in ((True, precision), (False, "float32"))
    )
    assert len(fast) == 12 and len(set(fast)) > 6
    np.testing.assert_allclose(fast, plain, atol=tolerance, rtol=tolerance)


@pytest.mark.cuda
@needs_gpu
def test_a_step_that_cannot_be_captured_is_computed_all_the_same(make_encoder, tmp_path, monkeypatch, capsys):
    def waiting(batch, plain=Packed.features):
        batch.ids.sum().item()  # waits for the device, which a graph cannot
        return plain(batch)

    arguments = {"kind": "bsc"}, {"by": "uniform"}
    plain = step_losses(without_dropout(make_encoder("bert", "cuda")), *arguments, False, tmp_path / "plain")
    monkeypatch.setattr(Packed, "features", waiting)
    found = step_losses(without_dropout(make_encoder("bert", "cuda")), *arguments, True, tmp_path / "fast")
    np.testing.assert_allclose(found, plain, atol=1e-4)
    assert "this step cannot be captured" in capsys.readouterr().err


@pytest.mark.cuda
@needs_gpu
def test_dropout_goes_on_after_a_step_that_cannot_be_captured(make_encoder, tmp_path, capsys):
    loss = {"kind": "host", "host": "OnlineContrastiveLoss"}  # picks pairs by their distance: how many, only the device knows
    found = step_losses(make_encoder("bert", "cuda"), loss, {"by": "uniform"}, True, tmp_path / "fast")
    assert "this step cannot be captured" in capsys.readouterr().err
    assert len(found) == 12 and np.isfinite(found).all()


@pytest.mark.parametrize("kind", ["deberta", "olmo2"])  # the second pools the last token, and is padded in front
def test_an_unknown_architecture_is_trained_with_padding_and_told_so(make_encoder, tmp_path, capsys, kind):
    model = make_encoder(kind)
    assert (why_padded(model) or "").startswith(f"its architecture is {kind}; known: albert, bert, ")
    losses = step_losses(model, {"kind": "bsc"}, {"by": "examples", "group": 4, "neighbors": 6}, True, tmp_path, epochs=1)
    assert len(losses) == 6 and np.isfinite(losses).all() and np.ptp(losses) > 0.01
    assert f"training with padding, the slower way: its architecture is {kind}" in capsys.readouterr().err
    np.testing.assert_allclose(embed(model, TEXTS * 8), model.encode(TEXTS * 8), atol=1e-5)


def test_an_encoder_whose_layers_are_elsewhere_is_trained_with_padding_from_the_first_step(make_encoder):
    model = make_encoder("bert")
    del model[0].auto_model.encoder.layer[1].intermediate
    assert (why_padded(model) or "").startswith("its layers are not those of bert")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda model: setattr(model[1], "pooling_mode", "weightedmean"),
            "it pools by weightedmean; known: cls, lasttoken, max",
        ),
        (lambda model: setattr(model.tokenizer, "padding_side", "left"), "its texts are padded in front"),
        (lambda model: model[0].auto_model.gradient_checkpointing_enable(), "it checkpoints gradients"),
    ],
)
def test_what_cannot_go_without_padding_says_why(make_encoder, change, reason):
    model = make_encoder("bert")
    change(model)
    assert (why_padded(model) or "").startswith(reason)


def test_a_model_with_a_foreign_module_is_trained_with_padding(make_encoder):
    from sentence_transformers.sentence_transformer.modules import CNN

    model = make_encoder("bert")
    assert why_padded(SentenceTransformer(modules=[model[0], CNN(384), model[1]])) == "it has the module CNN"
