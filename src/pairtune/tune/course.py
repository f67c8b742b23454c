"""The course of a race: what to train next, and whose race is over. All of it follows from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.tune.budget import Budget
from pairtune.tune.folds import Folds, fold_name
from pairtune.tune.job import Job
from pairtune.tune.ledger import Entry, Ledger
from pairtune.tune.race import ENOUGH, Comparison, choose, common_noise, compare, judge
from pairtune.tune.space import Space, describe_changes
from pairtune.tune.worker import Done

Work = tuple[Entry, int]  # a candidate and the number of a fold


@dataclass
class Course:
    """Hands out folds to train and takes their results; several processes may each have one on the same ledger."""

    ledger: Ledger
    space: Space
    folds: Folds
    budget: Budget
    metric: str

    def next_job(self) -> Job | None:
        """The next fold to train, claimed; None when there is nothing to do (for now) or nothing left to do it with."""
        entries = self.review()
        left = self.budget.left(entries)
        if left < 1 or self.ledger.closed:
            return None
        work = self._open_work(entries) or self._new_work(entries, left)
        if work is None:
            return None
        entry, fold = work
        self.ledger.claim(entry, fold)
        return self.job(entry, fold)

    def job(self, entry: Entry, fold: int) -> Job:
        """The training of a candidate on a fold."""
        recipe = self.space.recipe(entry.levels, name=f"candidate-{entry.number}")
        return Job(recipe.model_copy(update={"task": fold_name(fold), "dev": "given", "dev_candidates": 0}), fold)

    def settle(self, job: Job, done: Done) -> None:
        """Note what became of a fold."""
        number = int(job.recipe.name.removeprefix("candidate-"))
        entry = next(one for one in self.ledger.entries() if one.number == number)
        if done.record is not None:
            metric = self.metric
            scores = (done.record.after["dev"][metric], done.record.before["dev"][metric])
            self.ledger.report(entry, job.seed, *scores, done.took)
        elif number == self.ledger.entries()[0].number:
            raise UserError(f"the starting recipe cannot be trained: {done.problem}")
        else:
            self.ledger.end(entry, f"failed: {done.problem.splitlines()[0]}", None)
        self._say(entry, job.seed, done)

    def review(self) -> list[Entry]:
        """All candidates, after those have been ended that are clearly behind the best, or through all folds."""
        entries = self.ledger.entries()
        for entry in entries[1:]:
            if not entry.ended and entry.scores and not entry.claimed:
                found = self.against_best(entry, entries)
                verdict = judge(found, len(self.folds.numbers))
                if verdict in ("dropped", "tie") or len(entry.scores) == len(self.folds.numbers):
                    self.ledger.end(entry, verdict, self.gain(entry, entries).gain)
        return self.ledger.entries()

    def against_best(self, entry: Entry, entries: Sequence[Entry]) -> Comparison:
        """A candidate beside the best of the others."""
        others = [one for one in entries if one.number != entry.number]
        return compare(entry.scores, others[self.best(others)].scores, self.noise(entries))

    def best(self, entries: Sequence[Entry]) -> int:
        """The place of the candidate that would be taken now."""
        changes = [len(self.space.changes(entry.levels)) for entry in entries]
        return choose([entry.scores for entry in entries], changes, len(self.folds.numbers))

    def gain(self, entry: Entry, entries: Sequence[Entry]) -> Comparison:
        """A candidate beside the starting recipe."""
        return compare(entry.scores, entries[0].scores, self.noise(entries))

    def noise(self, entries: Sequence[Entry]) -> float | None:
        """How much differences vary from fold to fold."""
        return common_noise([one.scores for one in entries[1:]], entries[0].scores)

    def _open_work(self, entries: Sequence[Entry]) -> Work | None:
        """A fold of a candidate that is in the race: first of the starting recipe, which all are compared with."""
        base, best = entries[0], entries[self.best(entries)]
        if len(base.scores) + len(base.claimed) < min(ENOUGH, len(self.folds.numbers)):
            return base, self._free_folds(base)[0]
        for entry in entries[1:]:
            free = self._free_folds(entry)
            if entry.ended or entry.claimed or not free:
                continue
            needed = [one for one in (base, best) if free[0] in self._free_folds(one) and not one.ended]
            return (needed or [entry])[0], free[0]
        return None

    def _new_work(self, entries: Sequence[Entry], left: float) -> Work | None:
        """The first fold of a new candidate, if it can still win: a neighbor of the best, then one that the sampler draws."""
        if left < min(ENOUGH, len(self.folds.numbers)):
            return None
        known = [entry.levels for entry in entries]
        best = entries[self.best(entries)]
        fresh = next((levels for levels in self.space.neighbors(best.levels) if levels not in known), None)
        entry = self.ledger.enter(fresh, self.space) if fresh is not None else self.ledger.draw(self.space)
        return None if entry is None else (entry, self.folds.numbers[0])

    def _free_folds(self, entry: Entry) -> list[int]:
        return [fold for fold in self.folds.numbers if fold not in entry.scores and fold not in entry.claimed]

    def _say(self, entry: Entry, fold: int, done: Done) -> None:
        """One line for each fold: what came out, how it compares, what is best so far, what is left."""
        entries = self.ledger.entries()
        now = next(one for one in entries if one.number == entry.number)
        what = describe_changes(self.space.changes(entry.levels))
        if done.record is None:
            say(f"candidate {entry.number} ({what}) failed: {done.problem.splitlines()[0]}")
            return
        place = f"{self.folds.numbers.index(fold) + 1} of {len(self.folds.numbers)}"
        line = f"candidate {entry.number} ({what}), fold {place}: {self.metric} {now.scores[fold]:.4f}"
        if now.number != entries[0].number and (found := self.against_best(now, entries)).folds:
            line += f"; against the best {found}"
        best = entries[self.best(entries)]
        line += f"; best so far: {describe_changes(self.space.changes(best.levels))}"
        left = self.budget.describe_left(entries)
        say(f"{line}; {left}" if left else line)
