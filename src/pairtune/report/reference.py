"""Every setting that a recipe may have, for the terminal and the documentation: from the models that check them."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from pairtune.report.grid import Grid
from pairtune.runs.recipe import TABLES, Recipe, Settings

INTRO = """# Settings of a recipe

Everything that a recipe may say, with what it has unless told (`pairtune recipes --settings` prints the same). A recipe is a
TOML file, a setting of `loss` in it a line under `[loss]`; `--set loss.temperature=0.05` on the command line comes before what
the file says. `pairtune recipes own/labelled` prints a shipped recipe, to begin with. What is not a setting, or not a value of
one, is refused. Which values to take is in [choosing](../choosing.md); the orders are described in [orders](../orders.md), the
letters in [the equations](../equations.md).

```toml
task = "stsb"

[loss]
kind = "combo"
mix = 0.1

[train]
epochs = 3
```

Several stages are trained one after the other, each under its own `[[stages]]`; what stands under `[loss]`, `[order]` and
`[train]` holds for those that do not say otherwise, what `--set` says for all:

```toml
task = "stsb"

[train]
epochs = 3

[[stages]]
loss.kind = "mse"

[[stages]]
loss.kind = "bsc"
train.learning_rate = 1e-5
```"""

SIGNS = {Gt: ("gt", "above"), Ge: ("ge", "from"), Le: ("le", "to"), Lt: ("lt", "to below")}


def make_settings_page() -> str:
    """The page as Markdown."""
    parts = [INTRO]
    for grid in setting_grids():
        parts += [f"## {grid.title}", grid.as_markdown()]
    return "\n\n".join(parts) + "\n"


def setting_grids() -> list[Grid]:
    """A table for each part of a recipe."""
    grids = []
    parts: dict[str, type[Settings]] = {"": Recipe, **TABLES}
    for part, model in parts.items():
        rows = [
            (f"`{part}{'.' if part else ''}{name}`", describe_default(field), describe_values(field), field.description or "")
            for name, field in model.model_fields.items()
            if name != "stages"
        ]
        grids.append(Grid(f"`{part}`" if part else "The recipe", ("setting", "unless told", "values", "what it is"), tuple(rows)))
    return grids


def describe_default(field: FieldInfo) -> str:
    """As TOML has it; a dash where there is none.

    >>> describe_default(TABLES["train"].model_fields["fast"]), describe_default(TABLES["order"].model_fields["margin"])
    ('`true`', '–')
    """
    if field.is_required() or field.default is None:
        return "–"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{value:g}`".replace("e-0", "e-") if isinstance(value, float) else f"`{json.dumps(value)}`"


def describe_values(field: FieldInfo) -> str:
    """The words that a setting takes, or the kind and the range of its numbers.

    >>> describe_values(TABLES["loss"].model_fields["mix"]), describe_values(TABLES["loss"].model_fields["reduction"])
    ('a number from 0 to 1', '`sum`, `mean`')
    """
    kind: Any = field.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(kind))
    if get_origin(kind) is dict:
        return f"a table of texts: {', '.join(f'`{word}`' for word in get_args(get_args(kind)[0]))}"
    inner = get_args(kind)[0] if get_args(kind) else kind
    words = {bool: "`true`, `false`", str: "a text", int: "a whole number", float: "a number"}[_plain(inner)]
    if get_origin(kind) is tuple:
        return words.replace("a whole number", "whole numbers").replace("a text", "texts")
    limits = {type(one): one for one in field.metadata}
    return " ".join(
        [words, *(f"{word} {getattr(limits[sign], name):g}" for sign, (name, word) in SIGNS.items() if sign in limits)]
    )


def _plain(kind: Any) -> type:
    """Of a type with conditions, the type."""
    return get_args(kind)[0] if get_args(kind) else kind
