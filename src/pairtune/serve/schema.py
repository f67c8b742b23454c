"""What the API takes and what it answers: the source of /openapi.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pairtune.serve.guard import MOST_CHARACTERS, MOST_MATCHES, MOST_PAIRS

Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS, pattern=r"\S")]


class Asked(BaseModel):
    """A request: closed, so that a misspelt field is refused instead of passed over."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(Asked):
    """A text, and how many of the nearest texts of the corpus to return."""

    text: Text = Field(examples=["wait until all threads are done"])
    top: int = Field(10, ge=1, le=MOST_MATCHES)


class Pair(Asked):
    """Two texts."""

    left: Text = Field(examples=["how do I sort a list?"])
    right: Text = Field(examples=["sorted(iterable) returns a new sorted list"])


class ScoreRequest(Asked):
    """Pairs of texts to score; for two texts, a list of one pair."""

    pairs: list[Pair] = Field(min_length=1, max_length=MOST_PAIRS)


class Match(BaseModel):
    """A text of the corpus and its cosine with the text that was asked for."""

    score: float
    text: str


class Matches(BaseModel):
    """What one encoder finds, best first."""

    side: str = Field(description="tuned or original", examples=["tuned"])
    encoder: str
    matches: list[Match]


class SearchAnswer(BaseModel):
    """The nearest texts, for each encoder."""

    sides: list[Matches]
    milliseconds: float = Field(description="from the arrival of the request to the answer")


class Scores(BaseModel):
    """The cosine of each pair, in the order of the request."""

    side: str = Field(description="tuned or original", examples=["tuned"])
    encoder: str
    scores: list[float]


class ScoreAnswer(BaseModel):
    """The scores of the pairs, for each encoder."""

    sides: list[Scores]
    milliseconds: float = Field(description="from the arrival of the request to the answer")


class Encoder(BaseModel):
    """One of the encoders that answer."""

    side: str
    encoder: str
    tokens: int | None = Field(description="how much of a text it reads")


class About(BaseModel):
    """What is being served, and how much may be asked at once."""

    version: str
    sides: list[Encoder]
    corpus: str | None
    texts: int = Field(description="distinct texts of the corpus")
    most_characters: int
    most_matches: int
    most_pairs: int


class Problem(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(examples=["body.top"])
    given: str = Field(examples=["0"])
    expected: str = Field(examples=["Input should be greater than or equal to 1"])


class Refusal(BaseModel):
    """Why a request was not answered: a sentence, what was given, what was expected."""

    error: str
    given: str
    expected: str
    problems: list[Problem] = []
