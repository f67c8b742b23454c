"""What the batches of a recipe would be like under each order, before anything is trained."""

from __future__ import annotations

import numpy as np

from pairtune.data.material import training_pairs
from pairtune.data.pairs import PairSet, Task
from pairtune.encoders.embedding import encode
from pairtune.encoders.ignoring import give_tokenizer, ignoring
from pairtune.encoders.loading import load_encoder
from pairtune.ordering import CONTROLS, ORDERINGS, Side, epoch_seed, order_pairs
from pairtune.ordering.hardness import Inspection, inspect_batches
from pairtune.runs.recipe import OrderSettings, Recipe


def inspect_recipe(recipe: Recipe, task: Task, at_most: int = 0) -> tuple[PairSet, dict[str, Inspection]]:
    """The training pairs of the first stage, and for every order what its first epoch would meet.

    at_most: look at that many of the pairs only, 0 for all.
    """
    stage, seed = recipe.stages[0], recipe.seeds[0]
    model = load_encoder(recipe.encoder, stage.train.max_seq_length)
    if recipe.ignore:
        give_tokenizer(model, ignoring(model.tokenizer, recipe.ignore))
    pairs = training_pairs(model, task, stage, np.random.default_rng([seed, 1]))
    if 0 < at_most < len(pairs):
        pairs = pairs.take(range(at_most))
    left = encode(model, pairs.left, "encoding left texts")
    right = encode(model, pairs.right, "encoding right texts")
    sides = {"left": Side.of(pairs.left, pairs.right), "right": Side.of(pairs.right, pairs.left)}
    ordered = sides[stage.order.side]
    _, first = np.unique(ordered.text, return_index=True)
    ordered = ordered.encoded((left if stage.order.side == "left" else right)[first], np.einsum("ij,ij->i", left, right))
    texts = sides["left"].text, sides["left"].other
    positive = pairs.positives(stage.loss.positive_above)
    orders = {name: order_pairs(ordered, settings_of(name, stage.order), epoch_seed(seed, 0)) for name in ORDERINGS}
    return pairs, {
        name: inspect_batches(order, stage.train.batch_size, left, right, *texts, positive) for name, order in orders.items()
    }


def settings_of(order: str, settings: OrderSettings) -> OrderSettings:
    """The recipe's settings for another order, without the controls that it does not heed."""
    unheeded = {name: OrderSettings.model_fields[name].default for name in CONTROLS if name not in ORDERINGS[order].controls}
    return settings.model_copy(update={"by": order, **unheeded})
