"""Whether the folder of an encoder is complete: what is missing is made up by the host, and the scores are wrong in silence."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairtune.errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
SHOWN = 3  # weights that a message names


def check_folder(folder: Path) -> None:
    """Refuse, before anything of it is loaded, a folder that is damaged or whose weights are pickled."""
    if not (folder / "modules.json").exists() and (folder / "config_sentence_transformers.json").exists():
        raise UserError(f"{folder} has no modules.json, which says how embeddings are pooled: copy the whole folder")
    for weights in sorted(folder.rglob("*.safetensors")):
        check_safetensors(weights)
    pickled = sorted(path for pattern in PICKLED for path in folder.glob(pattern))
    if pickled and not any(folder.rglob("*.safetensors")):
        raise UserError(
            f"{pickled[0]} holds pickled weights, which may hide a program: convert them where you trust them, with "
            f"SentenceTransformer({str(folder)!r}).save_pretrained(...), which writes model.safetensors"
        )


def check_safetensors(path: Path) -> None:
    """Refuse a file of weights that was cut off or is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy"):  # reads the header, and holds it against the size of the file
            pass
    except (SafetensorError, OSError) as problem:
        raise UserError(
            f"{path} is damaged ({problem}): it was not copied or downloaded to its end, or is no safetensors file; get it again"
        ) from problem


def check_loaded(name: str, folder: Path, model: SentenceTransformer) -> None:
    """Refuse an encoder whose config, weights and tokenizer do not belong together."""
    transformer = getattr(model[0], "auto_model", None)
    if transformer is None:  # a static embedding, say, which the host reads strictly
        return
    if folder.is_dir() and not any(folder.rglob("adapter_config.json")):
        check_weights(name, folder, transformer)
    check_tokenizer(name, model.tokenizer, transformer)


def check_weights(name: str, folder: Path, transformer: Any) -> None:
    """Refuse weights that the config asks for and the file has not, or the other way round; heads and poolers are not used."""
    options = {"config": transformer.config, "subfolder": _transformer_folder(folder), "local_files_only": True}
    try:
        _, info = type(transformer).from_pretrained(str(folder), output_loading_info=True, device_map="meta", **options)
    except (OSError, ValueError, ImportError):  # a kind that the host loads in a way of its own
        return
    parts = {part for part, _ in transformer.named_children()} - {"pooler"}
    missing = [key for key in info["missing_keys"] if not key.startswith("pooler.")]
    unexpected = [key for key in info["unexpected_keys"] if _without_prefix(key, transformer).partition(".")[0] in parts]
    unexpected = [key for key in unexpected if not key.endswith("position_ids")]  # a buffer that old versions saved
    if missing:
        raise UserError(
            f"encoder {name!r}: its config.json asks for weights that its file does not have ({_some(missing)}): they would be "
            f"random. Copy the whole folder again"
        )
    if unexpected:
        raise UserError(
            f"encoder {name!r}: its file has weights that its config.json does not know ({_some(unexpected)}): they would be "
            f"left out. Copy the whole folder again"
        )


def check_tokenizer(name: str, tokenizer: Any, transformer: Any) -> None:
    """Refuse a tokenizer that is not there, or that knows more tokens than there are embeddings, or hardly any of them."""
    rows = getattr(transformer.get_input_embeddings(), "num_embeddings", None)
    if rows is None or tokenizer is None:
        return
    known = len(tokenizer)
    if known > rows or known < rows // 2:
        raise UserError(
            f"encoder {name!r}: its tokenizer knows {known:,} tokens, and there are embeddings of {rows:,}: tokenizer.json is "
            f"missing or of another model. Copy the whole folder again"
        )


def _transformer_folder(folder: Path) -> str:
    """The part of the folder that has the transformer: most often the folder itself."""
    try:
        return str(json.loads((folder / "modules.json").read_text(encoding="utf-8"))[0]["path"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _without_prefix(key: str, transformer: Any) -> str:
    return key.removeprefix(f"{transformer.base_model_prefix}.")


def _some(keys: Iterable[str]) -> str:
    found = sorted(keys)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
