"""Files of one JSON object a line, which many runs add to and which a crash may leave with half a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def append_line(path: Path, entry: dict[str, Any]) -> None:
    """Add one line; half a line before it stays one by itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(entry, separators=(",", ":"))
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}" if path.stat().st_size and not path.read_bytes().endswith(b"\n") else line)
        file.write("\n")


def read_entries(folder: Path, pattern: str = "*.jsonl") -> Iterator[dict[str, Any]]:
    """The objects of all files of a folder; half a line is passed over."""
    for path in sorted(folder.glob(pattern)):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry
