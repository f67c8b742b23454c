"""A look at pairs before anything is trained.

First what is odd in their texts and labels: repetitions, contradictions, leaks between splits. Then what an encoder meets in the
pairs of a recipe: lengths, likely false negatives, batches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pairtune.data.material import training_pairs
from pairtune.data.pairs import ALIKE, PairSet, Task, add_prompts
from pairtune.data.profile import MEASURED_TEXTS, spread
from pairtune.data.splits import single_spaces
from pairtune.encoders.embedding import count_tokens, encode, share_unknown
from pairtune.encoders.ignoring import give_tokenizer, ignoring
from pairtune.encoders.loading import length_of, load_encoder
from pairtune.encoders.prompts import choose_prompts
from pairtune.ordering import CONTROLS, ORDERINGS, Side, epoch_seed, order_pairs
from pairtune.ordering.hardness import FALSE_NEGATIVE_MARGIN, OrderHardness, inspect_batches
from pairtune.ordering.nearest import unit_rows
from pairtune.progress import say
from pairtune.runs.recipe import OrderSettings, Recipe

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

APART = 0.1  # of the scale: labels of the same pair that differ by less are not said to contradict
FEW_GRADES = 12  # so many different labels are counted one by one


@dataclass(frozen=True)
class Contradiction:
    """A pair that occurs with labels over a tenth of the scale apart; grades: on the data's own scale, the lowest first."""

    left: str
    right: str
    grades: tuple[float, ...]


@dataclass(frozen=True)
class Leak:
    """What a split shares with train: the same pairs, in either direction, and the shares of its left and right texts."""

    split: str
    pairs: int
    left: float
    right: float


@dataclass(frozen=True)
class Findings:
    """repeated: pairs that occur again. identical: pairs of a text with itself. empty: texts of white space.

    grades: how often each label occurs, on the data's own scale, where they are few. lowest, highest: of the labels.
    """

    pairs: int
    repeated: int
    identical: int
    empty: int
    contradictions: tuple[Contradiction, ...]
    leaks: tuple[Leak, ...]
    lowest: float
    highest: float
    grades: dict[float, int]


def find_oddities(task: Task) -> Findings:
    """Look at all splits. Texts are the same if only their case or white space differs."""
    splits = {"train": task.train, "dev": task.dev, "test": task.test}
    keys = {name: pair_keys(pairs) for name, pairs in splits.items()}
    everything = [key for found in keys.values() for key in found]
    grades = [float(grade) for pairs in splits.values() for grade in pairs.grade]
    counted = Counter(grades)
    return Findings(
        pairs=len(everything),
        repeated=len(everything) - len(set(everything)),
        identical=sum(left == right for left, right in everything),
        empty=sum((not left) + (not right) for left, right in everything),
        contradictions=find_contradictions(splits.values(), everything, grades),
        leaks=tuple(find_leak(name, splits, keys) for name in ("dev", "test")),
        lowest=min(grades, default=0.0),
        highest=max(grades, default=0.0),
        grades=dict(sorted(counted.items())) if len(counted) <= FEW_GRADES else {},
    )


def pair_keys(pairs: PairSet) -> list[tuple[str, str]]:
    """The same for pairs of the same two texts, whichever is left.

    >>> pair_keys(PairSet.of(["B  a", "x"], ["c", "b A"]))
    [('b a', 'c'), ('b a', 'x')]
    """
    plain = (
        (single_spaces(left).casefold(), single_spaces(right).casefold())
        for left, right in zip(pairs.left, pairs.right, strict=True)
    )
    return [(min(both), max(both)) for both in plain]


def find_contradictions(
    splits: Iterable[PairSet], keys: Sequence[tuple[str, str]], grades: Sequence[float]
) -> tuple[Contradiction, ...]:
    """The pairs that occur with labels over a tenth of the scale apart, the widest apart first. keys, grades: of all splits."""
    texts = [both for pairs in splits for both in zip(pairs.left, pairs.right, strict=True)]
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    least = APART * (max(grades, default=0.0) - min(grades, default=0.0))
    repeated = [mine for mine in rows.values() if len(mine) > 1]
    found = [Contradiction(*texts[mine[0]], tuple(sorted({grades[row] for row in mine}))) for mine in repeated]
    torn = [one for one in found if one.grades[-1] - one.grades[0] > least]
    return tuple(sorted(torn, key=lambda one: one.grades[0] - one.grades[-1]))


def find_leak(name: str, splits: dict[str, PairSet], keys: dict[str, list[tuple[str, str]]]) -> Leak:
    """What a split shares with train."""
    trained = set(keys["train"])
    train, held_out = splits["train"], splits[name]
    return Leak(
        name,
        sum(key in trained for key in keys[name]),
        _share_within(held_out.left, train.left),
        _share_within(held_out.right, train.right),
    )


def _share_within(texts: Sequence[str], others: Sequence[str]) -> float:
    known = {single_spaces(text).casefold() for text in others}
    mine = {single_spaces(text).casefold() for text in texts}
    return len(mine & known) / max(1, len(mine))


COMPARED_AT_ONCE = 1024  # anchors that are compared with all right texts at a time


@dataclass(frozen=True)
class Lengths:
    """Tokens of the texts: median, 95 % quantile, longest. limit: what the recipe keeps. cut: the share of texts beyond it.

    unknown: the share of the tokens that the encoder's vocabulary lacks.
    """

    median: float
    high: float
    longest: int
    limit: int
    cut: float
    unknown: float


