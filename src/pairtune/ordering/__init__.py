"""Which pairs share a batch: orderings are functions from one side of the pairs to a permutation that falls into groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pairtune.errors import UserError
from pairtune.ordering.examples import order_by_examples
from pairtune.ordering.order import Order, Side, epoch_seed, order_by_queries, order_original, order_uniformly
from pairtune.ordering.shingles import order_by_clusters, order_by_neighbors, order_by_words
from pairtune.runs.recipe import OrderSettings

__all__ = ["ORDERINGS", "Order", "Ordering", "Side", "check_controls", "epoch_seed", "note_limits", "order_pairs"]

CONTROLS = ("drop_identical", "skip_nearest", "margin")


@dataclass(frozen=True)
class Ordering:
    """An ordering, what it must be given besides the number of pairs, and the false-negative controls that it heeds."""

    make: Callable[[Side, OrderSettings, int], Order]
    needs: Literal["nothing", "texts", "vectors"] = "nothing"
    controls: tuple[str, ...] = ()


ORDERINGS = {
    "original": Ordering(order_original),
    "uniform": Ordering(order_uniformly),
    "queries": Ordering(order_by_queries, "texts"),
    "examples": Ordering(order_by_examples, "vectors", CONTROLS),
    "words": Ordering(order_by_words, "texts", ("drop_identical",)),
    "clusters": Ordering(order_by_clusters, "vectors", ("drop_identical",)),
    "neighbors": Ordering(order_by_neighbors, "vectors", CONTROLS),
}


def order_pairs(side: Side, settings: OrderSettings, seed: int) -> Order:
    """The order that the settings name: the same for the same side, settings and seed, everywhere."""
    check_controls(settings)
    by = settings.by if len(side) else "original"  # no pairs: nothing to compare
    return ORDERINGS[by].make(side, settings, seed)


def check_controls(settings: OrderSettings) -> None:
    """Refuse a control that the chosen order would not heed."""
    for name in CONTROLS:
        value = getattr(settings, name)
        if value != OrderSettings.model_fields[name].default and name not in ORDERINGS[settings.by].controls:
            heeding = ", ".join(by for by, ordering in ORDERINGS.items() if name in ordering.controls)
            raise UserError(
                f"order.{name} is {value!r}, but the order by {settings.by!r} does not use it: "
                f"leave it out, or take one of: {heeding}"
            )
    if settings.margin is not None and settings.distance != "cosine":
        raise UserError('order.margin compares cosines: leave it out, or set order.distance = "cosine"')
    if settings.by == "examples" and settings.skip_nearest >= settings.neighbors:
        raise UserError(
            f"order.skip_nearest is {settings.skip_nearest}, but order.neighbors is {settings.neighbors}: "
            f"no neighbor would be left. Raise order.neighbors, or skip fewer"
        )


def note_limits(side: Side, settings: OrderSettings) -> list[str]:
    """What the settings ask for and this data cannot give; the order is made with what there is."""
    count = len(side)
    notes: list[str] = []
    if ORDERINGS[settings.by].needs == "nothing" or not count:
        return notes
    if settings.group > count:
        notes.append(f"order.group is {settings.group}, but there are only {count} pairs: a group holds all of them at most")
    if settings.by == "examples" and settings.neighbors > count - 1:
        notes.append(f"order.neighbors is {settings.neighbors}, but there are only {count - 1} other pairs: all are considered")
    if settings.by == "clusters" and settings.clusters > len(side.texts):
        notes.append(
            f"order.clusters is {settings.clusters}, but there are only {len(side.texts)} distinct texts: as many clusters"
        )
    if count > 1 and len(side.texts) == 1:
        notes.append(
            f"all {count} {settings.side} texts are identical: no pair is nearer than another, so the order is random; "
            f"order.side = {'right' if settings.side == 'left' else 'left'!r} may be what you want"
        )
    return notes
