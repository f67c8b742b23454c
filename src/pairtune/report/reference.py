"""Every setting that a recipe may have, for the terminal and the documentation: from the models that check them."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from pairtune.report.grid import Grid
from pairtune.runs.recipe import RECIPE_TABLES, Recipe, Settings, Source, Stage

INTRO = """# Settings of a recipe

A recipe is a TOML file. The settings that people change most come first. Those that exist for the paper's sake come last.
`pairtune recipes --settings` prints the same tables.

`--set loss.temperature=0.05` on the command line overrides the file. `pairtune recipes own/labelled` prints a shipped recipe
to start from. Unknown settings and values are refused. [Choosing](../choosing.md) says which values to take,
[orders](../orders.md) explains the orders, and [the equations](../equations.md) explain the letters.

```toml
task = "stsb"

[loss]
kind = "combo"
mix = 0.1

[train]
epochs = 3
```

A recipe can have several stages, trained one after the other. Each stage has its own `[[stages]]` heading. `[loss]`, `[order]`
and `[train]` are the defaults of all stages; `--set` changes all stages:

```toml
task = "stsb"

[train]
epochs = 3

[[stages]]
select = "last"  # otherwise as the recipe has it: the best epoch on dev
loss.kind = "mse"

[[stages]]
loss.kind = "bsc"
train.learning_rate = 1e-5
```

A recipe can train on several datasets at once. Each has its own `[[sources]]` heading: see [your own data](../own-data.md)."""

USUAL = (  # what people change
    "encoder",
    "loss.kind",
    "loss.pointwise",
    "loss.mix",
    "loss.temperature",
    "loss.guide",
    "order.by",
    "order.group",
    "train.epochs",
    "train.batch_size",
    "train.learning_rate",
    "train.max_seq_length",
    "train.precision",
    "seeds",
    "average_of",
)
PAPER = (  # what only the paper, or its released code, asks for
    "loss.normalize",
    "loss.reduction",
    "loss.directions",
    "loss.margin",
    "order.first",
    "order.shingle",
    "train.epsilon",
    "train.bias_correction",
    "train.dropout",
    "train.labels",
    "train.candidates",
    "dev_candidates",
    "order.group_counts",
    "order.distance",
    "loss.host",
    "stages.select",
)
HEAD = ("setting", "default", "values", "what it does")

SIGNS = {Gt: ("gt", "above"), Ge: ("ge", "from"), Le: ("le", "to"), Lt: ("lt", "to below")}


def make_settings_page() -> str:
    """The page as Markdown."""
    parts = [INTRO]
    for grid in setting_grids():
        parts += [f"## {grid.title}", grid.as_markdown()]
    return "\n\n".join(parts) + "\n"


def setting_grids() -> list[Grid]:
    """A table for each group of settings: the usual ones, more, those for the paper's sake."""
    fields = list_settings()
    more = tuple(name for name in fields if name not in USUAL + PAPER)
    groups = {"What people change": USUAL, "More": more, "For the paper's sake": PAPER}
    return [Grid(title, HEAD, tuple(_setting_row(name, fields[name]) for name in names)) for title, names in groups.items()]


def list_settings() -> dict[str, FieldInfo]:
    """Every setting by its dotted name, in the order of the models.

    >>> list(list_settings())[:2]
    ['name', 'task']
    """
    parts: dict[str, type[Settings]] = {"": Recipe, **RECIPE_TABLES}
    listed = {
        f"{part}{'.' * bool(part)}{name}": field
        for part, model in parts.items()
        for name, field in model.model_fields.items()
        if name not in ("stages", "adapter")
    }
    return {**listed, "stages.select": Stage.model_fields["select"]}


def _setting_row(name: str, field: FieldInfo) -> tuple[str, ...]:
    return f"`{name}`", show_default(field), describe_values(field), field.description or ""


def show_default(field: FieldInfo) -> str:
    """As TOML has it; a dash where there is none.

    >>> show_default(RECIPE_TABLES["train"].model_fields["fast"]), show_default(RECIPE_TABLES["order"].model_fields["margin"])
    ('`true`', '–')
    """
    if field.is_required() or field.default is None:
        return "–"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{value:g}`".replace("e-0", "e-") if isinstance(value, float) else f"`{json.dumps(value)}`"


def describe_values(field: FieldInfo) -> str:
    """The words that a setting takes, or the kind and the range of its numbers.

    >>> describe_values(RECIPE_TABLES["loss"].model_fields["mix"])
    'a number from 0 to 1'
    >>> describe_values(RECIPE_TABLES["loss"].model_fields["reduction"])
    '`sum`, `mean`'
    """
    kind: Any = field.annotation
    kind = next((one for one in get_args(kind) if get_origin(one) is Literal), kind)  # of a choice that may be left out
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(kind))
    if get_origin(kind) is dict:
        return f"a table of texts: {', '.join(f'`{word}`' for word in get_args(get_args(kind)[0]))}"
    inner = get_args(kind)[0] if get_args(kind) else kind
    if inner is Source:
        return f"tables with {', '.join(f'`{name}`' for name in Source.model_fields)}"
    words = {bool: "`true`, `false`", str: "a text", int: "a whole number", float: "a number"}[_plain(inner)]
    if get_origin(kind) is tuple:
        return words.replace("a whole number", "whole numbers").replace("a text", "texts")
    limits = {type(one): one for one in field.metadata}
    return " ".join(
        [words, *(f"{word} {_grouped(getattr(limits[sign], name))}" for sign, (name, word) in SIGNS.items() if sign in limits)]
    )


def _grouped(value: float) -> str:
    """As people write it.

    >>> _grouped(1048576), _grouped(0.5)
    ('1,048,576', '0.5')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _plain(kind: Any) -> type:
    """Of a type with conditions, the type."""
    return get_args(kind)[0] if get_args(kind) else kind
