"""The folder of a run: what is in it, whether it may be written to, and what a resumed run finds there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairtune.errors import UserError
from pairtune.progress import is_first
from pairtune.runs.lock import LOCK, hold_folder
from pairtune.runs.recipe import Recipe
from pairtune.runs.record import Run, append_record

NOT_LOADED = {"README.md", ".gitattributes"}
EDGE = 2**20  # bytes of a file's beginning and end that tell it from others: one in another order differs there


@dataclass(frozen=True)
class RunFolder:
    """`recipe.json` from the start, `checkpoints/` while it trains, `model/` and `record.json` when it is done."""

    path: Path

    @property
    def begun(self) -> bool:
        """Whether a run of ours is here."""
        return (self.path / "recipe.json").exists()

    def check(self, asked: dict[str, Any], *, resume: bool = False, overwrite: bool = False) -> None:
        """Refuse what would lose or mix up a run: one of other settings or other data is neither gone on with nor lost silently.

        asked: what `ask_for` says of the run.
        """
        if resume and overwrite:
            raise UserError("--resume keeps what is there, --overwrite loses it: give one of the two")
        if any("\ud800" <= letter <= "\udfff" for letter in str(self.path)):  # tokenizers and safetensors cannot write there
            raise UserError(f"{str(self.path)!r} is not valid UTF-8: give another --out")
        if not self.begun:
            ours = (LOCK, "recipe.json.part")  # all that a process leaves which died when it began
            if self.path.is_dir() and any(path.name not in ours for path in self.path.iterdir()):
                raise UserError(f"{self.path} is not empty and was not made by pairtune: give another --out")
        elif not overwrite:
            self._check_same(asked)
            if self.finished and not resume:
                raise UserError(
                    f"{self.path} holds a finished run: --resume keeps it, --overwrite loses it (in Python resume=True, "
                    f"overwrite=True), or give another --out"
                )
            if not resume:
                raise UserError(f"{self.path} holds an unfinished run: --resume goes on with it, --overwrite starts again")

    def begin(self, asked: dict[str, Any], *, overwrite: bool = False) -> None:
        """Make the folder, where it is not there; with `overwrite`, anew."""
        if overwrite and self.begun:
            self._empty()
        try:
            write_whole(self.path / "recipe.json", json.dumps(asked, indent=1))
        except OSError as problem:
            raise self._unwritable(problem) from problem

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes out until it is done; refuse, where one of them is in it."""
        if not is_first():  # of several processes that train together, the first holds it for all
            yield
            return
        with ExitStack() as held:
            try:
                held.enter_context(hold_folder(self.path))
            except OSError as problem:
                raise self._unwritable(problem) from problem
            yield

    def _empty(self) -> None:
        """Lose what is there, but for the lock that we hold."""
        for name in ("record.json", "record.json.pending"):  # first: what is half gone is not finished
            (self.path / name).unlink(missing_ok=True)
        for path in list(self.path.iterdir()):
            if path.is_dir():
                drop_folder(path)
            elif path.name not in (LOCK, "recipe.json"):
                path.unlink()

    def _unwritable(self, problem: OSError) -> UserError:
        return UserError(
            f"{self.path}: the folder of the run cannot be written ({problem.strerror or problem}); give another --out"
        )

    def _check_same(self, asked: dict[str, Any]) -> None:
        found = self._asked_before()
        with suppress(ValueError):  # of a version that had fewer settings: the others are at their defaults
            found["recipe"] = Recipe.model_validate(found["recipe"]).model_dump(mode="json", exclude={"seeds"})
        for key in ("data", "files", "encoder"):  # of a version that did not write it down
            found.setdefault(key, asked[key])
        if asked["encoder"] == "gone":  # a finished run does without its encoder
            found["encoder"] = "gone"
        for name, now in asked["files"].items():
            if now == "gone":  # and without its file
                found["files"][name] = now
        if found != asked:
            changed = ", ".join(_differences(found, asked))
            raise UserError(f"{self.path} holds a run with other settings ({changed}): give another --out, or --overwrite")

    def _asked_before(self) -> dict[str, Any]:
        """What `ask_for` said of the run that is here."""
        try:
            found = json.loads((self.path / "recipe.json").read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(found.get(key, {}), dict) for key in ("recipe", "files")):
            raise self._damaged(self.path / "recipe.json")
        return {"seed": None, "recipe": {}, **found}

    def _damaged(self, path: Path) -> UserError:
        return UserError(f"{path} is damaged or was not made by pairtune: --overwrite starts again, or give another --out")

    @property
    def finished(self) -> bool:
        """The record is written last."""
        return (self.path / "record.json").exists()

    @property
    def model(self) -> Path:
        """Where the tuned model ends up."""
        return self.path / "model"

    def stage(self, number: int) -> Path:
        """Where the checkpoints of a stage are, and its model when it is done."""
        return self.path / "checkpoints" / f"stage-{number}"

    def record(self) -> Run:
        """The record of a finished run."""
        return self._read_run(self.path / "record.json")

    def _read_run(self, path: Path) -> Run:
        try:
            return Run.model_validate_json(path.read_bytes())
        except ValueError as problem:
            raise self._damaged(path) from problem

    def remember(self, name: str, compute: Callable[[], Any]) -> Any:
        """A value that a resumed run need not compute again, unless what was kept is damaged."""
        path = self.path / f"{name}.json"
        with suppress(FileNotFoundError, ValueError):
            return json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(compute())
        write_whole(path, text)
        return json.loads(text)

    @property
    def pending(self) -> Path | None:
        """The record of a run that was done but for telling so, because its process died."""
        path = self.path / "record.json.pending"
        return path if path.exists() else None

    def finish(self, run: Run, results: Path) -> None:
        """Append the record, then mark the folder as finished and drop what only a resume would need."""
        write_whole(self.path / "record.json.pending", run.model_dump_json(indent=1))
        self.publish(results)

    def publish(self, results: Path) -> Run:
        """Tell of a run that is done: in `results` once, whatever happens on the way."""
        assert self.pending is not None
        run = self._read_run(self.pending)
        append_record(results, run)
        self.pending.replace(self.path / "record.json")
        self.drop_checkpoints()
        return run

    def drop_checkpoints(self) -> None:
        """They serve a resume, and a finished run needs none; a process that was killed may have left them."""
        drop_folder(self.path / "checkpoints")


