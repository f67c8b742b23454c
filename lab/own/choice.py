"""The rules, chosen anew for each case from runs in which its dataset had no part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.own.own_runs import OwnRun, mean

SEARCHED = ("tune", "default")  # what a user gets: no variants
TRIED = 5  # variants that must have run on a case before it has a part in a choice
CaseGains = dict[str, dict[str, list[float]]]  # variant → case → what each seed gained on dev


@dataclass(frozen=True)
class LeftOut:
    """What a rule that has not seen a case's dataset gets on the case.

    chosen: the variant with the highest mean gain on dev over the other datasets' cases of the rule; of: how many cases.
    """

    case: str
    rule: str
    chosen: str
    of: int
    gain: float
    shipped: float


def leave_out(runs: Sequence[OwnRun], shipped: Callable[[OwnRun], str]) -> list[LeftOut]:
    """A line for each case on which enough variants ran. shipped: the variant that is the recipe of a case now."""
    own = [run for run in runs if run.system == "pairtune" and run.name not in SEARCHED]
    tried = {case: len({run.name for run in own if run.case == case}) for case in {run.case for run in own}}
    ours = [run for run in own if tried[run.case] >= min(TRIED, max(tried.values()))]
    cases = list(dict.fromkeys(run.case for run in ours))
    return [found for case in cases if (found := leave_out_one(ours, case, shipped)) is not None]


def leave_out_one(ours: Sequence[OwnRun], case: str, shipped: Callable[[OwnRun], str]) -> LeftOut | None:
    """The line of one case, None where no other dataset has a case of its rule."""
    own = next(run for run in ours if run.case == case)
    others = [run for run in ours if run.rule == own.rule and run.dataset != own.dataset]
    if not others:
        return None
    tried = {run.name for run in ours if run.case == case}
    chosen = best_on_dev([run for run in others if run.name in tried])
    return LeftOut(
        case=case,
        rule=own.rule,
        chosen=chosen,
        of=len({run.case for run in others}),
        gain=gain_on_test(ours, case, chosen),
        shipped=gain_on_test(ours, case, shipped(own)),
    )


def best_on_dev(runs: Sequence[OwnRun]) -> str:
    """The variant with the highest mean gain on dev, of those that ran on every case; the first of equal ones."""
    scores: CaseGains = defaultdict(lambda: defaultdict(list))
    for run in runs:
        scores[run.name][run.case].append(run.gain["dev"])
    cases = {run.case for run in runs}
    whole = {name: mean([mean(found[case]) for case in cases]) for name, found in scores.items() if set(found) == cases}
    return max(whole, key=whole.__getitem__)


def gain_on_test(runs: Sequence[OwnRun], case: str, name: str) -> float:
    """What a variant gained on the case's test, in the mean over its seeds."""
    return mean([run.gain["test"] for run in runs if run.case == case and run.name == name])
