"""Prompts: what stands before a left and before a right text whenever an encoder reads one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pairtune.errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

AskedPrompts = Mapping[Literal["left", "right"], str]  # what a user gave, by side; empty: the model's own

QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")  # the first that is not empty


@dataclass(frozen=True)
class Prompts:
    """The prompt of left texts and that of right texts, empty for none."""

    left: str = ""
    right: str = ""

    def __bool__(self) -> bool:
        return bool(self.left or self.right)

    def __str__(self) -> str:
        return f"left texts begin with {self.left!r}, right texts with {self.right!r}"

    def of_left(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Left texts as the encoder reads them."""
        return tuple(self.left + text for text in texts)

    def of_right(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Right texts as the encoder reads them."""
        return tuple(self.right + text for text in texts)


NO_PROMPTS = Prompts()
MARKS = Prompts("question: ", "answer: ")  # so that an encoder without prompts can tell the two sides apart


def own_prompts(model: SentenceTransformer, *, alike: bool = False) -> Prompts:
    """The prompts of the model's config: query before left texts, document (or passage) before right ones; else its default.

    alike: both sides are texts of one sort, such as two questions: the query prompt stands before both. A model that was
    trained with MARKS knows two sorts, whatever the labels of a file look like.
    """
    known = {name: text for name, text in model.prompts.items() if text}
    default = known.get(model.default_prompt_name or "", "")
    left = next((known[name] for name in QUERY if name in known), default)
    right = next((known[name] for name in DOCUMENT if name in known), default)
    return Prompts(left, left if alike and Prompts(left, right) != MARKS else right)


def choose_prompts(model: SentenceTransformer, asked: AskedPrompts, *, alike: bool = False) -> Prompts:
    """The prompts that were asked for, by side; without any, the model's own.

    Refused for a model that leaves the prompt out of its pooling: here a prompt is part of the text.
    """
    own = own_prompts(model, alike=alike)
    found = Prompts(asked.get("left", ""), asked.get("right", "")) if asked else own
    if found and not all(getattr(module, "include_prompt", True) for module in model):
        raise UserError(
            f"this model leaves prompts out of its pooling, which is not supported ({found}): "
            'set prompts = {left = "", right = ""} to go without'
        )
    return found


class Sides:
    """The prompts of a training: those that the encoder came with, and those that it is trained and saved with.

    mark: an encoder that has none, and that nobody gave any, is trained with MARKS, unless both sides are `alike`.
    """

    def __init__(self, model: SentenceTransformer, asked: AskedPrompts, *, alike: bool, mark: bool) -> None:
        self.model, self.came_with = model, (dict(model.prompts), model.default_prompt_name)
        self.own = choose_prompts(model, asked, alike=alike)
        marked = mark and not alike and not asked and not self.own
        self.trained = MARKS if marked else self.own
        self.notes = [str(self.trained)] if self.trained else []
        if marked:
            self.notes.append("the tuned model reads left texts with encode_query, right texts with encode_document")
        if self.own:
            keep_prompts(model, self.own)

    def keep(self) -> None:
        """Let the model be saved with the prompts that it is trained with."""
        if self.trained:
            keep_prompts(self.model, self.trained)

    def restore(self) -> None:
        """Make the model what it was, when training was no gain."""
        if self.trained != self.own:
            self.model.prompts, self.model.default_prompt_name = self.came_with


def keep_prompts(model: SentenceTransformer, prompts: Prompts) -> None:
    """Let the saved model's encode_query and encode_document use these prompts, and encode none by itself."""
    model.prompts = {**model.prompts, "query": prompts.left, "document": prompts.right}
    model.default_prompt_name = None
