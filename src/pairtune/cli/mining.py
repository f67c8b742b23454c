"""Hard negatives for one's own pairs: mine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairtune.cli.common import JsonFlag, LeftPrompt, RightPrompt, app, choose_task, say_notes, settle_prompts
from pairtune.cli.options import OwnData, takes_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from pairtune.data.mining import Mined, Ranker

BM25 = "bm25"


@app.command()
@takes_data
def mine(
    model: Annotated[str, typer.Argument(help="What ranks the candidates: an encoder (alias, folder or hub name), or bm25.")],
    out: Annotated[Path, typer.Argument(help="The table to write: .csv, .tsv, .jsonl or .parquet.")],
    count: Annotated[int, typer.Option(help="Negatives for each pair.", min=1)] = 3,
    skip: Annotated[int, typer.Option(help="Skip this many best candidates: they may be correct answers.", min=0)] = 0,
    ranks: Annotated[int, typer.Option(help="Look at this many candidates; 0: as many as needed.", min=0)] = 0,
    margin: Annotated[
        float, typer.Option(help="A negative scores at most (1 - this) times the right answer; below 0: no limit.")
    ] = 0.05,
    absolute_margin: Annotated[float | None, typer.Option(help="A negative scores at most the right answer minus this.")] = None,
    highest: Annotated[float | None, typer.Option(help="No negative scores above this.")] = None,
    lowest: Annotated[float | None, typer.Option(help="No negative scores below this.")] = None,
    cross_encoder: Annotated[str | None, typer.Option(help="Score the candidates again with this cross-encoder.")] = None,
    own: OwnData = OwnData(),  # noqa: B008
    left_prompt: LeftPrompt = None,
    right_prompt: RightPrompt = None,
    as_json: JsonFlag = False,
) -> None:
    """Find hard negatives for positive pairs, among their own right texts or in a corpus, and write them as columns."""
    from pairtune.data.formats import write_table
    from pairtune.data.mining import Wanted, mine_negatives, rank_by, rank_by_words, rescore_with

    task = own.read_whole()
    say_notes(task)
    chosen = choose_task(None, task)
    wanted = Wanted(count, skip, ranks, margin if margin >= 0 else None, absolute_margin, highest, lowest)
    rescore = rescore_with(_load_cross_encoder(cross_encoder)) if cross_encoder else None
    ranker: Callable[..., Ranker] = rank_by_words
    if model != BM25:
        from pairtune.encoders.loading import load_encoder

        encoder = load_encoder(model)
        ranker = rank_by(encoder, settle_prompts(encoder, left_prompt, right_prompt))
    corpus = chosen.test.corpus if own.corpus else None
    found = mine_negatives(chosen.test, wanted, ranker, corpus=corpus, rescore=rescore)
    write_table(out, columns_of(found))
    figures = {"pairs": len(found.pairs), "negatives": count, "short": found.short}
    if as_json:
        print(json.dumps({**figures, "out": str(out)}))
    else:
        short = f"; {found.short:,} pairs are left out, they have too few" if found.short else ""
        print(f"{out}: {len(found.pairs):,} pairs with {count} negatives each{short}")


def columns_of(found: Mined) -> dict[str, Any]:
    """The columns that `train --data` reads, and the scores."""
    negatives = zip(*(found.pairs.negatives or ()), strict=True)
    columns: dict[str, Any] = {"left": found.pairs.left, "right": found.pairs.right}
    columns |= {f"negative_{number}": texts for number, texts in enumerate(negatives, start=1)}
    columns["right_score"] = found.score.round(6).tolist()
    scores = found.negative_score.round(6).T.tolist()
    return columns | {f"negative_{number}_score": values for number, values in enumerate(scores, start=1)}


def _load_cross_encoder(name: str) -> Any:
    from sentence_transformers import CrossEncoder

    from pairtune.errors import UserError

    try:
        return CrossEncoder(name)
    except (OSError, ValueError, KeyError) as problem:
        raise UserError(f"cross-encoder {name!r} could not be loaded ({str(problem).splitlines()[0]})") from problem
