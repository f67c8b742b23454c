"""What the README says of the lab's records."""

from __future__ import annotations

import re
from pathlib import Path

from lab.book import Book
from lab.rows import read_row

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_figures_of_the_readme_are_those_of_the_records():
    book = Book(ROOT / "lab" / "results")
    rows = re.findall(r"^\| .+ \| (\S+) \| \**([\d.]+)\** \| \**([\d.]+)\** \| `(\S+)` \| (\d+) \|$", README, flags=re.MULTILINE)
    assert len(rows) == 7
    for metric, before, after, name, seeds in rows:
        found = book.find(read_row(name), "minilm")
        assert len(found) == int(seeds), name
        assert f"{found.runs[0].before['test'][metric]:.3f}" == before, name
        assert f"{found.mean((metric, 'test')):.3f}" == after, name
    for name, scores, mean in re.findall(r"\(`(cqa-a/\S+)`\) \| ([\d., ]+) \| \**([\d.]+)\** \|", README):
        found = book.find(read_row(name), "minilm")
        assert ", ".join(f"{value:.3f}" for value in found.scores(("MAP", "test"))) == scores.strip(), name
        assert f"{found.mean(('MAP', 'test')):.3f}" == mean, name
