"""Parts of texts that an encoder does not see: links, signatures, ids."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pairtune.errors import UserError
from pairtune.runs.linear import write_rule

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MARK = "\ufdd0"  # no character: Unicode leaves it to programs, so that no text has it


def ignoring(tokenizer: Any, patterns: Sequence[str]) -> Any:
    """A tokenizer like this one that does not see what these regular expressions match, nor the white space around it.

    The rules are saved with it, so that a model needs neither pairtune nor clean texts. Oniguruma's syntax, one after the other.
    Each takes time that grows as the text does; others are refused.
    """
    from tokenizers import normalizers
    from transformers import PreTrainedTokenizerFast

    if not getattr(tokenizer, "is_fast", False):  # that of a static embedding does not even say
        raise UserError(
            f"ignore = {list(patterns)}: the encoder's tokenizer is not a fast one, which alone takes rules: leave it out"
        )
    backend = deepcopy(tokenizer.backend_tokenizer)
    rules = [rule for pattern in patterns for rule in _rules(pattern)]
    backend.normalizer = normalizers.Sequence([*rules, *([backend.normalizer] if backend.normalizer else [])])
    # one of the model's own class would be built anew when it is loaded, without the rules; this class is read as it was saved
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_input_names=tokenizer.model_input_names,
        **tokenizer.special_tokens_map,
    )


MEASURED = 2000  # texts, evenly drawn


def note_emptied(tokenizer: Any, texts: Sequence[str]) -> str:
    """Of how many texts the rules leave nothing, in words; empty where of none. Refuses rules that leave nothing at all."""
    distinct = list(dict.fromkeys(texts))
    measured = distinct[:: 1 + len(distinct) // MEASURED]
    emptied = sum(not tokens for tokens in tokenizer(measured, add_special_tokens=False, verbose=False)["input_ids"])
    if measured and emptied == len(measured):
        raise UserError("ignore leaves nothing of any text, and all would be equal to the encoder: make its expressions narrower")
    of = "texts" if len(measured) == len(distinct) else "texts that were measured"
    return f"ignore leaves nothing of {emptied:,} of {len(measured):,} {of}" if emptied else ""


def give_tokenizer(model: SentenceTransformer, tokenizer: Any) -> None:
    """Have the model use this tokenizer; where it is part of a larger processor, the rest of that stays."""
    first: Any = model[0]
    if first.processor is first.tokenizer:
        first.processor = tokenizer
    else:
        first.processor.tokenizer = tokenizer


def _rules(pattern: str) -> list[Any]:
    """What is matched becomes a space between words, and nothing at the ends of a text: to some tokenizers a space is a token.

    Each match is marked, then marks and the white space around them are taken together. Nothing here goes back, and a run of
    white space is looked at once.
    """
    from tokenizers import Regex, normalizers

    around = rf"\s*+{MARK}[\s{MARK}]*+"
    within = rf"(?<![\s{MARK}]){around}"
    rules = [normalizers.Replace(Regex(rf"\A{around}|{within}\z"), ""), normalizers.Replace(Regex(within), " ")]
    try:
        return [normalizers.Replace(Regex(write_rule(pattern)), MARK), *rules]
    except ValueError as problem:
        raise UserError(f"ignore: {problem}") from problem
