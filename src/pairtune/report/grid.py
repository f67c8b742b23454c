"""A table of texts, for the terminal and for a page of the documentation."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table as TerminalTable


@dataclass(frozen=True)
class Grid:
    """title, head and rows of cells; notes stand below."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def for_terminal(self) -> TerminalTable:
        """With the notes as its caption."""
        table = TerminalTable(*self.head, title=self.title.replace("`", ""), caption="\n".join(self.notes).replace("`", ""))
        table.caption_justify = "left"
        for column in table.columns:
            column.overflow = "fold"  # no name is cut off in a narrow terminal
        for row in self.rows:
            table.add_row(*(cell.replace("`", "").replace("**", "") for cell in row))
        return table

    def as_markdown(self) -> str:
        """Without the title, which is a heading of the page.

        >>> print(Grid("t", ("a", "b"), (("1", "2"),)).as_markdown())
        | a | b |
        | --- | --- |
        | 1 | 2 |
        """
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join([table, *self.notes])
