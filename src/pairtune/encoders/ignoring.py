"""Parts of texts that an encoder does not see: links, signatures, ids; and a trial that such an expression is fast."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pairtune.errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PROBE_CHARACTERS = "a1 -é\n"  # and the words of an expression: texts in which it may match without taking anything away
MARK = "\ufdd0"  # no character: Unicode leaves it to programs, so that no text has it


def ignoring(tokenizer: Any, patterns: Sequence[str]) -> Any:
    """A tokenizer like this one that does not see what these regular expressions match, nor the white space around it.

    The rules are saved with it, so that a model needs neither pairtune nor clean texts. Oniguruma's syntax, one after the other.
    Before them, a very long text is cut, whatever the encoder may read: a rule such as `<[^>]+>` looks from each `<` as far as
    the text goes. So no text takes longer than the longest that is left whole.
    """
    from tokenizers import Regex, normalizers
    from transformers import PreTrainedTokenizerFast

    if not getattr(tokenizer, "is_fast", False):  # that of a static embedding does not even say
        raise UserError(
            f"ignore = {list(patterns)}: the encoder's tokenizer is not a fast one, which alone takes rules: leave it out"
        )
    backend = deepcopy(tokenizer.backend_tokenizer)
    characters = characters_read(tokenizer.model_max_length)
    end = normalizers.Replace(Regex(rf"\A\O{{{characters}}}\K\O+"), "")
    rules = [end, *(rule for pattern in patterns for rule in _rules(pattern))]
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


LEAST_READ, MOST_READ = 20_000, 40_000  # characters of a text: the longest one takes a rule of the slowest kind two seconds
CHARACTERS_PER_TOKEN = 8


def characters_read(tokens: float) -> int:
    """How much of a text is looked at for an encoder that reads so many tokens: many times that, where they are few.

    >>> characters_read(512), characters_read(4096.0), characters_read(float("inf"))
    (20000, 32768, 40000)
    """
    return int(min(MOST_READ, max(LEAST_READ, CHARACTERS_PER_TOKEN * tokens)))


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
    for probe in (*PROBE_CHARACTERS, *re.findall(r"\w+", pattern)):
        seen = marked.normalize_str(probe)
        if seen != probe and seen.replace(MARK, "") == probe:  # the tokenizer would panic
            raise UserError(f"ignore: {pattern!r} also matches where there is nothing: have it match one character at least")
    if (text := find_slow_text(pattern)) is not None:
        raise UserError(
            f"ignore: {pattern!r} takes too long on some texts, such as one that begins with {text[:20]!r}: a part that may "
            f"repeat must not match the same text in two ways. Make it simpler, or possessive: a++ for a+, (?>…) for (…)"
        )
    return [marked, *rules]


LENGTH = 5000  # characters: a search that takes steps by the square of it passes Oniguruma's limit of ten million
LATE_ENDS = ("\0", " \0")  # what no expression expects, so that the match fails late and every other way is tried
SAMPLE_OF_CLASS = {"s": " ", "S": "a", "w": "a", "W": "-", "d": "1", "D": "a", "h": "a", "H": "-", "n": "\n", "t": "\t"}
COMMENT = re.compile(r"(?<!\\)(?:\s|#.*)")  # what an expression that begins with (?x) has between its parts
PIECE = re.compile(
    r"\\(?P<escaped>.)|(?P<set>\[\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?(?:<?[=!]|[:>~]|<\w+>|[\w-]+[:)]))?)"
    r"|(?P<mark>[)|^$])|(?P<repeat>[*+?]|\{[\d,]+\})|(?P<plain>.)",
    re.DOTALL,
)


def find_slow_text(pattern: str) -> str | None:
    """A text on which a search for the pattern takes more steps than any reasonable one; None where none was found."""
    texts = list(dict.fromkeys([*hard_texts(pattern), *hard_texts(COMMENT.sub("", pattern))]))
    command = [sys.executable, "-m", "pairtune.encoders.ignoring"]
    asked = json.dumps({"pattern": pattern, "texts": texts})
    # the tokenizer panics where the engine gives up, which prints a page: not in the user's terminal
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    tried = len(done.stdout.split())
    return None if tried == len(texts) else texts[tried]


def hard_texts(pattern: str) -> Iterator[str]:
    """Texts that nearly match: what comes before each repeated part, that part many times, and an end that does not fit."""
    seen, last = "", ""  # one way to match what stands before, and its last part
    begun = [0]  # where in it the groups that are still open begin
    for piece in PIECE.finditer(pattern):
        if piece["repeat"]:
            for part in dict.fromkeys((last or "a", seen or "a", f",{seen}", f" {seen}", f"{seen} ", "a", " ")):
                for end in LATE_ENDS:
                    yield seen + part * (LENGTH // len(part)) + end
        elif piece["open"]:
            begun += [] if piece["open"].endswith(")") else [len(seen)]
        elif piece["mark"] == ")":
            last = seen[begun.pop() if len(begun) > 1 else 0 :]
        elif piece["mark"] == "|":
            seen = seen[: begun[-1]]
        else:
            last = example(piece)
            seen += last


def example(piece: re.Match[str]) -> str:
    """One character that this piece of an expression matches; none for a bracket or an anchor.

    >>> example(PIECE.match(r"\\d")), example(PIECE.match("[.-]")), example(PIECE.match("("))
    ('1', '.', '')
    """
    if piece["escaped"]:
        return SAMPLE_OF_CLASS.get(piece["escaped"], "" if piece["escaped"].isalnum() else piece["escaped"])
    if piece["set"]:
        first = next(PIECE.finditer(piece["set"].strip("[]^") or "a"))
        return "a" if piece["set"].startswith("[^") else example(first) or "a"
    return piece["plain"] or ""


def try_texts(pattern: str, texts: Sequence[str]) -> None:
    """Search each text, and print a line for it; all places in one match, so that the engine counts the steps of them all."""
    from tokenizers import Regex, normalizers

    try:
        places = Regex(rf"\A(?m:(?!(?:{pattern})).)*+")
    except Exception:  # it ends in a comment, which would take our brackets as well: a new line ends that
        places = Regex(f"\\A(?m:(?!(?:{pattern}\n)).)*+")
    search = normalizers.Replace(places, "")
    for place, text in enumerate(texts):
        search.normalize_str(text)
        print(place, flush=True)


if __name__ == "__main__":
    try_texts(**json.load(sys.stdin))
