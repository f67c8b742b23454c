"""The page of results in the documentation: verdicts, tables and best recipes, made from the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lab.best import best_first, choose_best, deciding
from lab.book import Book
from lab.claims import Claim, conclusions, open_points
from lab.comparator_tables import SAYS as COMPARATORS_SAY
from lab.comparator_tables import comparator_grids
from lab.figures import four_digits
from lab.floor import repeated
from lab.grids import best_grid, encoders_in, grids_of, released_grid
from lab.paper import open_rows, tables, title
from lab.rows import read_row
from lab.scored_rows import recipes_of, shipped_best
from lab.searches import deciding_encoders, searches
from lab.verdicts import Family, judge, learned_temperatures
from pairtune import Run
from pairtune.report.grid import Grid
from pairtune.tune.worker import encoder_name

INTRO = """# Results

Made by `make results` from the records in `results/` and the figures of the paper; no figure of ours here is typed in. The paper
has BERT-base (uncased), the best of five seeds on dev. Here: {encoders}, the mean and the sample standard deviation
over n seeds, and in *best on dev* the seed that the paper would have reported; epoch and threshold are chosen on dev, and scores
are those of test unless a column says otherwise. Runs since 2026-11-18 are scored in float32, older ones in the precision that
they were trained in. *− paper* is our mean less the paper's figure: another encoder, and often other
data, so that the order of the rows is what can be compared. {precision}

*Order* compares a row with the one that comes next below it in the paper: ✓ surely above it here too, (✓) above it within
the noise, (✗) below it within the noise, ✗ surely below it. *Surely*: the 95 % interval of the difference does not include
0; in the tables each comparison stands by itself, while verdicts are corrected for the number of comparisons. All intervals
come from one bootstrap. It draws seeds, spread as Welch's t has it for so few, and test queries, the same for both rows; for
F1 and Spearman pairs instead of queries, where both rows left their cosines, and else seeds alone. *The encoder as it comes*
is scored at the length of texts that dev prefers. Which recipe to take is in [choosing](../docs/choosing.md); what was
tried, and failed, in the [experiments](experiments.md).

The records come with the source, and what has one with scores on test is not trained again; to repeat the runs, name another
folder:

