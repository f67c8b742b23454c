"""Which recipe fits which data: a short table of rules, and why each was chosen.

The rules come from runs on files of many sorts. docs/choosing.md links to what they get on data that had no part in the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pairtune.data.pairs import Task
from pairtune.data.profile import Profile, describe_profile, profile
from pairtune.encoders.loading import fast_precision
from pairtune.runs.recipe import Recipe
from pairtune.runs.settings import USE_MINED, default_of
from pairtune.runs.toml import read_recipe

COMPETING = 2.0  # pairs of a left text, on average, from which on its right texts compete with each other
MANY_PAIRS = 200_000  # beyond, one epoch shows the encoder enough


@dataclass(frozen=True)
class Rule:
    """If the data `fits`, the shipped `recipe`: in words, what the data has and what the recipe does."""

    data: str
    fits: Callable[[Profile], bool]
    recipe: str
    does: str


RULES = (
    Rule(
        "only positive pairs",
        lambda data: data.kind == "retrieval",
        "own/positives",
        "batch softmax with hard batches (nearest texts share a batch); two hard negatives for each pair are mined before "
        "every epoch, unless the data has negatives",
    ),
    Rule(
        "graded similarity",
        lambda data: data.kind == "regression",
        "own/grades",
        "Pearson correlation with the grades, plus 10 % batch softmax on batches of near texts",
    ),
    Rule(
        "several labelled texts for each left text",
        lambda data: data.kind == "ranking" or data.pairs_per_left >= COMPETING,
        "own/answers",
        "Pearson correlation with the labels and a softmax over each left text's right texts (a better one should score above a "
        "worse one), plus 10 % batch softmax; the pairs of a left text together; in a ranking, half the left texts begin with "
        "`question: `, and their right texts with `answer: `",
    ),
    Rule(
        "pairs labelled yes or no",
        lambda data: True,
        "own/labelled",
        "Pearson correlation with the labels and CoSENT (a positive pair should score above a negative one), plus 10 % batch "
        "softmax, in random batches",
    ),
)


@dataclass(frozen=True)
class Choice:
    """A recipe for one's data, and why, in a few lines."""

    recipe: Recipe
    reasons: tuple[str, ...]


def choose(task: Task, overrides: Sequence[str] = ()) -> Choice:
    """The recipe of the first rule that fits the training pairs, with `key=value` overrides laid over it.

    It trains in bf16 if the device is faster with it. The runs behind the rules were in bf16, too.
    """
    data = profile(task)
    rule = next(rule for rule in RULES if rule.fits(data))
    epochs = ["train.epochs=1"] if data.pairs > MANY_PAIRS else []
    recipe = read_own(rule.recipe, task, [f"train.precision={fast_precision()}", *epochs, *overrides])
    train = recipe.stages[0].train
    return Choice(
        recipe,
        (
            f"data: {describe_profile(data)}",
            f"recipe: {rule.recipe}, for {rule.data}: {rule.does}",
            f"training: {train.epochs} epoch{'s' * (train.epochs != 1)}, batches of {train.batch_size}, learning rate "
            f"{train.learning_rate:g}, in {train.precision}; the best epoch on dev is kept (epoch 0 is the original encoder)",
        ),
    )


def read_own(recipe: str, task: Task | None, overrides: Sequence[str]) -> Recipe:
    """A shipped recipe as it fits these pairs: one that mines negatives takes those that are given, where it cannot mine."""
    unmined = ["train.negatives=given", f"train.mined={default_of('train.mined')}"]
    given = unmined if recipe.startswith("own/") and mines_nothing(task, overrides) else []
    return read_recipe(recipe, [*given, *overrides])


def mines_nothing(task: Task | None, overrides: Sequence[str]) -> bool:
    """Whether negatives are there already, or the loss and the file that were asked for cannot take mined ones."""
    asked = dict(one.split("=", 1) for one in overrides if "=" in one)
    kind = asked.get("loss.kind", USE_MINED[0]).strip("\"'")
    there = task is not None and task.train.negatives is not None
    return there or "train.file" in asked or kind not in USE_MINED
