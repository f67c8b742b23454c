"""Whether a regular expression stays fast on texts that were written to slow it down: tried in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

LENGTH = 5000  # characters: a search that takes steps by the square of it passes Oniguruma's limit of ten million
SECONDS = 60  # for all of an expression's texts; a good one takes a fraction of a second
ENDS = ("\0", " \0")  # what no expression expects, so that the match fails late and every other way is tried
SAMPLES = {"s": " ", "S": "a", "w": "a", "W": "-", "d": "1", "D": "a", "h": "a", "H": "-", "n": "\n", "t": "\t"}
PIECE = re.compile(
    r"\\(?P<escaped>.)|(?P<set>\[\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?(?:<?[=!]|[:>~]|<\w+>|[\w-]+[:)]))?)"
    r"|(?P<mark>[)|^$])|(?P<repeat>[*+?]|\{[\d,]+\})|(?P<plain>.)",
    re.DOTALL,
)


def find_slow_text(pattern: str) -> str | None:
    """A text on which a search for the pattern takes more steps than any reasonable one; None where none was found."""
    texts = list(dict.fromkeys(hard_texts(pattern)))
    command = [sys.executable, "-m", "pairtune.encoders.trial"]
    asked = json.dumps({"pattern": pattern, "texts": texts})
    try:  # the tokenizer panics where the engine gives up, which prints a page: not in the user's terminal
        done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, timeout=SECONDS)
        tried = done.stdout.split()
    except subprocess.TimeoutExpired as late:
        tried = (late.stdout or b"").decode().split()
    return None if len(tried) == len(texts) else texts[len(tried)]


def hard_texts(pattern: str) -> Iterator[str]:
    """Texts that nearly match: what comes before each repeated part, that part many times, and an end that does not fit."""
    seen, last = "", ""  # one way to match what stands before, and its last part
    begun = [0]  # where in it the groups that are still open begin
    for piece in PIECE.finditer(pattern):
        if piece["repeat"]:
            for part in dict.fromkeys((last or "a", seen or "a", f",{seen}", f" {seen}", f"{seen} ", "a", " ")):
                for end in ENDS:
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
        return SAMPLES.get(piece["escaped"], "" if piece["escaped"].isalnum() else piece["escaped"])
    if piece["set"]:
        first = next(PIECE.finditer(piece["set"].strip("[]^") or "a"))
        return "a" if piece["set"].startswith("[^") else example(first) or "a"
    return piece["plain"] or ""


def try_texts(pattern: str, texts: Sequence[str]) -> None:
    """Search each text, and print a line for it; all places in one match, so that the engine counts the steps of them all."""
    from tokenizers import Regex, normalizers

    search = normalizers.Replace(Regex(rf"\A(?m:(?!(?:{pattern})).)*+"), "")
    for place, text in enumerate(texts):
        search.normalize_str(text)
        print(place, flush=True)


if __name__ == "__main__":
    try_texts(**json.load(sys.stdin))
