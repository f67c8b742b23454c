"""What our records say about the paper's conclusions and about what it leaves open: computed by rule, never typed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from lab.book import Book, Difference, compare
from lab.rows import read_row
from pairtune.data.datasets import TASKS

CONFIRMED, NOT_CONFIRMED, DEPENDS = "confirmed", "not confirmed", "depends"
NOT_RUN, TOO_FEW = "not run yet", "open, one run each is too few"
Rule = Callable[[Sequence[Difference]], str]


@dataclass(frozen=True)
class Claim:
    """text: what is claimed. tests: pairs of recipes, the first of which should score higher. rule: gives the verdict.

    relative: whether it is about shares of a score.
    """

    text: str
    tests: tuple[tuple[str, str], ...]
    rule: Rule
    relative: bool = False


def most_hold(differences: Sequence[Difference]) -> str:
    """Confirmed: more than half surely hold and none surely fails. Not confirmed: none surely holds. Else it depends."""
    hold, fail = (sum(one.sign == sign for one in differences) for sign in (1, -1))
    if not hold:
        return NOT_CONFIRMED
    return CONFIRMED if not fail and 2 * hold > len(differences) else DEPENDS


def most_hold_by(low: float, high: float) -> Rule:
    """As `most_hold`, with the sizes of the differences where they are not what is claimed."""

    def rule(differences: Sequence[Difference]) -> str:
        verdict, sizes = most_hold(differences), [one.mean for one in differences]
        if verdict != CONFIRMED or all(low <= size <= high for size in sizes):
            return verdict
        return f"{verdict}, but by {100 * min(sizes):.1f} to {100 * max(sizes):.1f} points"

    return rule


def lost(difference: Difference) -> float:
    """The share of the first one's score that the second lacks."""
    return 1 - 1 / (1 + difference.relative)


def some_lose_a_tenth(differences: Sequence[Difference]) -> str:
    """Confirmed: one wrong setup surely loses, and more than a tenth. Not confirmed: none surely loses. Else it depends."""
    losses = [lost(one) for one in differences if one.sign > 0]
    if not losses:
        return NOT_CONFIRMED
    return CONFIRMED if max(losses) > 0.1 else DEPENDS


def which_is_better(first: str, second: str) -> Rule:
    """For an open question: which of the two surely scores higher, if it is the same one in every test that is sure."""

    def rule(differences: Sequence[Difference]) -> str:
        signs = {one.sign for one in differences} - {0}
        if len(signs) == 2:
            return f"{DEPENDS} on the task"
        return "no difference beyond the noise" if not signs else f"{first if signs == {1} else second} is better"

    return rule


def _against(first: str, *others: str) -> tuple[tuple[str, str], ...]:
    task = first.partition("/")[0]
    return tuple((first, f"{task}/{other}") for other in others)


