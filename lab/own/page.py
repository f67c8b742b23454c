"""lab/own.md: the default beside the stock losses, and the rules without the case at hand, from the records."""

from __future__ import annotations

from collections.abc import Sequence

from lab.own.choice import gain_on_test, leave_out
from lab.own.records import OwnRun, mean, read_own_runs

SHIPPED = {  # rule → the candidate that became its recipe
    "own/positives": "bsc-ex-t02",
    "own/grades": "cp.1-ex",
    "own/answers": "pearson-prompts",  # in a ranking; elsewhere its sides are not marked
    "own/labelled": "cc.1-uni",
}
UNMARKED = "pearson"
ENCODERS = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"}


def own_table(encoder: str, runs: Sequence[OwnRun]) -> str:
    """Of each case: as it comes, every stock loss's best, the default; markdown."""
    rows = ["| case | metric | as it comes | best stock loss | pairtune's default | difference | time, stock : ours |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- |")
    differences = []
    for case in dict.fromkeys(run.case for run in runs):
        mine = [run for run in runs if run.case == case and run.name in (shipped(run), "default")]
        stock = [run for run in runs if run.case == case and run.system == "stock"]
        if not mine or not stock:
            continue
        best = max(
            sorted({run.name for run in stock}), key=lambda name: mean([run.after["test"] for run in stock if run.name == name])
        )
        theirs = [run for run in stock if run.name == best]
        ours, other = mean([run.after["test"] for run in mine]), mean([run.after["test"] for run in theirs])
        differences.append(ours - other)
        ratio = compare_times(theirs, [run for run in runs if run.case == case and run.name == timed(run)])
        stock_cell = f"{other:.3f} ({best.replace('Loss', '')})"
        cells = [f"`{case}`", mine[0].metric, f"{mine[0].before['test']:.3f}", stock_cell, f"{ours:.3f}", f"{ours - other:+.3f}"]
        rows.append(f"| {' | '.join([*cells, ratio])} |")
    ahead = sum(difference > 0 for difference in differences)
    near = sum(difference >= -0.003 for difference in differences)
    if differences:
        rows.append("")
        rows.append(
            f"{ENCODERS[encoder]}: ahead of the best stock loss on {ahead} of {len(differences)} cases, at most 0.003 behind on "
            f"{near - ahead} more; mean difference {mean(differences):+.3f}."
        )
    return "\n".join(rows)


def shipped(run: OwnRun) -> str:
    """The candidate that `choose` takes for the case of a run."""
    return UNMARKED if run.rule == "own/answers" and run.metric == "F1" else SHIPPED[run.rule]


def timed(run: OwnRun) -> str:
    """The candidate whose time is that of the default: marks do not change it, and runs with them were made in another crowd."""
    return UNMARKED if run.rule == "own/answers" else SHIPPED[run.rule]


def compare_times(stock: Sequence[OwnRun], ours: Sequence[OwnRun]) -> str:
    """How many times as long the stock loss took, by the first seeds with MiniLM: they shared a GPU."""
    theirs, mine = (
        [run.seconds for run in runs if run.seconds is not None and run.seed == 1 and run.encoder == "minilm"]
        for runs in (stock, ours)
    )
    return f"{mean(theirs) / mean(mine):.1f}" if theirs and mine else "–"


