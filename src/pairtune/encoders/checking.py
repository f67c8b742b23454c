"""Whether the folder of an encoder is complete: its weights, its tokenizer and its modules belong together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairtune.errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
PICKLED_PART = ("pytorch_model*.bin", "adapter_model.bin")  # of one module; other *.bin in subfolders are of other programs
NAMED_WEIGHTS = 3  # weights that a message names


def check_folder(folder: Path) -> None:
    """Refuse, before anything of it is loaded, a folder that is damaged or whose weights are pickled."""
    if not (folder / "modules.json").exists() and (folder / "config_sentence_transformers.json").exists():
        raise UserError(f"{folder} has no modules.json, which says how embeddings are pooled: copy the whole folder")
    for weights in sorted(folder.rglob("*.safetensors")):
        check_safetensors(weights)
    parts = [path for name in PICKLED_PART for path in folder.rglob(name)]
    pickled = sorted(path for path in parts if not any(path.parent.glob("*.safetensors")))
    if not any(folder.rglob("*.safetensors")):
        pickled += sorted(path for pattern in PICKLED for path in folder.glob(pattern))
    if pickled:
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
        raise UserError(f"{path} is damaged, or is not a safetensors file ({problem}): copy or download it again") from problem


def check_loaded(name: str, folder: Path, model: SentenceTransformer) -> None:
    """Refuse an encoder whose config, weights and tokenizer do not belong together."""
    check_vector(name, model)
    transformer = getattr(model[0], "auto_model", None)
    if transformer is None:  # a static embedding, say, which the host reads strictly
        return
    if folder.is_dir() and not any(folder.rglob("adapter_config.json")):
        check_weights(name, folder, transformer)
        check_filled(name, transformer)
        check_reach(name, model, transformer)
    check_tokenizer(name, model.tokenizer, transformer)


def check_vector(name: str, model: SentenceTransformer) -> None:
    """Refuse an encoder whose modules do not give one vector for a text, or one of another length than they say."""
    try:
        found = model.encode(["a text"], show_progress_bar=False, normalize_embeddings=False)
    except Exception as problem:  # whatever modules that do not go together stumble over
        raise UserError(
            f"encoder {name!r}: its modules do not fit together ({type(problem).__name__}: {first_line(problem)}): modules.json "
            f"or the config of a module is not of this model. Copy the whole folder again"
        ) from problem
    if not all(isinstance(prompt, str) for prompt in model.prompts.values()):
        raise UserError(f"encoder {name!r}: its prompts are {model.prompts}: give texts, in config_sentence_transformers.json")
    width = model.get_embedding_dimension()
    if width is not None and found.shape != (1, width):
        raise UserError(
            f"encoder {name!r}: its config says that embeddings have {width} numbers, and they have {found.shape[-1]}: the "
            f"config of a module is of another model. Copy the whole folder again"
        )


def check_reach(name: str, model: SentenceTransformer, transformer: Any) -> None:
    """Refuse a length that goes beyond the positions that there are embeddings of."""
    positions = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    most, length = getattr(positions, "num_embeddings", None), model.max_seq_length
    if most is not None and length and length > most:
        raise UserError(
            f"encoder {name!r}: its max_seq_length is {length:,}, and it has embeddings of {most:,} positions: a config is of "
            f"another model. Copy the whole folder again"
        )


def check_filled(name: str, transformer: Any) -> None:
    """Refuse weights that are all zeros or hold no number: a file of the right size that was not copied to its end."""
    from torch import nn

    for layer, module in transformer.named_modules():
        if not isinstance(module, nn.Linear) or layer.startswith("pooler."):
            continue
        if not (module.weight.any() and module.weight.isfinite().all()):
            raise UserError(
                f"encoder {name!r}: the weights of {layer} are zeros or no numbers: its file is damaged, or a training diverged. "
                f"Get the model again"
            )


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


def check_head(name: str, model: CrossEncoder) -> None:
    """Refuse a cross-encoder some of whose weights are not in its file."""
    if not Path(name).is_dir():
        return
    classifier: Any = model.model
    options = {"config": classifier.config, "local_files_only": True, "device_map": "meta"}
    _, info = type(classifier).from_pretrained(name, output_loading_info=True, **options)
    if missing := [key for key in info["missing_keys"] if not key.startswith("pooler.")]:
        raise UserError(
            f"cross-encoder {name!r}: its file does not have {_some(missing)}, and scores would be random: give one that was "
            f"trained to score pairs, not an encoder"
        )


def check_tokenizer(name: str, tokenizer: Any, transformer: Any) -> None:
    """Refuse a tokenizer that is not there, or that knows more tokens than there are embeddings, or hardly any of them."""
    rows = getattr(transformer.get_input_embeddings(), "num_embeddings", None)
    if rows is None or tokenizer is None:
        return
    known = max(len(tokenizer), 1 + max(tokenizer.get_vocab().values(), default=-1))  # numbers may have gaps
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
    more = f" and {len(found) - NAMED_WEIGHTS} more" if len(found) > NAMED_WEIGHTS else ""
    return ", ".join(found[:NAMED_WEIGHTS]) + more


def first_line(problem: BaseException) -> str:
    """What an error of the host says, in a line."""
    if "ignore_mismatched_sizes" in str(problem):  # the host's advice would make them random
        return "the shapes of its weights are not those that its config.json says"
    return str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