CONCLUSIONS = (
    Claim(
        "Combo training with BSC and MSE generally yields the best results (the only exception is STS), and outperforms the "
        "triplet loss with advanced negative sampling.",
        (
            *_against("antique/combo", "mse", "bsc", "bsc-random"),
            *_against("cqa-a/combo", "mse", "bsc", "bsc-unshuffled", "triplet"),
            *_against("cqa-b/combo", "mse", "bsc", "triplet"),
            *_against("mrpc/combo", "mse", "bsc"),
            *_against("qqp/combo", "mse", "bsc"),
            *_against("stsb/mse", "combo"),
        ),
        most_hold,
    ),
    Claim(
        "The order in which the data is presented can be critical, as for CQA-A and CQA-B.",
        (
            *_against("cqa-a/bsc", "bsc-random"),
            *_against("cqa-a/bsc-unshuffled", "bsc-random"),
            *_against("cqa-b/bsc", "bsc-random", "bsc-unshuffled"),
        ),
        most_hold,
    ),
    Claim(
        "The use of labelled negatives generally improves the scores by 1–2 % absolute.",
        (*_against("antique/bsc", "bsc-positives"), *_against("cqa-a/bsc", "bsc-positives")),
        most_hold_by(0.01, 0.02),
    ),
    Claim(
        "Embedding normalization during training is important; it is useful to normalize over the batch, as for PFCC-S.",
        _against("pfcc-s/bsc", "bsc-row-norm", "bsc-no-norm"),
        most_hold,
    ),
    Claim(
        "τ of order 0.1 should be used with the standard normalization, and of order 1–3 with that of coordinates.",
        (*_against("stsb/bsc", "bsc-low-tau", "bsc-high-tau"), *_against("pfcc-s/bsc", "bsc-low-tau", "bsc-high-tau")),
        most_hold,
    ),
    Claim(
        "An incorrect training setup may hurt by more than 10 %: no labelled negatives, poorly formed batches, a wrong "
        "normalization or temperature.",
        (
            *_against("antique/bsc", "bsc-positives"),
            *_against("cqa-a/bsc-unshuffled", "bsc-random"),
            *_against("pfcc-s/bsc", "bsc-row-norm", "bsc-no-norm", "bsc-low-tau", "bsc-high-tau"),
            *_against("stsb/bsc", "bsc-low-tau", "bsc-high-tau"),
        ),
        some_lose_a_tenth,
        relative=True,
    ),
    Claim(
        "BSC suits ranking tasks more than others, where it helps as pre-training or together with MSE.",
        (
            *_against("antique/bsc", "mse"),
            *_against("cqa-a/bsc", "mse"),
            *_against("cqa-b/bsc", "mse"),
            *_against("pfcc-s/bsc", "mse"),
            *_against("mrpc/mse", "bsc"),
            *_against("qqp/mse", "bsc"),
            *_against("stsb/mse", "bsc"),
            *_against("stsb/bsc-then-mse", "mse"),
            *_against("mrpc/combo", "mse"),
            *_against("qqp/combo", "mse"),
        ),
        most_hold,
    ),
)
OPEN_POINTS = (
    Claim(
        "Sum or mean of the two directions of eq. 1? The paper writes a sum, its code takes the mean.",
        (*_against("stsb/combo", "combo-mean"), *_against("mrpc/combo", "combo-mean"), *_against("cqa-b/bsc", "bsc-mean")),
        which_is_better("the sum", "the mean"),
    ),
    Claim(
        "`range-batch` or true min-max? The paper says min-max, its code divides by the range and subtracts nothing.",
        (*_against("pfcc-s/bsc", "bsc-minmax"), *_against("qqp/bsc", "bsc-minmax")),
        which_is_better("`range-batch`", "`minmax-batch`"),
    ),
    Claim(
        "Does the group size count the anchor? The paper's 8 (5 for CQA-B) is 7 (4) in its code.",
        (*_against("cqa-a/bsc", "bsc-group-7"), *_against("cqa-b/bsc", "bsc-group-4")),
        which_is_better("the larger group", "the smaller group"),
    ),
    Claim(
        "Should epoch 1 be shuffled? The paper's code leaves it in file order.",
        (*_against("cqa-a/bsc", "bsc-first-original"), *_against("cqa-b/bsc", "bsc-first-original")),
        which_is_better("shuffled", "file order"),
    ),
    Claim(
        "Is a learned τ better than the paper's? It starts from the paper's value.",
        (
            *_against("cqa-b/bsc-learned", "bsc"),
            *_against("pfcc-s/bsc-learned", "bsc"),
            *_against("stsb/bsc-learned", "bsc"),
        ),
        which_is_better("the learned τ", "the paper's τ"),
    ),
)
LEARNED = ("cqa-b/bsc-learned", "pfcc-s/bsc-learned", "stsb/bsc-learned")


def differences_of(claim: Claim, book: Book, encoder: str) -> list[Difference | None]:
    """One for each test, in the task's main metric on test; None where it was not run."""
    return [
        compare(book.find(read_row(upper), encoder), book.find(read_row(lower), encoder), (metric, "test"))
        for upper, lower in claim.tests
        for metric in [TASKS[upper.partition("/")[0]].metric]
    ]


def judge(claim: Claim, book: Book, encoder: str) -> str:
    """The verdict by the claim's rule over the tests that were run, and how many those are."""
    found = differences_of(claim, book, encoder)
    run = [one for one in found if one is not None and isfinite(one.low)]
    if not run:
        return TOO_FEW if any(found) else NOT_RUN
    if 2 * len(run) <= len(found):
        return f"open, {len(run)} of {len(found)} comparisons so far"
    part = "" if len(run) == len(found) else f", from {len(run)} of {len(found)} comparisons"
    return f"{claim.rule(run)}{part}"


def learned_temperatures(name: str, book: Book, encoder: str) -> list[float]:
    """The τ of the epoch that was kept, for each seed."""
    runs = book.find(read_row(name), encoder).runs
    kept = [next(epoch for epoch in run.epochs if epoch.epoch == run.best_epoch) for run in runs]
    return [epoch.temperature for epoch in kept if epoch.temperature is not None]
