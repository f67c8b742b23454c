"""What a training leaves beside its record, for people who want to look at it: evidence.json in the folder of the run."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pairtune.errors import UserError

EVIDENCE = "evidence.json"
MOST_ITEMS = 8000  # test pairs, or queries of a search, that are kept
KEPT_CHARACTERS = 200  # characters of a text that is kept


class EvidencePart(BaseModel):
    """Frozen, and written as plain JSON: NaN has no place in it."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Step(EvidencePart):
    """The loss, and τ where it is learned, as they were logged; epoch: how far training was, 1.5 is half of the second."""

    epoch: float
    loss: float
    temperature: float | None = None


class Hardness(EvidencePart):
    """Mean cosines in a sample of an epoch's batches, by the model as it was when the epoch began.

    negative: of all negatives. hardest: of each anchor's most similar one. likely_false: the share of negatives that beat
    the anchor's own right text, as `ordering.hardness` counts them. pairs: the size of the sample.
    """

    epoch: int
    pairs: int
    positive: float
    negative: float
    hardest: float
    likely_false: float


class Snapshot(EvidencePart):
    """One batch of an epoch, by the model as it was when the epoch began.

    similarity[i][j]: left i against right j, m × m, then against `negatives`: the first negative of each pair, in the order of
    the pairs, then the second. positive: m flags, false where the pair is a labelled negative.
    group: m numbers, equal within a group. suspects: the cells (i, j) that are likely false negatives.
    """

    epoch: int
    left: list[str]
    right: list[str]
    positive: list[bool]
    group: list[int]
    similarity: list[list[float]]
    suspects: list[tuple[int, int]]
    negatives: list[str] = []


class Watched(EvidencePart):
    """What was seen of one stage while it trained; order: the name of its ordering."""

    order: str = ""
    steps: list[Step] = []
    hardness: dict[int, Hardness] = {}
    snapshots: dict[int, Snapshot] = {}


class Outcome(EvidencePart):
    """The scores that one model gives to the kept test pairs.

    In a search there is one item per query: score is that of its best right answer, rank the place of it (0 where nothing
    is right), right and rival the best right and the best wrong text, rival_score the score of the wrong one.
    """

    score: list[float]
    rank: list[int] | None = None
    right: list[str] | None = None
    rival: list[str] | None = None
    rival_score: list[float] | None = None


class Judged(EvidencePart):
    """The test pairs that were kept (the queries, in a search), out of `total`, and their scores before and after.

    query: which of them compete, as numbers.
    """

    total: int
    left: list[str]
    right: list[str]
    label: list[float]
    grade: list[float]
    query: list[int]
    before: Outcome
    after: Outcome


class Evidence(EvidencePart):
    """All that a report shows and the record does not hold. kind: of the task; labels above `positive_above` are positive."""

    command: str
    kind: str
    positive_above: float
    stages: list[Watched]
    test: Judged | None = None


def read_evidence(path: Path) -> Evidence | None:
    """The evidence of a run; None for a run that left none."""
    if not path.exists():
        return None
    try:
        return Evidence.model_validate_json(path.read_bytes())
    except ValidationError as problem:
        raise UserError(
            f"{path} was not written by a training of pairtune ({problem.error_count()} problems): train again"
        ) from problem


def shorten(text: str, longest: int = KEPT_CHARACTERS) -> str:
    """At most so many characters, on one line.

    >>> shorten("two\\n words", 5)
    'two …'
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
