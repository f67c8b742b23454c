"""The runs that a table asks for, and about how long each takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product

from lab.changes import recipes_of_evidence
from lab.comparators import recipes_of_comparators
from lab.guises import base_task
from lab.keys import read_data, settings_key
from lab.paper import PRESETS, all_rows, open_rows, tables
from lab.rows import read_row
from lab.searches import searches
from pairtune import Recipe, Run, UserError
from pairtune.tune.worker import Job


def job_key(job: Job) -> str:
    """The same for runs of the same settings and seed, whatever their names: what records are found by."""
    return f"{settings_key(job.recipe)}-{job.seed}"


def record_key(run: Run) -> str:
    """The key of the job that a record is the result of."""
    return f"{settings_key(run.recipe)}-{run.seed}"


def choose_recipes(what: str, preset: str = "paper", overrides: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of a table, of the open points, of comparators, of evidence, of the search for the best, of a task; or one row.

    `all`: the tables and the open points. `everything`: what the pages show, the most important first.
    """
    if what == "everything":
        return [recipe for group in choose_everything(overrides) for recipe in group]
    if what.partition(":")[0] == "comparators":
        return recipes_of_comparators(overrides, what.partition(":")[2])
    if what == "evidence":
        return recipes_of_evidence(overrides)
    if what == "best":
        return [one.recipe(overrides) for search in searches().values() for one in search.changed_rows]
    if what.startswith("best:") and what[5:] in searches():
        return [one.recipe(overrides) for one in searches()[what[5:]].changed_rows]
    return [read_row(name, overrides) for name in choose_rows(what, preset)]


def choose_everything(overrides: Sequence[str] = ()) -> list[list[Recipe]]:
    """What the pages show: the paper's rows, the comparators, the evidence, the rows of its code; what waits for labels last."""
    compared = recipes_of_comparators(overrides)
    silver = [recipe for recipe in compared if "+silver" in recipe.task]
    others = [recipe for recipe in compared if "+silver" not in recipe.task]
    paper, released = ([read_row(name, overrides) for name in choose_rows("all", preset)] for preset in PRESETS)
    return [paper, others, recipes_of_evidence(overrides), released, silver]


def choose_rows(what: str, preset: str = "paper") -> list[str]:
    """The names of the rows of a table, of the open points, of a task; or one row."""
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}; known: {', '.join(PRESETS)}")
    rows = all_rows()
    groups = {**tables(), "open": open_rows(), "all": (*rows, *open_rows())}
    groups |= {task: tuple(name for name in (*rows, *open_rows()) if name.startswith(f"{task}/")) for task in searches()}
    if what not in groups and what not in (*rows, *open_rows(), *(f"{task}/best" for task in searches())):
        known = ", ".join((*tables(), "open", "comparators", "evidence", "best", "all", "everything", *searches()))
        raise UserError(f"there is no table {what!r}; known: {known}, best:TASK, comparators:TASK, or a row of theirs")
    names = [name for name in groups.get(what, [what]) if preset == "paper" or name in rows]
    if not names:
        raise UserError(f"{what} has no row in the preset {preset}: the code of the paper has settings for its tables alone")
    return [PRESETS[preset] + name for name in names]


def plan(table: str, preset: str, settings: Sequence[str], model: str, seeds: Sequence[int]) -> list[Job]:
    """The runs of what `reproduce` was asked for. model: of everything, several with commas."""
    if table == "everything":
        return plan_everything(choose_everything(settings), model.split(","), seeds)
    return plan_jobs(choose_recipes(table, preset, settings), model, seeds)


def plan_jobs(recipes: Iterable[Recipe], encoder: str, seeds: Sequence[int]) -> list[Job]:
    """A run for every recipe and seed, the longest first so that the end is not spent waiting for one; none twice."""
    chosen = [recipe.model_copy(update={"encoder": encoder}) for recipe in recipes]
    jobs = [Job(recipe, seed, cost_of(recipe)) for recipe in chosen for seed in seeds]
    return sorted({job_key(job): job for job in reversed(jobs)}.values(), key=lambda job: -job.cost)


FIRST_SEEDS = 3  # so many give an interval; the others make it narrower
TABLE_GROUPS = 2  # the groups that the paper's tables are made of: its rows, the comparators


def plan_everything(groups: Sequence[Sequence[Recipe]], encoders: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """All runs, none twice, the most important first: the tables before the rest, three seeds before the others.

    The tables with all encoders, group by group; then all else with the first encoder, then with the next; each seed by seed.
    """
    found: dict[str, tuple[tuple[float, ...], Job]] = {}
    for (number, recipes), (place, encoder), seed in product(enumerate(groups), enumerate(encoders), seeds):
        later, table = seed not in sorted(seeds)[:FIRST_SEEDS], number < TABLE_GROUPS
        part = (number, place) if table else (place, number)
        for job in plan_jobs(recipes, encoder, [seed]):
            found.setdefault(job_key(job), ((not table, later, *part, seed, -job.cost), job))
    return [job for _, job in sorted(found.values(), key=lambda entry: entry[0])]


def cost_of(recipe: Recipe) -> float:
    """About how long a run takes, in seconds on one GPU."""
    costs = _costs()
    size = costs["epochs"].get(base_task(recipe.task), 10.0)
    return sum(
        train.epochs
        * size
        * sum(costs["splits"].get(name, 1.0) for name in train.splits.split("+"))
        * costs["negatives"].get(train.negatives, 1.0)
        * max(1.0, train.candidates / 10)
        for train in (stage.train for stage in recipe.stages)
    )


@cache
def _costs() -> dict[str, dict[str, float]]:
    return read_data("costs.toml")
