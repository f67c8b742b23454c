"""The options that say where a user's own pairs are: declared once, for every command that reads pairs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from pairtune.errors import UserError

if TYPE_CHECKING:
    from pairtune.data.pairs import Task

PANEL = "Your own pairs"
FORMATS = ".csv, .tsv, .jsonl, .json, .parquet, .arrow, .xlsx, also .gz and .zst, folders of datasets, hub:OWNER/NAME"


def _option(name: str, says: str) -> Any:
    return typer.Option(name, help=says, rich_help_panel=PANEL)


@dataclass(frozen=True)
class OwnData:
    """What the user said about pairs of their own. Each field is an option; files may be given several times, or as patterns."""

    data: Annotated[list[str] | None, _option("--data", f"Your pairs, in one file or more: {FORMATS}.")] = None
    train: Annotated[list[str] | None, _option("--train", "Pairs to train on, if dev or test are files of their own.")] = None
    dev: Annotated[
        list[str] | None, _option("--dev", "Pairs to choose the epoch on; default: a tenth of train, by left text.")
    ] = None
    test: Annotated[
        list[str] | None, _option("--test", "Pairs to report scores on; default: a tenth of train, by left text.")
    ] = None
    left: Annotated[str | None, _option("--left", "Column of the left text; usual names are recognized.")] = None
    right: Annotated[str | None, _option("--right", "Column of the right text; usual names are recognized.")] = None
    label: Annotated[str | None, _option("--label", "Column of the label; usual names are recognized.")] = None
    no_label: Annotated[bool, _option("--no-label", "The pairs have no labels: all are positive.")] = False
    negative: Annotated[
        list[str] | None, _option("--negative", "Column of a negative, or several; negative, negative_1 … are recognized.")
    ] = None
    no_negatives: Annotated[bool, _option("--no-negatives", "Ignore columns of negatives.")] = False
    keep_together: Annotated[
        str | None,
        _option("--keep-together", "Column of names, such as threads; pairs with the same name stay in one split."),
    ] = None
    split_column: Annotated[
        str | None, _option("--split-column", "Column that says train, dev (or validation) or test for each pair.")
    ] = None
    grade: Annotated[
        list[str] | None,
        _option("--grade", "What a label is worth: --grade exact=1 --grade partial=0.5; =out leaves its pairs out."),
    ] = None
    skip_empty: Annotated[bool, _option("--skip-empty", "Leave out pairs that lack a text or their label.")] = False
    hub_split: Annotated[
        list[str] | None, _option("--hub-split", "Which split of a dataset is which: --hub-split test=validation_matched.")
    ] = None
    corpus: Annotated[
        list[str] | None, _option("--corpus", "Texts to search the right answers in: one per line, or a table.")
    ] = None
    kind: Annotated[
        str | None, _option("--kind", "classification, ranking, regression or retrieval; default: seen from the labels.")
    ] = None

    @property
    def given(self) -> bool:
        """Whether there are any pairs."""
        return bool(self.data or self.train or self.dev or self.test)

    @property
    def files(self) -> list[str]:
        """The files that are trained on."""
        if self.data and self.train:
            raise UserError("--data and --train both name the pairs to train on: give one of the two")
        return [*(self.data or ()), *(self.train or ())]

    def read(self) -> Task | None:
        """The task, split as the options say; none where they name no pairs."""
        if not self.given:
            self.refuse_loose_options()
            return None
        return self._read(self.files or None, self.dev, self.test)

    def read_whole(self) -> Task | None:
        """The task to score: its test split is all pairs of --data or --test, or those that are marked as test; dev is --dev."""
        if not self.given:
            self.refuse_loose_options()
            return None
        if self.train:
            raise UserError("--train names pairs to train on: to score them, give them with --data")
        if self.data and self.test:
            raise UserError("--data and --test both name the pairs to score: give one of the two")
        return self._read(None, self.dev, self.data or self.test)

    def read_all(self) -> Task | None:
        """The task to mine or to review, which is about all pairs: in one part, or in the splits that the options make."""
        return self.read() if self.train or self.dev or self.test or self.keep_together else self.read_whole()

    def _read(self, train: Sequence[str] | None, dev: Sequence[str] | None, test: Sequence[str] | None) -> Task:
        from pairtune.data.own_tables import read_pairs

        if self.label and self.no_label:
            raise UserError(f"--label {self.label} and --no-label: give one of the two")
        if self.negative and self.no_negatives:
            raise UserError(f"--negative {self.negative[0]} and --no-negatives: give one of the two")
        return read_pairs(
            train,
            dev,
            test,
            left=self.left,
            right=self.right,
            label=False if self.no_label else self.label,
            keep_together=self.keep_together,
            split_column=self.split_column,
            negatives=() if self.no_negatives else self.negative,
            corpus=self.corpus,
            kind=self.kind,
            grades=parse_grades(self.grade or ()),
            skip_empty=self.skip_empty,
            hub_split=dict(_halve("--hub-split", text, "test=validation_matched") for text in self.hub_split or ()) or None,
        )

    def refuse_loose_options(self) -> None:
        """Refuse options about pairs where there are none: they would be ignored."""
        loose = [field.name.replace("_", "-") for field in fields(self) if getattr(self, field.name)]
        if loose:
            raise UserError(f"--{loose[0]} works with your own pairs only: give them with --data FILE")

    def refuse_loss(self, out: Path) -> None:
        """Refuse to write over a file that is read here: what is written holds other rows and columns."""
        from pairtune.data.records import expand_pattern

        names = [*(self.data or ()), *(self.train or ()), *(self.dev or ()), *(self.test or ()), *(self.corpus or ())]
        target = out.resolve()  # new/../pairs.csv is pairs.csv once `new` has been made
        if target.exists() and any(path.exists() and path.samefile(target) for name in names for path in expand_pattern(name)):
            raise UserError(f"{out} is an input file, and its rows would be lost: give another name")

    def name(self) -> str:
        """How a run on these pairs is called."""
        from pairtune.data.formats import stem_of

        return stem_of(Path([*self.files, *(self.test or ()), *(self.dev or ())][0])).replace("*", "").strip("-_. ") or "own"


def refuse_unquoted(words: Sequence[str]) -> None:
    """Refuse three files or more behind one option: a shell has made them of a pattern, and the second would be a recipe."""
    options = {f"--{name}" for name in ("data", "train", "dev", "test", "corpus")}
    for place, word in enumerate(words):
        files = list(takewhile(lambda one: not one.startswith("-") and Path(one).is_file(), words[place + 1 :]))
        if word in options and len(files) > 2:
            ending = Path(files[0]).suffix
            raise UserError(
                f"{word} takes one file, and {len(files)} follow it: put the pattern in quotes, as in {word} '*{ending}', "
                f"or give {word} before each"
            )


RENAMED_OPTIONS = {"--group": "--keep-together"}


def refuse_renamed(words: Sequence[str]) -> None:
    """Refuse an option that has another name now, and say which."""
    if old := next((name for name in (word.partition("=")[0] for word in words) if name in RENAMED_OPTIONS), None):
        raise UserError(f"{old} is now called {RENAMED_OPTIONS[old]}")


OUT = "out"


def parse_grades(texts: Sequence[str]) -> dict[str, float | None] | None:
    """What each label is worth.

    >>> parse_grades(["exact=1", "a=b=0.5", "-=out"])
    {'exact': 1.0, 'a=b': 0.5, '-': None}
    """
    found: dict[str, float | None] = {}
    for text in texts:
        word, value = _halve("--grade", text, "exact=1")
        try:
            found[word] = None if value.lower() == OUT else float(value)
            if not math.isfinite(found[word] or 0):
                raise ValueError
        except ValueError:
            raise UserError(f"--grade {text}: expected a number, or {OUT}, after the label, as in --grade exact=1") from None
    return found or None


def _halve(option: str, text: str, example: str) -> tuple[str, str]:
    """The texts before and after the last equals sign."""
    word, sign, value = text.rpartition("=")
    if not sign or not value.strip():
        raise UserError(f"{option} {text}: expected a name, an equals sign and a value, as in {option} {example}")
    return word.strip(), value.strip()


def takes_data(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `own: OwnData` is made of the options above, which stand where it stands."""
    names = [field.name for field in fields(OwnData)]
    hints, own_hints = get_type_hints(command, include_extras=True), get_type_hints(OwnData, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=field.default, annotation=own_hints[field.name]
        )
        for field in fields(OwnData)
    ]
    parameters = [
        option
        for one in inspect.signature(command).parameters.values()
        for option in (options if one.name == "own" else [one.replace(annotation=hints[one.name])])
    ]

    @wraps(command)
    def with_data(**values: Any) -> None:
        said = {name: values.pop(name) for name in names}
        command(own=OwnData(**{name: value for name, value in said.items() if value}), **values)

    with_data.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_data.__annotations__ = {one.name: one.annotation for one in parameters}
    del with_data.__wrapped__
    return with_data
