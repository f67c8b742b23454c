"""The model card says what was tuned, how the saved weights score, and how to train them again."""

from __future__ import annotations

import numpy as np
import pytest
from huggingface_hub import ModelCard

from pairtune.data.own_tables import read_pairs
from pairtune.runs.toml import read_recipe
from pairtune.sbert.outcomes import find_base_model, write_card
from pairtune.training import run, train
from small import sentence, small_recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_encoder):
    """A run whose last epoch is worse than the one that was kept: its left and right texts have nothing to do with each other."""
    for number in range(8):  # random pairs: of most, the last epoch is not the best
        folder, rng = tmp_path_factory.mktemp("card"), np.random.default_rng(number)
        rows = [f"{sentence(rng)},{sentence(rng)}" for _ in range(300)]
        (folder / "mine.csv").write_text("left,right\n" + "\n".join(rows) + "\n")
        recipe = small_recipe(tiny_encoder, loss={"kind": "bsc"}, train={"epochs": 4})
        task = read_pairs(folder / "mine.csv")
        record = run(recipe, 1, out=folder / "run", task=task)
        if record.epochs[-1].dev["MRR"] < record.after["dev"]["MRR"]:
            break
    return folder, task, record


def card_of(folder) -> ModelCard:
    return ModelCard.load(folder / "run" / "model" / "README.md")


def test_the_scores_on_the_card_are_those_of_the_weights_that_were_kept(trained):
    folder, _, record = trained
    last, kept = record.epochs[-1].dev["MRR"], record.after["dev"]["MRR"]
    assert last < kept, "the run does not tell the two apart"
    results = {(one.dataset_split, one.metric_type): one.metric_value for one in card_of(folder).data.eval_results}
    assert results == {
        (split, name): pytest.approx(value, abs=1e-6) for split, scores in record.after.items() for name, value in scores.items()
    }
    assert {one.dataset_name for one in card_of(folder).data.eval_results} == {"mine"}
    evaluation = card_of(folder).text.partition("## Evaluation\n")[2].partition("\n## ")[0]
    assert f"{kept:.4f}" in evaluation and f"{last:.4f}" not in evaluation


def test_the_recipe_on_the_card_names_the_data_and_trains_to_the_same_scores(trained):
    folder, task, record = trained
    assert record.recipe["task"] == "mine"
    toml = card_of(folder).text.partition("```toml\n")[2].partition("```")[0]
    (folder / "again.toml").write_text(toml)
    again = train(read_recipe(str(folder / "again.toml")), out=folder / "again", task=task)[0]
    assert again.after == record.after


def test_writing_the_card_twice_changes_nothing(trained):
    folder, task, record = trained
    path = folder / "run" / "model" / "README.md"
    before = path.read_text()
    write_card(path, record, task)
    assert path.read_text() == before


def test_the_base_model_is_the_original_of_an_alias_or_that_of_a_tuned_folder(tmp_path):
    assert find_base_model("minilm") == "sentence-transformers/all-MiniLM-L6-v2"
    (tmp_path / "README.md").write_text("---\nbase_model: some/encoder\n---\n# a tuned model\n")
    assert find_base_model(str(tmp_path)) == "some/encoder"
    assert find_base_model(str(tmp_path / "nothing")) is None


def test_the_base_model_stands_on_the_card(tmp_path, tiny_model):
    from pairtune.sbert.outcomes import name_base_model

    tiny_model.model_card_data.base_model = None
    name_base_model(tiny_model, "minilm")
    tiny_model.save_pretrained(str(tmp_path / "model"))
    assert ModelCard.load(tmp_path / "model" / "README.md").data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
