"""The runs that a report shows: their records and what else their trainings left, from the folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pairtune.errors import UserError
from pairtune.evidence import EVIDENCE, Evidence, read_evidence
from pairtune.folder import RunFolder
from pairtune.results import Run


@dataclass(frozen=True)
class Shown:
    """One run on the page. label: what it is called there, unlike every other one."""

    label: str
    folder: Path
    run: Run
    evidence: Evidence | None


def read_runs(paths: Sequence[Path]) -> list[Shown]:
    """The finished runs in these folders: of one seed, or of a recipe with its seed-* folders."""
    folders = list(dict.fromkeys(folder for path in paths for folder in find_folders(path)))
    labels = name_runs(folders)
    return [Shown(labels[folder], folder, read_record(folder), read_evidence(folder / EVIDENCE)) for folder in folders]


def find_folders(path: Path) -> list[Path]:
    """The folders of single seeds; those that are not finished yet are passed over where others are."""
    if (path / "recipe.json").exists() or (path / "record.json").exists():
        found = [path]
    else:
        found = sorted(path.glob("seed-*"), key=lambda folder: (len(folder.name), folder.name))
    finished = [folder for folder in found if RunFolder(folder).finished]
    if found and not finished:
        raise UserError(f"{path} is not finished: its report can be made when it is (pairtune train … --resume goes on)")
    if not finished:
        raise UserError(f"{path} is not the folder of a run: give one that `pairtune train` made, such as runs/demo")
    return finished


def read_record(folder: Path) -> Run:
    """The record of a finished run."""
    try:
        return RunFolder(folder).record()
    except ValidationError as problem:
        raise UserError(
            f"{folder / 'record.json'} is not a record of a run ({problem.error_count()} problems): train again"
        ) from problem


def name_runs(folders: Sequence[Path]) -> dict[Path, str]:
    """Short names that tell the runs apart: of the recipe's folder, with the seed where there are several, else the path."""
    whole = [folder.resolve() for folder in folders]
    names = [path.parent.name if path.name.startswith("seed-") else path.name for path in whole]
    several = Counter(names)
    longer = [
        f"{name}, {path.name.replace('-', ' ')}" if several[name] > 1 else name for name, path in zip(names, whole, strict=True)
    ]
    unique = Counter(longer)
    return {folder: name if unique[name] == 1 else str(folder) for folder, name in zip(folders, longer, strict=True)}