@dataclass(frozen=True)
class Rival:
    """A text of another pair that the encoder finds closer to the left text than its own right text: maybe a right answer too.

    row, other: the pairs. own, similarity: the cosines of the left text with its own right text and with the other one.
    """

    row: int
    other: int
    own: float
    similarity: float


@dataclass(frozen=True)
class Seen:
    """pairs: what was looked at. orders: the batches of each. rivals: the clearest ones first; anchors_with_rivals: a share."""

    pairs: PairSet
    orders: dict[str, OrderHardness]
    lengths: Lengths
    rivals: tuple[Rival, ...]
    anchors_with_rivals: float


def inspect_recipe(recipe: Recipe, task: Task, at_most: int = 0) -> Seen:
    """The training pairs of the first stage, as the encoder sees them as it comes.

    at_most: look at that many of the pairs only, 0 for all.
    """
    stage, seed = recipe.stages[0], recipe.seeds[0]
    model = load_encoder(recipe.encoder, stage.train.max_seq_length)
    if recipe.ignore:
        give_tokenizer(model, ignoring(model.tokenizer, recipe.ignore))
    if prompts := choose_prompts(model, recipe.prompts, alike=task.kind in ALIKE):
        say(f"{task.name}: {prompts}")
    task = add_prompts(task, prompts)
    pairs = training_pairs(model, task, stage, np.random.default_rng([seed, 1]))
    if 0 < at_most < len(pairs):
        pairs = pairs.take(range(at_most))
    left, right = (encode(model, texts, "encoding texts") for texts in (pairs.left, pairs.right))
    positive = pairs.positives(stage.loss.positive_above)
    rivals, share = find_rivals(pairs, left, right, positive)
    return Seen(pairs, look_at_orders(recipe, pairs, left, right, positive), measure_lengths(model, pairs), rivals, share)


def look_at_orders(
    recipe: Recipe, pairs: PairSet, left: np.ndarray, right: np.ndarray, positive: np.ndarray
) -> dict[str, OrderHardness]:
    """For every order, what its first epoch would meet."""
    stage, seed = recipe.stages[0], recipe.seeds[0]
    sides = {"left": Side.of(pairs.left, pairs.right), "right": Side.of(pairs.right, pairs.left)}
    ordered = sides[stage.order.side]
    _, first = np.unique(ordered.text, return_index=True)
    ordered = ordered.encoded((left if stage.order.side == "left" else right)[first], np.einsum("ij,ij->i", left, right))
    texts = sides["left"].text, sides["left"].other
    orders = {name: order_pairs(ordered, settings_of(name, stage.order), epoch_seed(seed, 0)) for name in ORDERINGS}
    return {name: inspect_batches(order, stage.train.batch_size, left, right, *texts, positive) for name, order in orders.items()}


def settings_of(order: str, settings: OrderSettings) -> OrderSettings:
    """The recipe's settings for another order, without the controls that it does not heed."""
    unheeded = {name: OrderSettings.model_fields[name].default for name in CONTROLS if name not in ORDERINGS[order].controls}
    return settings.model_copy(update={"by": order, **unheeded})


def measure_lengths(model: SentenceTransformer, pairs: PairSet) -> Lengths:
    """The tokens of the texts, or of a sample of them, and what the model's limit leaves out."""
    texts = spread((*pairs.left, *pairs.right), MEASURED_TEXTS)
    counts = np.array(count_tokens(model, texts))
    limit = length_of(model) or int(counts.max(initial=0))
    return Lengths(
        median=float(np.median(counts)),
        high=float(np.quantile(counts, 0.95)),
        longest=int(counts.max()),
        limit=limit,
        cut=float((counts > limit).mean()),
        unknown=share_unknown(model, texts),
    )


def find_rivals(
    pairs: PairSet, left: np.ndarray, right: np.ndarray, positive: np.ndarray, margin: float = FALSE_NEGATIVE_MARGIN
) -> tuple[tuple[Rival, ...], float]:
    """For each positive pair the right text of another one that is closest to its left text, if it beats its own by the margin.

    The clearest ones first, and the share of positive pairs that have one. Texts that are a positive pair anyway do not count.
    """
    left, right = unit_rows(left), unit_rows(right)
    known = set(zip(np.array(pairs.left, object)[positive], np.array(pairs.right, object)[positive], strict=True))
    own = np.einsum("ij,ij->i", left, right)
    anchors = np.flatnonzero(positive)
    found = [
        Rival(row, other, float(own[row]), similarity)
        for row, other, similarity in _closest_unknown(left, right, anchors, pairs, known)
        if similarity > own[row] + margin
    ]
    found.sort(key=lambda one: one.own - one.similarity)
    return tuple(found), len(found) / max(1, len(anchors))


def _closest_unknown(
    left: np.ndarray, right: np.ndarray, anchors: np.ndarray, pairs: PairSet, known: set[tuple[str, str]]
) -> Iterator[tuple[int, int, float]]:
    """For each anchor the closest right text that is not known to go with it, and not the left text itself."""
    for start in range(0, len(anchors), COMPARED_AT_ONCE):
        rows = anchors[start : start + COMPARED_AT_ONCE]
        similarity = left[rows] @ right.T  # (rows, N)
        for row, line in zip(rows.tolist(), similarity, strict=True):
            for other in np.argsort(-line)[:COMPARED_AT_ONCE].tolist():
                text = pairs.right[other]
                if text != pairs.left[row] and (pairs.left[row], text) not in known:
                    yield row, other, float(line[other])
                    break
