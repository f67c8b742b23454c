"""Parts of texts that an encoder does not see: links, signatures, ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pairtune.encoders.trial import find_slow_text
from pairtune.errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PROBES = "a1 -é\n"  # and the words of an expression: texts in which it may match without taking anything away
MARK = "\ufdd0"  # no character: Unicode leaves it to programs, so that no text has it


def ignoring(tokenizer: Any, patterns: Sequence[str]) -> Any:
    """A tokenizer like this one that does not see what these regular expressions match, nor the white space around it.

    The rules are saved with it, so that a model needs neither pairtune nor clean texts. Oniguruma's syntax, one after the other.
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
    white space is looked at once: the time is linear in the text, as far as that of the expression is.
    """
    from tokenizers import Regex, normalizers

    around = rf"\s*+{MARK}[\s{MARK}]*+"
    within = rf"(?<![\s{MARK}]){around}"
    try:
        marked = normalizers.Replace(Regex(pattern), MARK)
        rules = [normalizers.Replace(Regex(rf"\A{around}|{within}\z"), ""), normalizers.Replace(Regex(within), " ")]
    except Exception as problem:  # tokenizers has no narrower one
        raise UserError(
            f"ignore: {pattern!r} is not a regular expression as Oniguruma has them ({problem}): mend it"
        ) from problem
    for probe in (*PROBES, *re.findall(r"\w+", pattern)):
        seen = marked.normalize_str(probe)
        if seen != probe and seen.replace(MARK, "") == probe:  # the tokenizer would panic
            raise UserError(f"ignore: {pattern!r} also matches where there is nothing: have it match one character at least")
    if (text := find_slow_text(pattern)) is not None:
        raise UserError(
            f"ignore: {pattern!r} takes too long on some texts, such as one that begins with {text[:20]!r}: a part that may "
            f"repeat must not match the same text in two ways. Make it simpler, or possessive: a++ for a+, (?>…) for (…)"
        )
    return [marked, *rules]
