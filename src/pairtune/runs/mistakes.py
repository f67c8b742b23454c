"""What is wrong with a recipe, in words: every bad field with what was given and what was expected."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pairtune.runs.recipe import RECIPE_TABLES, Recipe, Source

if TYPE_CHECKING:
    from pydantic import ValidationError

HINTS = {
    "train.epochs": "an epoch is a pass over all pairs: give a whole number from 1 to 10,000 (1 to 10 are usual)",
    "loss.temperature": "the softmax divides by it: give a value above 0 (0.05 is usual)",
    "loss.mix": "μ weighs the two losses: give a value from 0 (pointwise only) to 1 (BSC only)",
    "ignore": r"write a list of regular expressions, such as ['https?://\S+']",
    "sources": "write each source under its own [[sources]] heading, with name and data",
    "train.splits": "name the task's splits with a + between them, such as train+titles (`pairtune tasks` lists them)",
}


RENAMED = {
    "loss.normalise": "loss.normalize",
    "loss.threshold": "loss.positive_above",
    "loss.mini_batch": "loss.mini_batch_size",
    "loss.temperature_rate": "loss.temperature_learning_rate",
    "order.neighbours": "order.neighbors",
    "sources.group": "sources.keep_together",
    "train.rate": "train.learning_rate",
    "train.batch": "train.batch_size",
    "train.max_length": "train.max_seq_length",
}


def explain(problem: ValidationError, origin: str, *, staged: bool = False) -> str:
    """All bad fields in one message, each with what was given and what was expected."""
    lines = [_explain_one(dict(error), staged) for error in problem.errors()]
    return "\n".join(f"{origin}: {line}" for line in lines)


def _explain_one(error: dict[str, Any], staged: bool) -> str:
    where = [str(part) for part in error["loc"]]
    plain = where[2:] if where[0] == "stages" and len(where) > 2 else where
    shown = ".".join(where if staged else plain)
    if error["type"] == "extra_forbidden":
        if new := RENAMED.get(".".join(part for part in plain if not part.isdigit())):
            return f"{shown} is now called {new}"
        known = _known_keys(plain[:-1])
        near = [".".join([*plain[:-1], key]) for key in get_close_matches(plain[-1], known, 1)] or _in_a_table(plain)
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"{shown} is not a setting{meant}; known here: {', '.join(known)}"
    if error["type"] == "missing":
        return f"{shown} is missing"
    named = ".".join(part for part in plain if not part.isdigit())  # of a list, as a whole
    message = HINTS.get(named) or error["msg"][0].lower() + error["msg"][1:]
    return f"{shown} is {error['input']!r}; {message}"


def _in_a_table(plain: list[str]) -> list[str]:
    """The setting of a table that stands outside of it: learning_rate is train.learning_rate."""
    return [f"{name}.{plain[0]}" for name, table in RECIPE_TABLES.items() if len(plain) == 1 and plain[0] in table.model_fields]


def _known_keys(where: list[str]) -> list[str]:
    if where and where[0] == "sources":
        return list(Source.model_fields)
    if where and where[0] in RECIPE_TABLES:
        return list(RECIPE_TABLES[where[0]].model_fields)
    return [key for key in Recipe.model_fields if key not in ("stages", "adapter")] + ["stages", *RECIPE_TABLES]
