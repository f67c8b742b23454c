"""Parts of texts that an encoder does not see: links, signatures, ids."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from pairtune.errors import UserError


def ignoring(tokenizer: Any, patterns: Sequence[str]) -> Any:
    """A tokenizer like this one that sees a space wherever one of these regular expressions matches, one after the other.

    The rules are saved with it, so that a model needs neither pairtune nor clean texts.
    """
    from tokenizers import Regex, normalizers
    from transformers import PreTrainedTokenizerFast

    if tokenizer is None or not tokenizer.is_fast:
        raise UserError(
            f"ignore = {list(patterns)}: the encoder's tokenizer is not a fast one, which alone takes rules: leave it out"
        )
    rules: list[Any] = []
    for pattern in patterns:
        try:
            rules.append(normalizers.Replace(Regex(pattern), " "))
        except Exception as problem:  # tokenizers has no narrower one
            raise UserError(f"ignore: {pattern!r} is not a regular expression ({problem}): mend it") from problem
    backend = deepcopy(tokenizer.backend_tokenizer)
    if backend.normalizer is not None:
        rules.append(backend.normalizer)
    backend.normalizer = normalizers.Sequence(rules)
    # one of the model's own class would be built anew when it is loaded, without the rules; this class is read as it was saved
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_input_names=tokenizer.model_input_names,
        **tokenizer.special_tokens_map,
    )
