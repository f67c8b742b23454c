"""Several datasets in one recipe: what each source is, and what it changes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Source(BaseModel):
    """One of several datasets that are trained on together. The names are those of the options of `pairtune train`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[\w+-][\w.+-]*$", description="name in scores and messages")
    data: tuple[str, ...] = Field(min_length=1, description="files of pairs to train on; dev and test are split from them")
    dev: tuple[str, ...] = Field((), description="files for dev")
    test: tuple[str, ...] = Field((), description="files for test")
    left: str | None = Field(None, description="column of the left text")
    right: str | None = Field(None, description="column of the right text")
    label: str | Literal[False] | None = Field(None, description="column of the label; `false`: the pairs have none")
    negatives: tuple[str, ...] | None = Field(None, description="columns of negatives; `[]`: none")
    group: str | None = Field(None, description="column of a group that stays in one split")
    split_column: str | None = Field(None, description="column that says train, dev or test")
    grades: dict[str, float | Literal["out"]] = Field({}, description="what a label is worth; `out`: its pairs are left out")
    skip_empty: bool = Field(False, description="leave out pairs that lack a text or their label")
    hub_split: dict[Literal["train", "dev", "test"], str] = Field({}, description="which split of a dataset is which")
    corpus: tuple[str, ...] = Field((), description="files of texts to search the right answers in")
    kind: str | None = Field(None, description="classification, ranking, regression or retrieval")
    prompts: dict[Literal["left", "right"], str] = Field({}, description="instead of the recipe's prompts")
    loss: dict[str, Any] = Field({}, description="settings of `[loss]` that are different for this source")
    order: dict[str, Any] = Field({}, description="settings of `[order]` that are different for this source")

    @field_validator("data", "dev", "test", "corpus", "negatives", mode="before")
    @classmethod
    def _list_one(cls, value: Any) -> Any:
        """One name is a list of one."""
        return [value] if isinstance(value, str) else value
