"""The checkpoints of a training: sealed once they are whole, and the newest that it can go on from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.encoders.loading import file_digest
from pairtune.processes import wait_for_all
from pairtune.progress import say
from pairtune.runs.folder import write_whole

SEAL = "complete.json"


def checkpoint_folder(args: TrainingArguments, state: TrainerState) -> Path:
    """Where the host keeps the state of the step that it is at."""
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"


class Seal(TrainerCallback):
    """Marks a checkpoint as whole once everything in it is on the disk. Must be the last callback that saves."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the hash of every file, then let go of older checkpoints. Each process writes its random numbers first."""
        wait_for_all()
        if state.is_world_process_zero:
            folder = checkpoint_folder(args, state)
            seal_folder(folder)
            drop_old(folder.parent, Path(state.best_model_checkpoint or folder).name)


def seal_folder(folder: Path) -> None:
    """List every file of the folder with its hash, so that a half-written or damaged one is found out."""
    (folder / SEAL).unlink(missing_ok=True)
    digests = {path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    write_whole(folder / SEAL, json.dumps(digests, indent=1))


def is_whole(folder: Path) -> bool:
    """Every sealed file is there and unchanged."""
    try:
        digests = json.loads((folder / SEAL).read_text())
        sealed = isinstance(digests, dict) and bool(digests)
        return sealed and all(file_digest(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, RecursionError):
        return False


def drop_old(folder: Path, best: str) -> None:
    """Keep the two newest checkpoints, or the newest and the best: by their steps, not, as the host does, by a clock."""
    newest, *older = by_step(folder)
    kept = {newest.name, best} if best != newest.name else {path.name for path in (newest, *older[:1])}
    for path in older:
        if path.name not in kept:
            shutil.rmtree(path)


def by_step(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first; what somebody else has put there, checkpoint-old, say, is none."""
    steps = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*") if path.is_dir()}
    return sorted((path for path, step in steps.items() if step.isdecimal()), key=lambda path: int(steps[path]), reverse=True)


def newest_usable_checkpoint(folder: Path) -> str | None:
    """The latest checkpoint that training can go on from as if nothing had happened; damaged ones are removed, and said so.

    A checkpoint is usable if it is whole and the best epoch that it points to is whole too.
    """
    for checkpoint in by_step(folder):
        if is_whole(checkpoint) and is_whole(_best_of(checkpoint)):
            return str(checkpoint)
        say(f"{checkpoint} is damaged or incomplete: it was removed; training goes back to the checkpoint before it")
        shutil.rmtree(checkpoint)
    return None


def _best_of(checkpoint: Path) -> Path:
    best = json.loads((checkpoint / "trainer_state.json").read_text())["best_model_checkpoint"]
    return checkpoint.parent / Path(best).name if best else checkpoint