def refuse_encoder_folder(out: Path) -> None:
    """Refuse to write runs into the folder of an encoder: with other files in it, it would be another encoder."""
    if (out / "modules.json").exists() or ((out / "config.json").exists() and any(out.glob("*.safetensors"))):
        raise UserError(f"{out} is the folder of an encoder, and a run would be mixed with its files: give another --out")


def ask_for(recipe: Recipe, seed: int, data: str) -> dict[str, Any]:
    """What tells a run from others: a resumed one must ask for the same. data: the fingerprint of its pairs.

    An encoder that is a folder of the user's may change too, and is told by its files.
    """
    files = {stage.train.file: fingerprint_file(Path(stage.train.file)) for stage in recipe.stages if stage.train.file}
    settings = recipe.model_dump(mode="json", exclude={"seeds"})
    encoder = Path(recipe.encoder)
    return {
        "seed": seed,
        "data": data,
        "encoder": fingerprint_folder(encoder) if encoder.is_dir() else "gone",
        "files": files,
        "recipe": settings,
    }


def fingerprint_file(path: Path) -> str:
    """The same for the same content, as far as its size, its first and its last megabyte tell; "gone" where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest = hashlib.sha256()
            for start in (0, max(0, size - EDGE)):
                file.seek(start)
                digest.update(file.read(EDGE))
    except OSError:
        return "gone"
    return f"{size:,} bytes, {digest.hexdigest()[:12]}"


def fingerprint_folder(folder: Path) -> str:
    """Changes when any file changes that a model is loaded from, or its name; a short one."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in NOT_LOADED):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()[:16]


@contextmanager
def whole_file(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """A file to write, which takes this name when all is written: a reader sees the old file or the new one, never half of it.

    shared: other processes may write the same file at the same time; each writes aside under a name of its own. What failed takes
    no room.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.part")
    if shared:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part")
        os.close(descriptor)
        aside = Path(name)
    try:
        yield aside
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


def write_whole(path: Path, text: str, *, shared: bool = False) -> None:
    """Write a text aside, then rename: see `whole_file`."""
    with whole_file(path, shared=shared) as aside:
        aside.write_text(text, encoding="utf-8")


def drop_folder(folder: Path) -> None:
    """Delete a folder, if it is there: a process that dies meanwhile leaves all of it under this name, or nothing."""
    gone = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)
    if folder.exists():
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes this name when all is written: what is under the name is complete."""
    aside = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        yield aside
        drop_folder(folder)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


FREE_SPACE, LET_WRITE = "free some space", "let this user write there"
ADVICE = {
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: FREE_SPACE,
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or take a disk that holds larger ones",
    errno.EACCES: LET_WRITE,
    errno.EPERM: LET_WRITE,
    errno.EROFS: LET_WRITE,
}
CUT_OFF = ("failed writing file", "inline_container")  # what torch says of a failed write; it does not know the reason


@contextmanager
def disk_in_words(folder: Path) -> Iterator[None]:
    """Say what to do about a disk that is full or may not be written, whoever has noticed; all else is raised as it is."""
    try:
        yield
    except Exception as problem:
        advice = advise(problem)
        if advice is None:
            raise
        raise UserError(
            f"could not write to {folder} ({_reason(problem).splitlines()[0]}): {advice}; "
            f"the last complete checkpoint is kept, and --resume goes on from it"
        ) from problem


def advise(problem: Exception) -> str | None:
    """What to do about a write that failed; None where it was none, or nobody can tell.

    >>> advise(RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"))
    'free some space'
    """
    text = f"{_reason(problem)} {problem.__cause__ or ''}"
    number = problem.errno if isinstance(problem, OSError) else None
    if number is None:
        found = re.search(r"(?:os error |\[Errno )(\d+)", text)  # of safetensors, say, which is written in Rust
        number = int(found[1]) if found else None
    if number is None and any(sign in text for sign in CUT_OFF):
        return "free some space, if the disk is full"
    return None if number is None else ADVICE.get(number)


def _reason(problem: Exception) -> str:
    """What the error says; of a folder that was copied, what was said of its first file."""
    return str(problem.args[0][0][-1]) if isinstance(problem, shutil.Error) else str(problem)


def _differences(found: Any, asked: Any, where: str = "") -> list[str]:
    if isinstance(found, dict) and isinstance(asked, dict):
        keys = dict.fromkeys([*found, *asked])
        return [line for key in keys for line in _differences(found.get(key), asked.get(key), f"{where}.{key}".lstrip("."))]
    if isinstance(found, list) and isinstance(asked, list) and len(found) == len(asked):
        return [line for i, (a, b) in enumerate(zip(found, asked, strict=True)) for line in _differences(a, b, f"{where}.{i}")]
    return [] if found == asked else [f"{where} is {found!r} there, {asked!r} now"]