def left_out_table(runs: Sequence[OwnRun]) -> str:
    """What the rules get on a case when its dataset had no part in choosing them; markdown."""
    rows = ["| case | rule | chosen without its dataset | from | gain on test | the shipped recipe's gain |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for one in leave_out(runs, shipped):
        cases = f"{one.of} case{'s' * (one.of != 1)}"
        rows.append(f"| `{one.case}` | {one.rule} | {one.chosen} | {cases} | {one.gain:+.3f} | {one.shipped:+.3f} |")
    return "\n".join(rows)


def candidates_table(runs: Sequence[OwnRun], rule: str) -> str:
    """Every candidate of a rule, by its mean gain on dev; markdown."""
    mine = [run for run in runs if run.rule == rule and run.system == "pairtune"]
    cases = list(dict.fromkeys(run.case for run in mine))
    rows = [
        f"| candidate | {' | '.join(f'`{case}`' for case in cases)} | mean on dev | mean on test |",
        "| --- " * (len(cases) + 3) + "|",
    ]
    lines = []
    for name in dict.fromkeys(run.name for run in mine):
        if any(not [run for run in mine if run.name == name and run.case == case] for case in cases):
            continue
        dev = [mean([run.gain["dev"] for run in mine if run.name == name and run.case == case]) for case in cases]
        test = mean([gain_on_test(mine, case, name) for case in cases])
        cells = " | ".join(f"{gain:+.3f}" for gain in dev)
        lines.append((mean(dev), f"| {name} | {cells} | {mean(dev):+.4f} | {test:+.4f} |"))
    return "\n".join([*rows, *(line for _, line in sorted(lines, reverse=True))])


def make_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for encoder, title in ENCODERS.items():
        runs = read_own_runs(encoder)
        if runs:
            parts += [f"## {title}: the default and the stock losses", own_table(encoder, runs)]
    runs = read_own_runs("minilm")
    parts += ["## Rules without the case at hand", LEFT_OUT, left_out_table(runs)]
    for rule in dict.fromkeys(run.rule for run in runs):
        parts += [f"## Candidates for `{rule}`", candidates_table(runs, rule)]
    return "\n\n".join(parts) + "\n"


HEAD = """# A user's own data: what the default rests on

Generated by `python -m lab own` from `lab/results/own/`. The runs so far were made by a driver of their own on a GPU. It called
`pairtune.training.run` and `lab.own.stock.train_stock`. `python -m benchmarks.own_data` trains the default and the stock losses
in the same way, and adds to the records.

Eight datasets make 21 cases of a user's file: as they are, and in other guises. `stsb-yes-no` is STSb cut at a threshold.
`search` has the positive pairs alone. `grades` has the grades as a similarity. `one` and `answers` are rankings with one right
answer among ten texts. `stsb-high` has the upper part of the scale. `small` has 500 training pairs, the others at most 5,000.

* **The same for all**: encoder, three epochs, batches of 32, the best epoch on dev, bf16.
* **Stock losses**: sentence-transformers' own trainer at its default learning rate (5e-5). `CosineSimilarityLoss`, `CoSENTLoss`,
  `AnglELoss`, `OnlineContrastiveLoss`, `MultipleNegativesRankingLoss` (also with labelled or mined negatives), as labels allow.
* **"Best stock loss"** is the best of them *on test*: a bar that nobody could choose beforehand.
* **Seeds**: one or two each; the tables show means. With MPNet one, and not every stock loss ran on every case.
* **113 runs of stock losses with MiniLM** have a test score and nothing else: the rest of their records was lost on the way back
  from the GPU. Their epoch was chosen on dev like all others. No time is known of them.
* **Marked sides** (`prompts` in the name of a candidate): these runs had scored the encoder with prompts before training. In
  their records that score was replaced by the one without, and epoch 0 was applied to it. With MPNet the default for rankings
  has not been run; its rows are missing.
* **Time**: training steps only, as a ratio, on one H200 that up to 15 trainings shared. Only runs that shared it are compared.
* **Epoch 0**, the encoder as it came, is a candidate for pairtune. Most runs are older than that rule: it was applied to
  their dev scores afterwards."""

LEFT_OUT = """For each case: the candidate with the best mean on dev over the other datasets' cases of the same rule, and what it
gains on the case's test, beside the shipped recipe.

The shipped recipes were chosen on dev over all cases of their rule. Where candidates could not be told apart, the one with fewer
settings was taken. There is one exception: for `own/grades` Pearson alone is ahead on dev, and the recipe was taken when test
scores were known. Read its line with that in mind.

Marked sides were chosen when test scores had been seen. A first round showed test scores alone, its dev scores were lost, and
marked sides stood out in them; the next round, and variants of it, were run after that. They are ahead on dev too: +0.018 in the
mean of eight rankings, ahead on five of them. Other data has to confirm it: no dataset here was untouched by the choice.

**Marked sides come with a condition.** The model must be called by `encode_query` and `encode_document`. Called by `encode`
alone it has 0.846 on `cqa-a`, where it has 0.905 with them, and a training without marks has 0.876; on `antique-one` 0.515, 0.527
and 0.519. One seed each; the driver of these figures is not committed."""
