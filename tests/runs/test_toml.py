"""A recipe that is written can be read again."""

from __future__ import annotations

import pytest

from pairtune.runs.toml import make_recipe, read_recipe, shipped_recipes, write_toml


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_shipped_recipe_comes_back_as_it_was(tmp_path, name):
    recipe = read_recipe(name)
    write_toml(tmp_path / "recipe.toml", recipe)
    assert read_recipe(str(tmp_path / "recipe.toml")) == recipe


def test_stages_prompts_expressions_and_small_numbers_come_back_as_they_were(tmp_path):
    recipe = make_recipe(
        {
            "name": "all",
            "prompts": {"left": 'say "it": ', "right": "Straße\n"},
            "ignore": [r"https?://\S+"],
            "seeds": [3, 4],
            "stages": [{"train": {"learning_rate": 1e-7}}, {"loss": {"kind": "bsc", "guide": 0.0}, "order": {"margin": 0.1}}],
        }
    )
    write_toml(tmp_path / "recipe.toml", recipe)
    assert read_recipe(str(tmp_path / "recipe.toml")) == recipe
