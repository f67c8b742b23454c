"""The datasets: one table, one loader per family, and a user's own files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from pairtune.cache import cache_folder
from pairtune.data.datasets import antique, cqa, glue, pfcc, stdlib
from pairtune.data.pairs import Task
from pairtune.data.splits import Splits, TaskInfo
from pairtune.errors import UserError
from pairtune.progress import say

TASKS: dict[str, TaskInfo] = {
    info.name: info for info in (glue.STSB, glue.MRPC, glue.QQP, antique.INFO, cqa.INFO_A, cqa.INFO_B, pfcc.INFO, stdlib.INFO)
}


@dataclass(frozen=True)
class TaskStatus:
    """Whether a task can be loaded here.

    found: its folder, or None. rows: pairs per split, where it was found. says: where it is, or what to do.
    notes: what was skipped or replaced.
    """

    name: str
    found: str | None
    says: str
    rows: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_task(name: str, data: Path | None = None) -> Task:
    """The task of this name. It is looked for in `data` or `PAIRTUNE_DATA`, then in the user's cache, then on the network.

    data: a folder with one sub-folder per dataset, such as data/stsb.
    """
    info = _info(name)
    folder = find_folder(info, data)
    if folder:
        return _as_task(info, info.load(folder), str(folder))
    looked = " or ".join(str(place / info.folder) for place in _data_folders(data))
    if info.fetch is None:
        raise UserError(f"task {name}: there is no folder {looked}. To get the data: {info.how}")
    say(f"task {name}: there is no folder {looked}")
    return _as_task(info, info.fetch(), "network")


def task_status(name: str, data: Path | None = None) -> TaskStatus:
    """Where the task's files are and how many pairs they give, or how to get them. Asks no network."""
    info = _info(name)
    folder = find_folder(info, data)
    if folder is None:
        return TaskStatus(name, None, f"not here; {info.how}")
    try:
        splits = info.load(folder)
    except (UserError, OSError) as problem:
        return TaskStatus(name, None, f"cannot be read: {problem}")
    parts = {"train": splits.train, "dev": splits.dev, "test": splits.test, **splits.extra}
    rows = {part: len(pairs) for part, pairs in parts.items()}
    return TaskStatus(name, str(folder), f"found in {folder}", rows, splits.notes)


def find_folder(info: TaskInfo, data: Path | None = None) -> Path | None:
    """The folder with the task's files: the first place that has one."""
    if info.built_in:
        return info.built_in
    return next((place / info.folder for place in _data_folders(data) if (place / info.folder).is_dir()), None)


def _data_folders(data: Path | None) -> list[Path]:
    named = data or os.environ.get("PAIRTUNE_DATA")
    return [*([Path(named)] if named else []), cache_folder() / "data"]


def _info(name: str) -> TaskInfo:
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; known: {', '.join(TASKS)}; your own pairs go with --data FILE")
    return TASKS[name]


def _as_task(info: TaskInfo, splits: Splits, source: str) -> Task:
    return Task(
        name=info.name,
        kind=info.kind,
        train=splits.train,
        dev=splits.dev,
        test=splits.test,
        metric=info.metric,
        metrics=info.metrics,
        positive_above=info.positive_above,
        notes=splits.notes,
        license=info.license,
        citation=info.citation,
        source=source,
        extra=splits.extra,
    )
