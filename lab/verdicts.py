"""What our records say about the claims: computed by rule from comparisons that are corrected together, never typed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from lab.book import Book, Sample, compare
from lab.claims import Claim, Contrast
from lab.rows import read_row
from lab.statistics import Difference, describe_interval, holm
from pairtune.data.datasets import TASKS

CONFIRMED, NOT_CONFIRMED, DEPENDS = "confirmed", "not confirmed", "depends"
NOT_RUN, TOO_FEW, AGAIN = "not run yet", "open, one run each is too few", "open, to be run again"


@dataclass(frozen=True)
class Finding:
    """A comparison with one encoder. plain: by how much the first is higher. tested: the same, less the share that is claimed.

    sure: whether it survives Holm's correction within its family. invalid: one of the rows has to be run again.
    """

    comparison: Contrast
    plain: Difference | None = None
    tested: Difference | None = None
    sure: bool = False
    invalid: bool = False

    @property
    def sign(self) -> int:
        """1 surely as claimed, -1 surely not, 0 within the noise."""
        return self.tested.sign if self.tested is not None and self.sure else 0

    @property
    def decides(self) -> bool:
        """Whether there are several valid runs of both rows."""
        return self.tested is not None and isfinite(self.tested.low)

    def __str__(self) -> str:
        """With a mark: ✓ and ✗ are sure after the correction, (✓) and (✗) only by themselves."""
        if self.plain is None or self.tested is None:
            return "to be run again" if self.invalid else "–"
        lost = f", {100 * self.plain.lost:.0f} % lost" if self.comparison.share and self.plain.mean > 0 else ""
        signs = {1: "✓", -1: "" if self.comparison.share else "✗", 0: ""}
        mark = signs[self.tested.sign]
        shown = mark if self.sure or not mark else f"({mark})"
        return f"{describe_interval(self.plain)}{lost} {shown}".rstrip()


class Family:
    """The comparisons of several claims with several encoders, corrected for their number, each counted once."""

    def __init__(self, claims: Sequence[Claim], book: Book, encoders: Sequence[str]) -> None:
        asked = dict.fromkeys((one, encoder) for claim in claims for one in claim.comparisons for encoder in encoders)
        found = {key: _look(*key, book) for key in asked}
        tested = {key: one.tested.p for key, one in found.items() if one.decides and one.tested is not None}
        sure = {key for key, kept in zip(tested, holm(list(tested.values())), strict=True) if kept}
        self._found = {key: _with_sure(one, key in sure) for key, one in found.items()}
        self.compared, self.sure = len(tested), len(sure)
        self.alone = sum(p < 0.05 for p in tested.values())

    def findings(self, claim: Claim, encoder: str) -> list[Finding]:
        """One for each comparison of a claim."""
        return [self._found[one, encoder] for one in claim.comparisons]


def _look(comparison: Contrast, encoder: str, book: Book) -> Finding:
    upper, lower = (book.find(read_row(name), encoder) for name in (comparison.upper, comparison.lower))
    metric = (TASKS[comparison.task].metric, "test")
    plain = compare(upper, lower, metric)
    tested = compare(upper, lower, metric, comparison.share) if comparison.share else plain
    return Finding(comparison, plain, tested, invalid=_invalid(upper) or _invalid(lower))


def _invalid(sample: Sample) -> bool:
    return sample.problem is not None


def _with_sure(one: Finding, sure: bool) -> Finding:
    return Finding(one.comparison, one.plain, one.tested, sure, one.invalid)


def judge(claim: Claim, findings: Sequence[Finding]) -> str:
    """The verdict by the claim's rule over the comparisons that were run, and how many those are."""
    if not claim.by_task:
        return _judge(claim, findings)
    tasks = dict.fromkeys(one.comparison.task for one in findings)
    verdicts = {task: _judge(claim, [one for one in findings if one.comparison.task == task]) for task in tasks}
    return "; ".join(f"{verdict} on `{task}`" for task, verdict in verdicts.items())


def _judge(claim: Claim, findings: Sequence[Finding]) -> str:
    run = [one for one in findings if one.decides]
    if not run:
        if any(one.invalid for one in findings):
            return AGAIN
        return TOO_FEW if any(one.tested for one in findings) else NOT_RUN
    if 2 * len(run) <= len(findings):
        return f"open, {len(run)} of {len(findings)} comparisons so far"
    part = "" if len(run) == len(findings) else f", from {len(run)} of {len(findings)} comparisons"
    return f"{VERDICTS[claim.rule](claim, run)}{part}"


def most_hold(claim: Claim, findings: Sequence[Finding]) -> str:
    """Confirmed: more than half surely hold and none surely fails. Not confirmed: none surely holds. Else it depends.

    A claim about sizes says what they are where they are not as claimed.
    """
    hold, fail = (sum(one.sign == sign for one in findings) for sign in (1, -1))
    if not hold:
        return NOT_CONFIRMED
    if fail or 2 * hold <= len(findings):
        return DEPENDS
    sizes = [one.plain.mean for one in findings if one.plain is not None]
    if claim.between is None or all(claim.between[0] <= size <= claim.between[1] for size in sizes):
        return CONFIRMED
    return f"{CONFIRMED}, but by {100 * min(sizes):.1f} to {100 * max(sizes):.1f} points"


def some_hold(_: Claim, findings: Sequence[Finding]) -> str:
    """Confirmed: one surely holds. Else not confirmed."""
    return CONFIRMED if any(one.sign > 0 for one in findings) else NOT_CONFIRMED


def which_is_better(claim: Claim, findings: Sequence[Finding]) -> str:
    """For an open question: which of the two surely scores higher, if it is the same one in every comparison that is sure."""
    tasks = {sign: [one.comparison.task for one in findings if one.sign == sign] for sign in (1, -1)}
    if not tasks[1] and not tasks[-1]:
        return "no difference beyond the noise"
    if tasks[1] and tasks[-1]:
        return f"{DEPENDS} on the task"
    better = claim.first if tasks[1] else claim.second
    return f"{better} is better on {', '.join(f'`{task}`' for task in dict.fromkeys(tasks[1] or tasks[-1]))}"


VERDICTS: dict[str, Callable[[Claim, Sequence[Finding]], str]] = {
    "most": most_hold,
    "some": some_hold,
    "which": which_is_better,
}


def learned_temperatures(name: str, book: Book, encoder: str) -> list[float]:
    """The τ of the epoch that was kept, for each seed."""
    runs = book.find(read_row(name), encoder).runs
    kept = [next(epoch for epoch in run.epochs if epoch.epoch == run.best_epoch) for run in runs]
    return [epoch.temperature for epoch in kept if epoch.temperature is not None]
