"""What the first command shows: the same searches before and after training."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from pairtune.data.datasets import load_task
from pairtune.encoders.index import Index
from pairtune.encoders.loading import load_encoder
from pairtune.runs.evidence import shorten

WIDEST = 60  # characters of a call

QUERIES = (
    "ask for a password without showing it",
    "break a long paragraph into lines",
    "put tasks in order so that each comes after what it depends on",
)


def show_searches(model: Path, screen: Console, top: int = 3) -> None:
    """Three searches among the functions of the modules that were held out, by the encoder as it came and as it is now."""
    corpus = load_task("stdlib").test.corpus or ()
    encoders = {"before": load_encoder("minilm"), "after": load_encoder(str(model))}
    indexes = {name: Index.build(encoder, corpus) for name, encoder in encoders.items()}
    for query in QUERIES:
        table = Table("before", "after", title=f"“{query}”", title_justify="left")
        found = [indexes[name].search(encoder, query, top) for name, encoder in encoders.items()]
        for before, after in zip(*found, strict=True):
            table.add_row(*(f"{score:.2f}  {shorten(text, WIDEST)}" for score, text in (before, after)))
        screen.print(table)