```bash
python -m lab reproduce all --model minilm --seeds 1,2,3,4,5 --jobs 8 --set train.precision=bf16 --results again
python -m lab tables 2 --results again
```"""

RELEASED_SAYS = """Rows whose settings are others in the authors' code than in the text (`recipes/released`): the mean of the
two directions, groups of 7 (CQA-B 4, MRPC 3) out of 200 neighbors, other lengths, in combo the threshold ≥ 0.5, epoch 1 in
file order, and, where its shuffler encodes the texts, no dropout after epoch 1. By the notebooks STSb has bias correction,
PFCC-S's triplets a margin of 0.5, and QQP τ 0.1 with `l2`, rate 1e-5 and groups of 15 from 300 clusters. CQA's subject and
body are joined by [SEP], a group counts distinct texts, each with all its pairs, neighbors are found by Euclidean distance of
raw vectors, and all positives of a text make triplets with all its negatives (18,417 on CQA-A; 6,332 in the text's row). Before
MSE, BSC keeps its best epoch, in the text's row its last. In QQP's notebook the loader shuffles the pairs again after the
shuffler, so that its clusters have no effect there; here they have. *Difference* is code less text; a dash: the paper's is of
dev. The training data of Antique, CQA-A and QQP is not the paper's (see the tables above)."""

BEST_SAYS = """`recipes/<task>/best.toml` is the recipe with the highest mean on dev, over the seeds that all recipes of the
search have (`python -m lab reproduce best`, `python -m lab tables best`), with MiniLM: `mpnet` has gone through few of them.
For {second} this is by cross-validation: train and dev are put together, seed k holds out the k-th tenth as dev, and n counts
tenths.

{combined}

*Floor*: the highest figure of a bare PyTorch loop, not ours, on the same data with the paper's settings, random batches with
in-batch negatives and the encoder as it comes included, nothing chosen: ✓ above it, = equal at its digits, ✗ below it. CQA-B's
is in brackets, because the loop's test had more damaged texts than ours has; before it stands the highest of the same settings
trained here and judged by the same texts, ≥ and without a mark where not all four were trained: {again}.
`cqa-b/best` also trains on 1,370 more pairs of SemEval-2016 (the second part of train, and the test of 2016) that they do
not have. Rounds were added to the search after a best recipe had missed its floor on test.
MRPC's F1@best is of dev, at the best threshold there: the kind of figure that the paper has. The training data of Antique, CQA-A
and QQP is not the paper's."""


BY_SETTINGS = """By settings, not by recipes: {tasks}. Combinations of the leading settings were run with {encoders}, and
of each setting that differs among them the level is taken that has the highest mean effect on dev over all of them (least
squares, both encoders). By itself, what this gives is on dev: {places}. The rule was made after test scores of the recipes
before were known (experiments.md)."""

DEV_FILLED = """The questions of Antique's dev are filled up to 33 answers, as many as test has, with answers to others
(`dev_candidates`)."""

JOINED = """{tasks}: once chosen, trained on dev too (`dev = "joined"`), so that n counts seeds; the score on dev is that of the
cross-validation."""

STILL = """For {tasks} there are runs of combinations that do not decide yet: one of {encoders} has to have all of them, and the
other half."""

FAMILY_SAYS = """Comparisons with valid runs, both encoders together: {compared}. With p < 0.05 by themselves: {alone}; after
Holm's correction, which verdicts ask for: {sure}. ✓ and ✗ are sure after it, (✓) and (✗) only by themselves."""

NAMES = {"minilm": "all-MiniLM-L6-v2 (`minilm`, 22.7 M parameters)", "mpnet": "all-mpnet-base-v2 (`mpnet`, of BERT-base's size)"}


def make_page(book: Book) -> str:
    """The whole page as Markdown."""
    encoders = encoders_in(book)
    named = " and ".join(NAMES.get(encoder, f"`{encoder_name(encoder)}`") for encoder in encoders)
    parts = [INTRO.format(encoders=named, precision=say_precision(book.runs))]
    parts += ["## The paper's conclusions", *_claims(conclusions(), book)]
    parts += ["## What the paper leaves open", *_claims(open_points(), book), *_temperatures(book)]
    for table in tables():
        parts += [f"## {title(table)}", *_grids(grids_of(table, book))]
    if any(len(book.find(recipe, encoder)) for recipe in recipes_of("open") for encoder in encoders):
        parts += [f"## {title('open')}", *_grids(grids_of("open", book))]
    if grids := comparator_grids(book):
        parts += ["## Systems that the paper compares with", COMPARATORS_SAY, *_grids(grids)]
    for heading, says, grid in (
        ("The settings of the released code", RELEASED_SAYS, released_grid(book)),
        ("The best recipes found on dev", say_best(book), best_grid(book)),
    ):
        parts += [] if grid is None else [f"## {heading}", says, grid.as_markdown()]
    return "\n\n".join(parts) + "\n"


def say_best(book: Book) -> str:
    """How the best recipes were chosen, and where those that were chosen by their settings stand by themselves."""
    chosen = [task for task in searches() if deciding(task, book)]
    waiting = [task for task in searches() if _is_under_way(task, book)]
    places = "; ".join(_places(task, book) for task in chosen)
    parts = [
        BY_SETTINGS.format(tasks=_listed(chosen), encoders=_listed(deciding_encoders()), places=places) if chosen else "",
        DEV_FILLED if "antique" in chosen else "",
        JOINED.format(tasks=_listed(joined)) if (joined := [one.task for one in shipped_best() if one.dev == "joined"]) else "",
        STILL.format(tasks=_listed(waiting), encoders=_listed(deciding_encoders())) if waiting else "",
    ]
    second = _listed([task for task, search in searches().items() if search.second and task not in chosen])
    return BEST_SAYS.format(again=_say_again(book), second=second, combined="\n\n".join(filter(None, parts)))


def _say_again(book: Book) -> str:
    """What of the bare loop's settings was trained here, and how often."""
    found = []
    for one in (one for task in searches() for one in repeated(task)):
        counts = {encoder_name(encoder): len(book.find(one.recipe(), encoder)) for encoder in encoders_in(book)}
        seeds = ", ".join(f"{encoder} n = {count}" for encoder, count in counts.items() if count)
        found += [f"`{one.base}` with {' and '.join(f'`{change}`' for change in one.changes)}: {seeds}"] if seeds else []
    return "; ".join(found) or "none yet"


def _listed(tasks: Sequence[str]) -> str:
    named = [f"`{task}`" for task in tasks]
    return " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))


def _is_under_way(task: str, book: Book) -> bool:
    """Whether there are runs of a step after the one that decides; those that it shares with earlier ones do not count."""
    steps = searches()[task].combined
    decided = deciding(task, book)
    after = steps.index(decided) + 1 if decided else 0
    known = {one.settings for design in steps[:after] for one in design.changed_rows}
    recipes = [one.recipe() for design in steps[after:] for one in design.changed_rows if one.settings not in known]
    return any(len(book.find(recipe, encoder)) for recipe in recipes for encoder in deciding_encoders())


def _places(task: str, book: Book) -> str:
    """Where the combination of the best levels stands on dev by itself, with each encoder."""
    design, best = deciding(task, book), choose_best(task, book)
    assert design is not None
    places = []
    for encoder in deciding_encoders():
        ranked = [one for one, sample in best_first(task, book, encoder, design.changed_rows) if len(sample)]
        if best in ranked:
            places.append(f"number {ranked.index(best) + 1} of {len(ranked)} with {encoder}")
    return f"`{task}` {' and '.join(places)}"


def say_precision(runs: Sequence[Run]) -> str:
    """In what the records were computed: that is not what a row is about, so runs of one row may differ in it."""
    counts = Counter(run.recipe["stages"][0]["train"]["precision"] for run in runs)
    return f"Computed in {', '.join(f'{name} ({count} runs)' for name, count in counts.most_common())}." if counts else ""


def _grids(grids: Sequence[Grid]) -> list[str]:
    return [part for grid in grids for part in (f"**{grid.title}**", grid.as_markdown())]


def _claims(claims: Sequence[Claim], book: Book) -> list[str]:
    """Each claim with its verdict for each encoder, and the comparisons that it rests on."""
    encoders = encoders_in(book)
    family = Family(claims, book, encoders)
    parts = [FAMILY_SAYS.format(compared=family.compared, alone=family.alone, sure=family.sure)] if family.compared else []
    for number, claim in enumerate(claims, start=1):
        found = [family.findings(claim, encoder) for encoder in encoders]
        verdicts = ". ".join(f"{encoder_name(one)}: **{judge(claim, some)}**" for one, some in zip(encoders, found, strict=True))
        parts.append(f"{number}\\. *{claim.text}* {verdicts}.")
        rows = [
            (f"`{one.upper}` over `{one.lower}`", *map(str, findings))
            for one, *findings in zip(claim.comparisons, *found, strict=True)
            if any(finding.plain is not None or finding.invalid for finding in findings)
        ]
        if rows:
            parts.append(Grid("", ("comparison", *map(encoder_name, encoders)), tuple(rows)).as_markdown())
    return parts


def _temperatures(book: Book) -> list[str]:
    """Which τ a training finds that learns it, beside the paper's."""
    rows = []
    for name in (name for name in open_rows() if name.endswith("-learned")):
        cells = [learned_temperatures(name, book, encoder) for encoder in encoders_in(book)]
        if any(cells):
            start = read_row(name).stages[0].loss.temperature
            rows.append(
                (f"`{name}`", four_digits(start), *(", ".join(f"{value:.4f}" for value in cell) or "–" for cell in cells))
            )
    head = ("recipe", "τ of the paper", *(f"learned, by seed: {encoder_name(encoder)}" for encoder in encoders_in(book)))
    return [Grid("", head, tuple(rows)).as_markdown()] if rows else []
