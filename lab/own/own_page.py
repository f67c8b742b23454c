"""lab/own.md: the default beside the stock losses, and the rules without the case at hand, from the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.own.choice import SEARCHED, gain_on_test, leave_out
from lab.own.own_runs import OwnRun, mean, read_own_runs
from lab.own.thirds import thirds_table

SHIPPED = {  # rule → the variant that became its recipe
    "own/positives": "bsc-ex-t03-m2",
    "own/grades": "cp.1-ex",
    "own/answers": "pl.1-q-half",
    "own/labelled": "pc.1-uni",
}
BEFORE = {"own/answers": "pc.1-q-half", "own/positives": "bsc-ex-t02"}  # what cross-validation compared with
TITLES = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"}


def own_table(encoder: str, runs: Sequence[OwnRun]) -> str:
    """Of each case: as it comes, every stock loss's best, the default; markdown."""
    rows = ["| case | metric | as it comes | best stock loss | pairtune's default | difference | time, stock : ours |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- |")
    differences, chosen = [], []
    for case, mine, stock in compared_cases(runs):
        theirs = best_stock(stock, "test")
        ours, other = mean([run.after["test"] for run in mine]), mean([run.after["test"] for run in theirs])
        chosen.append(ours - mean([run.after["test"] for run in best_stock(stock, "dev")]))
        differences.append(ours - other)
        ratio = compare_times(theirs, [run for run in runs if run.case == case and run.name == timed(run)] or mine)
        stock_cell = f"{other:.3f} ({theirs[0].name.replace('Loss', '')})"
        cells = [f"`{case}`", mine[0].metric, f"{mine[0].before['test']:.3f}", stock_cell, f"{ours:.3f}", f"{ours - other:+.3f}"]
        rows.append(f"| {' | '.join([*cells, ratio])} |")
    ahead = sum(difference > 0 for difference in differences)
    near = sum(difference >= -0.003 for difference in differences)
    first = sum(difference > 0 for difference in chosen)
    if differences:
        rows.append("")
        rows.append(
            f"{TITLES[encoder]}: ahead of the best stock loss on {ahead} of {len(differences)} cases, at most 0.003 behind on "
            f"{near - ahead} more; mean difference {mean(differences):+.3f}.\nBeside the stock loss that is best on dev, "
            f"which a user can choose: ahead on {first}, mean difference {mean(chosen):+.3f}."
        )
    return "\n".join(rows)


def compared_cases(runs: Sequence[OwnRun]) -> Iterator[tuple[str, list[OwnRun], list[OwnRun]]]:
    """Each case with the runs of the default and those of the stock losses, where it has both."""
    for case in dict.fromkeys(run.case for run in runs):
        mine = [run for run in runs if run.case == case and run.name in (shipped(run), "default")]
        stock = [run for run in runs if run.case == case and run.system == "stock"]
        if mine and stock:
            yield case, mine, stock


def best_stock(stock: Sequence[OwnRun], split: str) -> list[OwnRun]:
    """The runs of the stock loss with the best mean on dev, or on test."""
    names = sorted({run.name for run in stock})
    best = max(names, key=lambda name: mean([run.after[split] for run in stock if run.name == name]))
    return [run for run in stock if run.name == best]


def each_stock_table(runs: Sequence[OwnRun]) -> str:
    """How far the default is ahead of each stock loss on test, over the cases that have both; markdown."""
    found: dict[str, list[float]] = {}
    for _, mine, stock in compared_cases(runs):
        ours = mean([run.after["test"] for run in mine])
        for name in dict.fromkeys(run.name for run in stock):
            theirs = mean([run.after["test"] for run in stock if run.name == name])
            found.setdefault(name, []).append(ours - theirs)
    rows = [
        f"| {name} | {mean(gains):+.3f} | {sum(gain > 0 for gain in gains)} of {len(gains)} |"
        for name, gains in sorted(found.items(), key=lambda entry: mean(entry[1]))
    ]
    return "\n".join(["| stock loss | default − stock, mean | default ahead |", "| --- | --- | --- |", *rows])


def tuned_table(runs: Sequence[OwnRun]) -> str:
    """Of each case that was searched: the best stock loss, the default, what the search found; markdown."""
    rows = ["| case | metric | best stock loss | default | tuned | tuned − stock | tuned − default |", "| --- " * 7 + "|"]
    differences = []
    for tuned in (run for run in runs if run.name == "tune"):
        mine, stock = (
            [run.after["test"] for run in found]
            for found in (
                [run for run in runs if run.case == tuned.case and run.name in (shipped(run), "default")],
                best_stock([run for run in runs if run.case == tuned.case and run.system == "stock"], "test"),
            )
        )
        found = tuned.after["test"]
        differences.append((found - mean(stock), found - mean(mine)))
        figures = f"{mean(stock):.3f} | {mean(mine):.3f} | {found:.3f} | {differences[-1][0]:+.3f} | {differences[-1][1]:+.3f}"
        rows.append(f"| `{tuned.case}` | {tuned.metric} | {figures} |")
    if differences:
        to_stock, to_default = (mean([pair[place] for pair in differences]) for place in (0, 1))
        ahead = sum(first > 0 for first, _ in differences)
        rows.append(
            f"\nAhead of the best stock loss on {ahead} of {len(differences)} cases; mean difference {to_stock:+.3f}, and "
            f"{to_default:+.3f} to the default."
        )
    return "\n".join(rows)


