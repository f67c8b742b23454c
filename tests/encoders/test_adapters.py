"""LoRA: few parameters are trained, a killed run ends with the same ones, and the tuned folder is a whole model or an adapter."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.data.pairs import PairSet
from pairtune.encoders.adapters import add_adapter, check_adapter, has_adapter, merge_adapter
from pairtune.encoders.loading import load_encoder
from pairtune.errors import UserError
from pairtune.runs.recipe import AdapterSettings
from pairtune.runs.toml import write_toml
from pairtune.training import run
from small import small_pairs, small_recipe, weights

TEXTS = ["a river under the bridge", "the stone", "a candle in the window of the garden"]
STEPS = 4  # of an epoch


def lora_recipe(encoder, save, **more):
    train = {"learning_rate": 2e-3, **more.pop("train", {})}
    return small_recipe(encoder, adapter={"rank": 4, "alpha": 8, "save": save}, train=train, **more)


@pytest.fixture(scope="module")
def words(tmp_path_factory, tiny_encoder):
    """The command line of a training of two epochs that saves an adapter."""
    folder, pairs = tmp_path_factory.mktemp("own"), small_pairs(40, 7)
    rows = ({"q": left, "a": right, "y": float(y)} for left, right, y in zip(pairs.left, pairs.right, pairs.label, strict=True))
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_toml(folder / "lora.toml", lora_recipe(tiny_encoder, "adapter"))
    return ["train", str(folder / "lora.toml"), "--data", str(folder / "pairs.jsonl"), "--left=q", "--right=a", "--label=y"]


def finish(words, out):
    result = CliRunner().invoke(app, [*words, "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return out / "model"


@pytest.fixture(scope="module")
def adapter(words, tmp_path_factory):
    """The tuned model as an adapter."""
    return finish(words, tmp_path_factory.mktemp("adapter") / "run")


@pytest.fixture(scope="module")
def merged(words, tmp_path_factory):
    """The same training, saved as a whole model."""
    return finish([*words, "--set", "adapter.save=merged"], tmp_path_factory.mktemp("merged") / "run")


def encode(folder):
    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS)


def test_the_merged_folder_encodes_as_the_adapter_does_beside_its_encoder(merged, adapter, tiny_encoder):
    np.testing.assert_allclose(encode(merged), encode(adapter), atol=1e-5)
    assert np.abs(encode(merged) - encode(tiny_encoder)).max() > 0.01
    assert not (merged / "adapter_config.json").exists()  # no peft is needed
    assert not (adapter / "model.safetensors").exists()
    assert sum(path.stat().st_size for path in adapter.glob("*.safetensors")) < 300_000


def test_only_what_the_adapter_stands_beside_has_changed(merged, tiny_encoder):
    before, after = weights(Path(tiny_encoder)), weights(merged)
    assert before.keys() == after.keys()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    linear = {name for name in before if name.endswith(".weight") and before[name].ndim == 2 and "embeddings" not in name}
    assert changed == {name for name in linear if not name.startswith("pooler.")}


def test_a_killed_training_of_an_adapter_ends_with_the_same_weights(words, adapter, tmp_path, commands):
    with commands.held([*words, "--out", tmp_path / "run"], tmp_path / "said.txt", step=STEPS + 2) as held:
        held.send(signal.SIGKILL)
    checkpoints = tmp_path / "run" / "seed-1" / "checkpoints" / "stage-1"
    assert [path.name for path in checkpoints.glob("checkpoint-*")] == [f"checkpoint-{STEPS}"]
    found, expected = (
        load_file(folder / "adapter_model.safetensors") for folder in (finish([*words, "--resume"], tmp_path / "run"), adapter)
    )
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("save", ["merged", "adapter"])
def test_where_no_epoch_is_better_the_encoder_is_kept_as_it_came(tmp_path, tiny_encoder, small_task, save):
    wrong = small_pairs(16, 1)
    task = replace(small_task, train=PairSet.of(wrong.left, wrong.right, 1 - wrong.label))
    settings = {"loss": {"kind": "mse"}, "train": {"epochs": 1, "learning_rate": 0.02}, "keep_original": True}
    record = run(lora_recipe(tiny_encoder, save, **settings), 1, out=tmp_path / "run", task=task, checkpoints=False)
    assert record.unchanged and record.after == record.before
    np.testing.assert_array_equal(encode(record.model), encode(tiny_encoder))


def test_an_adapter_can_be_tuned_further_as_a_whole_encoder(adapter):
    model = load_encoder(str(adapter), device="cpu")
    with pytest.raises(UserError, match=r"but this is an adapter: set adapter\.save = merged"):
        check_adapter(model, AdapterSettings(save="adapter"))
    check_adapter(model, AdapterSettings())
    before = model.encode(TEXTS)
    merge_adapter(model)
    assert not has_adapter(model) and all(parameter.requires_grad for parameter in model.parameters())
    assert "LoRA of rank 2" in add_adapter(model, AdapterSettings(rank=2), seed=1)
    np.testing.assert_allclose(model.encode(TEXTS), before, atol=1e-5)  # a new one changes nothing yet


@pytest.mark.parametrize("again", [{"rank": 2}, None])
def test_what_an_adapter_has_learned_is_kept_by_the_next_training(adapter, tiny_encoder, small_task, tmp_path, again):
    recipe = small_recipe(str(adapter), train={"epochs": 1, "learning_rate": 1e-9}, adapter=again)
    found = encode(run(recipe, 1, out=tmp_path / "run", task=small_task, checkpoints=False).model)
    np.testing.assert_allclose(found, encode(adapter), atol=1e-4)
    assert np.abs(found - encode(tiny_encoder)).max() > 0.01


def test_the_same_seed_begins_with_the_same_adapter(tiny_encoder):
    def first(seed):
        model = load_encoder(tiny_encoder, device="cpu")
        add_adapter(model, AdapterSettings(rank=2, targets=("query",)), seed)
        return [value.numpy() for name, value in model.state_dict().items() if "lora_A" in name]

    one, again, other = first(1), first(1), first(2)
    assert len(one) == 2 and all(map(np.array_equal, one, again)) and not any(map(np.array_equal, one, other))


def test_what_cannot_have_an_adapter_is_refused(tiny_model, monkeypatch):
    with pytest.raises(UserError, match=r"names q_proj; the linear layers of this encoder are dense, key, query, value"):
        check_adapter(tiny_model, AdapterSettings(targets=("query", "q_proj")))
    monkeypatch.setattr("pairtune.encoders.adapters.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs peft, which is not installed: pip install 'pairtune\[adapters\]'"):
        check_adapter(tiny_model, AdapterSettings())