def plain_table(runs: Sequence[OwnRun]) -> str:
    """Of the variants for rankings that mark sides: what they gain read with marks, and read by `encode`; markdown."""
    marked = [run for run in runs if run.plain]
    names = sorted({run.name for run in marked})
    ran = {case: {run.name for run in marked if run.case == case} for case in {run.case for run in marked}}
    cases = sorted(case for case, found in ran.items() if found == {*names})
    rows = [
        "| variant | dev, with marks | dev, `encode` | test, with marks | test, `encode` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in [*names, "pearson"]:
        cells = []
        for split in ("dev", "test"):
            for plain in (False, True):
                found = [[gain_of(run, split, plain) for run in runs if run.case == case and run.name == name] for case in cases]
                cells.append(f"{mean([mean(gains) for gains in found]):+.4f}" if all(found) else "–")
        rows.append(f"| {name}{' (no marks)' * (name not in names)} | {' | '.join(cells)} |")
    rows.append(f"\nMeans over {len(cases)} rankings: {', '.join(f'`{case}`' for case in cases)}.")
    return "\n".join(rows)


def gain_of(run: OwnRun, split: str, plain: bool) -> float:
    """What a run gained, read with its marks or, where it has any, without them."""
    return (run.plain or run.after if plain else run.after)[split] - run.before[split]


def shipped(run: OwnRun) -> str:
    """The variant that `choose` takes for the case of a run."""
    return SHIPPED[run.rule]


def timed(run: OwnRun) -> str:
    """The variant whose time is that of the default: marks do not change it, and runs with them were made in another crowd."""
    return "pc.1-q" if run.rule == "own/answers" else SHIPPED[run.rule]


def compare_times(stock: Sequence[OwnRun], ours: Sequence[OwnRun]) -> str:
    """How many times as long the stock loss took, by the first seeds with MiniLM: they shared a device."""
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


def variants_table(runs: Sequence[OwnRun], rule: str) -> str:
    """Every variant of a rule, by its mean gain on dev; markdown."""
    mine = [run for run in runs if run.rule == rule and run.system == "pairtune" and run.name not in SEARCHED]
    cases = list(dict.fromkeys(run.case for run in mine))
    rows = [
        f"| variant | {' | '.join(f'`{case}`' for case in cases)} | mean on dev | mean on test |",
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
    for encoder, title in TITLES.items():
        runs = read_own_runs(encoder)
        if runs:
            parts += [f"## {title}: the default and the stock losses", own_table(encoder, runs), EACH, each_stock_table(runs)]
    runs = read_own_runs("minilm")
    parts += ["## After `pairtune tune`", TUNED, tuned_table(runs)]
    thirds = read_own_runs("minilm-thirds")
    for rule, base in BEFORE.items():
        parts += [
            f"## Cross-validation for `{rule}`",
            *([HELD_OUT] if rule == min(BEFORE) else []),
            thirds_table(thirds, rule, base),
        ]
    parts += ["## Rules without the case at hand", LEFT_OUT, left_out_table(runs)]
    parts += ["## Marked sides, and `encode`", MARKED, plain_table(runs)]
    for rule in dict.fromkeys(run.rule for run in runs):
        parts += [f"## Variants for `{rule}`", variants_table(runs, rule)]
    return "\n\n".join(parts) + "\n"


HEAD = """# A user's own data: what the default rests on

Generated by `python -m lab own` from `lab/results/own/`. Most runs were made by a driver of their own on a GPU. It called
`pairtune.training.run` and `lab.own.stock.train_stock`. `python -m benchmarks.own_data` trains the default and the stock losses
in the same way, and adds to the records.

The cases are files of a user: public datasets as they are, and in other guises. `stsb-yes-no` is STSb cut at a threshold.
`search` has the positive pairs alone. `grades` has the grades as a similarity. `one` and `answers` are rankings with one right
answer among ten texts. `stsb-high` has the upper part of the scale. `small` has 500 training pairs, the others at most 5,000.
`packages` is made of the descriptions of Debian's packages, `senses` of WordNet (which definition a sentence uses, whether two
sentences use a word alike, how near two definitions stand, a definition by its synonyms), `faq` of Perl's list of questions.

* **The same for all**: encoder, three epochs, batches of 32, the best epoch on dev, bf16.
* **Stock losses**: sentence-transformers' own trainer at its default learning rate (5e-5). `CosineSimilarityLoss`, `CoSENTLoss`,
  `AnglELoss`, `OnlineContrastiveLoss`, `MultipleNegativesRankingLoss` (also with labelled or mined negatives), as labels allow.
* **"Best stock loss"** is the best of them *on test*: a bar that nobody could choose beforehand. The line below each table also
  has the stock loss that is best on dev, for which a user trains all of them. Our recipes were chosen on dev, or by
  cross-validation, over these very cases: on other data expect somewhat less.
* **F1** is at the threshold with the highest F1 on dev, for all systems. The product now chooses a steadier one
  (`python -m lab thresholds`).
* **Seeds**: one or two each; the tables show means. With MPNet one, and not every stock loss ran on every case.
* **Marked sides** (`prompts` in the name of a variant): these runs had scored the encoder with prompts before training. In
  their records that score was replaced by the one without, and epoch 0 was applied to it.
* **Time**: training steps only, as a ratio, on one H200 that up to 15 trainings shared. Not all runs shared it with the same
  others: read the ratios as rough ones. Marks do not change the time, so that of the runs without them is shown.
* **`packages`, `senses` and `faq`** came last, as data on which no recipe had been designed, with 183 to 960 training pairs.
  Runs of 2026-11-19. The files of `packages` follow Debian's lists, which change: older runs on them were left out. An
  earlier state of `packages-yes-no` showed Pearson ahead of CoSENT on dev, so `own/labelled` has both since; its test scores
  were seen before that. Stock losses have one or two seeds here.
* **`own/answers` and `own/positives`** are of 2026-11-19. They were chosen by cross-validation (below), on all cases of their
  rule. Test scores of the mined negatives were seen before that, in a first round of runs that showed dev and test together.
  They looked better on test than on dev; the choice, and that of two negatives and τ = 0.03, is that of the held-out thirds.
* **Epoch 0**, the original encoder, may be kept like any epoch. Most runs are older than that rule: it was applied to
  their dev scores afterwards.
* **As it comes**: MiniLM was trained on Quora's duplicate questions and on Yahoo! Answers. `qqp` and `antique` are made of them.
  It reads as much of a text here as the default does. On `cqa-b`, dev prefers texts of 90 tokens, with which it has 0.506.
* **Rankings** (MAP, MRR): the default marks questions and answers, and its figures are of models read with `encode_query` and
  `encode_document`. Plain `encode` works too, a little worse (see *Marked sides* below)."""

EACH = """One stock loss for all cases is what most people take. Over the cases that a stock loss fits:"""

LEFT_OUT = """For each case: the variant with the best mean on dev over the other datasets' cases of the same rule, and what it
gains on the case's test, beside the shipped recipe.

Only cases on which five variants or more ran have a part. `own/grades` and `own/labelled` were chosen on dev over all of
them. `own/answers` and `own/positives` were chosen by the held-out thirds (above), which have a leave-one-out of their own.
Where variants could not be told apart, the one with fewer settings was taken. There is one exception: for `own/grades`
Pearson alone is ahead on dev, and the recipe was taken when test
scores were known. Read its line with that in mind."""

HELD_OUT = """Thirds of train and dev are held out in turn; a variant trains on the rest, 2,500 pairs at most, and its best
epoch is scored on the third. Figures are thousandths of the case's metric, beside the recipe that was shipped before: means
over the three thirds. ±: standard error over cases. The last column says of how many left-out datasets the variant is the
best without them. Command: `python -m benchmarks.own_data --thirds --precision bf16 --system …`. The base and the variants
without `pl` and `t03-m` were run by a driver that made the same thirds and called `pairtune.training.run`."""

TUNED = """`pairtune tune --data FILE` with 16 fold trainings, seed 1, on all cases. The search saw train and dev; test was
scored once, at its end. Command: `python -m benchmarks.own_data --system tune --tune 16 --seeds 1`. These searches are older than
the average of the last trainings (`average_of`), which `tune` makes now."""

MARKED = """In a ranking the default marks questions and answers for half the left texts of the training set (`mark_share`). The
model can then be read in both ways: with `encode_query` and `encode_document`, or by plain `encode`. Variants with `half` in
their name are trained so; `pearson-marks` has all pairs marked, `pearson` none.

The recipe was chosen on dev: read by `encode`, it had to lose nothing against a training without marks, and of those that do it
is the best with marks. Marked sides as such were chosen when test scores had been seen: a first round showed test scores alone,
its dev scores were lost, and marked sides stood out in them."""
