"""The search for each task's best recipe: a few candidates, chosen between on dev.

A candidate is a row of the paper's tables with some settings laid over it. The first ones are rows as they stand. Where the
given dev cannot tell candidates apart, a second round decides, by cross-validation over train and dev together; where that
cannot either, every combination of the settings in question, each judged by all the combinations that have it.
"""

from __future__ import annotations

from lab.candidates import Candidate, Factorial


def _of(task: str, *lines: str) -> tuple[Candidate, ...]:
    """Candidates from lines such as `combo order.by=original loss.mix=0.5`."""
    return tuple(Candidate(f"{task}/{base}", tuple(changes)) for base, *changes in map(str.split, lines))


SEARCH: dict[str, tuple[Candidate, ...]] = {
    "antique": _of(  # dev is 30 questions, and nearly perfect from the first epoch on: the last epoch is as good a choice
        "antique",
        "mse",
        "combo",
        "mse select=last",
        "mse select=last train.bias_correction=true",
        "mse select=last train.epochs=10",
        "mse select=last train.learning_rate=5e-5",
        "mse select=last train.max_seq_length=160",
        "mse select=last loss.kind=pearson",
        "combo loss.mix=0.1 order.by=uniform select=last",
        "combo loss.mix=0.1 order.by=uniform loss.pointwise=pearson select=last",
    ),
    "cqa-a": _of(
        "cqa-a",
        "mse",
        "combo",
        "combo order.by=original",
        "combo order.by=original loss.mix=0.3",
        "combo order.by=original loss.pointwise=pearson",
        "combo order.by=original train.max_seq_length=160",
        "combo order.by=original loss.pointwise=pearson train.max_seq_length=160",
        "mse train.max_seq_length=160",
        "mse loss.kind=pearson",
        "mse loss.kind=pearson train.max_seq_length=160",
        "mse train.learning_rate=5e-5",
        "mse train.max_seq_length=160 train.learning_rate=5e-5",
        "combo order.by=uniform train.max_seq_length=160",
    ),
    "cqa-b": _of(
        "cqa-b",
        "bsc",
        "bsc-random",
        "bsc-group-4",
        "combo",
        "combo loss.mix=0.5",
        "combo loss.mix=0.5 order.by=uniform",
        "combo order.by=uniform train.learning_rate=1e-5",
        "combo order.by=uniform train.max_seq_length=160",
        "bsc train.max_seq_length=160",
        "bsc train.learning_rate=1e-5 train.epochs=3",
    ),
    "pfcc-s": _of(  # the encoder as it comes is hard to beat on 728 pairs: small steps, few epochs; 271 of them share their claim
        "pfcc-s",
        "bsc",
        "bsc-minmax",
        "bsc-learned",
        "bsc train.bias_correction=true train.learning_rate=1e-5 train.epochs=3",
        "bsc-minmax train.bias_correction=true train.learning_rate=1e-5 train.epochs=3",
        "bsc-minmax order.by=uniform train.bias_correction=true train.learning_rate=1e-5 train.epochs=3",
        "bsc-minmax loss.duplicates=mask train.bias_correction=true train.learning_rate=1e-5 train.epochs=3",
        "bsc-row-norm order.by=uniform loss.temperature=0.02 train.bias_correction=true train.learning_rate=1e-5 train.epochs=3",
        *(
            f"bsc-row-norm loss.duplicates=mask train.bias_correction=true {settings}"
            for settings in (
                "loss.temperature=0.02 train.learning_rate=1e-5 train.epochs=3",
                "loss.temperature=0.05 train.learning_rate=1e-5 train.epochs=3",
                "loss.temperature=0.02 train.learning_rate=1e-5 train.epochs=6",
                "loss.temperature=0.02 train.learning_rate=5e-6 train.epochs=6",
                "loss.temperature=0.02 loss.directions=left train.learning_rate=1e-5 train.epochs=3",
                "loss.temperature=0.02 order.side=right train.learning_rate=1e-5 train.epochs=3",
                "loss.temperature=0.02 order.by=uniform train.learning_rate=1e-5 train.epochs=3",
                "loss.temperature=0.02 order.by=uniform train.learning_rate=2e-5 train.epochs=3",
                "loss.temperature=0.03 order.by=uniform train.learning_rate=1e-5 train.epochs=3",
                "loss.temperature=0.02 train.batch_size=60 train.learning_rate=2e-5 train.epochs=3",
                "loss.temperature=0.02 order.by=uniform train.batch_size=60 train.learning_rate=2e-5 train.epochs=3",
                "loss.temperature=0.02 order.by=uniform train.batch_size=120 train.learning_rate=3e-5 train.epochs=3",
                "loss.temperature=0.02 order.by=uniform train.batch_size=240 train.learning_rate=5e-5 train.epochs=3",
                "loss.temperature=0.02 order.by=uniform train.negatives=logarithmic train.learning_rate=1e-5 train.epochs=1",
                "loss.temperature=0.02 order.by=uniform train.negatives=logarithmic train.learning_rate=5e-6 train.epochs=1",
            )
        ),
    ),
    "mrpc": _of(
        "mrpc",
        "mse",
        "combo",
        "pearson-bsc",
        "combo train.learning_rate=5e-5",
        "pearson-bsc train.learning_rate=5e-5",
        "pearson-bsc order.by=uniform train.learning_rate=5e-5",
        "pearson-bsc loss.mix=0.05 train.learning_rate=5e-5 train.epochs=10",
        "pearson-bsc loss.mix=0.3 train.learning_rate=5e-5",
        "pearson-bsc train.learning_rate=1e-4",
    ),
    "qqp": _of(
        "qqp",
        "mse",
        "combo",
        "combo order.by=uniform",
        "combo train.learning_rate=5e-5",
        "combo loss.mix=0.3",
        "combo loss.pointwise=pearson",
        "combo loss.pointwise=pearson train.learning_rate=5e-5",
        "combo loss.normalize=l2 loss.temperature=0.05",
        "combo loss.normalize=l2 loss.temperature=0.05 loss.pointwise=pearson train.learning_rate=5e-5",
    ),
    "stsb": _of(
        "stsb",
        "mse",
        "combo",
        "pearson",
        "bsc-then-mse",
        "pearson train.learning_rate=5e-5",
        "combo loss.pointwise=pearson",
        "combo loss.pointwise=pearson train.learning_rate=5e-5",
        "combo loss.mix=0.05 order.by=uniform train.learning_rate=5e-5",
    ),
}

SAMPLED = "order.by=uniform train.negatives=logarithmic"
SECOND: dict[str, tuple[Candidate, ...]] = {
    task: tuple(Candidate(one.base, ("dev=rotating", *one.changes)) for one in candidates)
    for task, candidates in {
        "antique": _of(  # test has 33 answers to a question, and a quarter of them out of context; train has 12, and a twentieth
            "antique",
            *(
                f"{base} dev_candidates=33 train.bias_correction=true {settings}"
                for base, settings in (
                    ("mse", "select=last"),
                    ("mse", "select=average"),
                    ("mse", "select=last train.blend=0.3"),
                    ("mse", "train.learning_rate=5e-5 select=average"),
                    ("mse", "loss.kind=pearson select=average"),
                    ("mse", "train.max_seq_length=160 select=average"),
                    ("combo", "loss.mix=0.1 order.by=uniform select=average"),
                    ("combo", "loss.mix=0.1 order.by=uniform loss.pointwise=pearson select=average"),
                    ("mse", "train.candidates=33 select=last"),
                    ("mse", "train.candidates=33 select=average"),
                    ("mse", "train.candidates=33 loss.kind=pearson select=average"),
                )
            ),
        ),
        "cqa-a": _of(
            "cqa-a",
            "mse train.max_seq_length=160 select=last",
            "mse train.max_seq_length=160 select=average",
            "mse train.max_seq_length=160 loss.kind=pearson select=average",
            "mse train.max_seq_length=160 train.labels=graded select=average",
            "mse train.max_seq_length=160 loss.kind=pearson train.labels=graded select=average",
            "mse train.max_seq_length=160 train.learning_rate=5e-5 select=average",
            "combo train.max_seq_length=160 select=average",
            "mse train.max_seq_length=256 select=average",
        ),
        "pfcc-s": _of(
            "pfcc-s",
            "bsc-minmax train.bias_correction=true train.learning_rate=1e-5 train.epochs=3 select=last",
            *(
                f"bsc-row-norm loss.duplicates=mask loss.temperature={temperature} train.bias_correction=true {settings}"
                for temperature, settings in (
                    (0.02, "train.learning_rate=1e-5 train.epochs=3 select=last"),
                    (0.02, "train.learning_rate=5e-6 train.epochs=6 select=last"),
                    (0.02, "train.learning_rate=2e-5 train.epochs=6 select=last train.blend=0.5"),
                    (0.02, "order.by=uniform train.learning_rate=1e-5 train.epochs=3 select=last"),
                    (0.02, "order.by=uniform train.batch_size=120 train.learning_rate=3e-5 train.epochs=3 select=last"),
                    (0.02, "order.by=uniform train.batch_size=240 train.learning_rate=5e-5 train.epochs=3 select=last"),
                    (0.02, "order.by=uniform train.batch_size=240 train.learning_rate=5e-5 train.epochs=3 select=average"),
                    (0.02, "order.by=uniform train.batch_size=240 train.learning_rate=5e-5 train.epochs=6 select=last"),
                    (0.02, "order.by=uniform train.batch_size=240 train.learning_rate=5e-5 train.epochs=6 select=average"),
                    (0.02, "order.by=uniform train.batch_size=240 train.learning_rate=5e-5 train.epochs=10 select=average"),
                    (
                        0.02,
                        "order.by=uniform train.batch_size=240 train.learning_rate=1e-4 train.epochs=6 select=last "
                        "train.blend=0.5",
                    ),
                    (0.02, "order.by=uniform train.batch_size=480 train.learning_rate=5e-5 train.epochs=6 select=last"),
                    (0.02, "order.by=uniform train.batch_size=480 train.learning_rate=5e-5 train.epochs=6 select=average"),
                    (0.02, "order.by=uniform train.batch_size=480 train.learning_rate=1e-4 train.epochs=6 select=average"),
                    (0.03, "order.by=uniform train.batch_size=480 train.learning_rate=5e-5 train.epochs=6 select=average"),
                    (0.015, "order.by=uniform train.batch_size=480 train.learning_rate=5e-5 train.epochs=6 select=average"),
                    (0.02, "order.by=uniform train.batch_size=800 train.learning_rate=5e-5 train.epochs=6 select=last"),
                    (0.02, "order.by=uniform train.batch_size=800 train.learning_rate=5e-5 train.epochs=10 select=average"),
                    (0.02, "order.by=uniform train.batch_size=800 train.learning_rate=1e-4 train.epochs=10 select=average"),
                    (0.02, f"{SAMPLED} train.learning_rate=1e-5 train.epochs=1 select=last"),
                    (0.02, f"{SAMPLED} train.learning_rate=2e-5 train.epochs=1 select=last train.blend=0.5"),
                )
            ),
        ),
    }.items()
}


LARGE_BATCHES = (  # what all combinations of PFCC-S's later steps have
    "dev=rotating",
    "select=average",
    "loss.duplicates=mask",
    "loss.temperature=0.02",
    "order.by=uniform",
    "train.bias_correction=true",
    "train.batch_size=480",
)
LINK = r"(https?://|pic[.]twitter[.]com/)\S+"
SIGNED = r"[(]@\w+[)]\s\w+\s\d+,\s\d{4}"  # of a tweet: the account and the date behind the name, which stays
DECIDE = ("minilm", "mpnet")  # the encoders whose runs of combinations count, both of them
COMBINED: dict[
    str, tuple[Factorial, ...]
] = {  # one after the other: a step keeps the better level of what it no longer asks about
    "antique": (
        Factorial(
            "antique/mse",
            ("dev=rotating", "dev_candidates=33", "train.bias_correction=true"),
            (
                ("", "loss.kind=pearson"),
                ("", "train.max_seq_length=160"),
                ("select=average", "select=last train.blend=0.3", "select=average train.blend=0.3"),
            ),
        ),
    ),
    "cqa-b": (
        Factorial(
            "cqa-b/combo",
            ("dev=rotating",),
            (
                ("loss.kind=mse", "loss.kind=bsc", "loss.mix=0.5"),
                ("order.by=uniform", "order.by=examples"),
                ("select=last", "select=average"),
            ),
        ),
        Factorial(
            "cqa-b/combo",
            ("dev=rotating", "select=average"),
            (
                ("loss.kind=bsc", "loss.mix=0.5"),
                ("order.by=uniform", "order.by=examples"),
                ("train.learning_rate=1e-5", "train.learning_rate=3e-5"),
                ("train.epochs=3", "train.epochs=7"),
            ),
        ),
        Factorial(  # between the levels of the step before nothing was sure; this one asks what more pairs are worth
            "cqa-b/combo",
            ("dev=rotating", "select=average", "loss.mix=0.5"),
            (
                ("", "train.splits=train+test2016+train-part2"),
                ("order.by=uniform", "order.by=examples"),
                ("train.learning_rate=1e-5", "train.learning_rate=3e-5"),
                ("train.epochs=3", "train.epochs=7"),
            ),
        ),
        Factorial(
            "cqa-b/combo",
            (
                "dev=rotating",
                "select=average",
                "loss.mix=0.5",
                "train.splits=train+test2016+train-part2",
                "order.by=examples",
                "train.learning_rate=3e-5",
                "train.epochs=3",
            ),
            (
                ("", "ignore=['[;,]']"),  # train, dev and half of test have a semicolon for every comma
                ("", "train.max_seq_length=160"),
                ("", "train.blend=0.3"),
            ),
        ),
    ),
    "pfcc-s": (
        Factorial(
            "pfcc-s/bsc-row-norm",
            (
                "dev=rotating",
                "loss.duplicates=mask",
                "loss.temperature=0.02",
                "order.by=uniform",
                "train.bias_correction=true",
                "train.epochs=6",
            ),
            (
                ("train.batch_size=240", "train.batch_size=480"),
                ("train.learning_rate=2e-5", "train.learning_rate=5e-5", "train.learning_rate=1e-4"),
                ("select=last", "select=average"),
            ),
        ),
        Factorial(
            "pfcc-s/bsc-row-norm",
            LARGE_BATCHES,
            (
                ("", "train.splits=train+titles"),
                ("train.learning_rate=2e-5", "train.learning_rate=5e-5"),
                ("train.epochs=3", "train.epochs=6"),
            ),
        ),
        Factorial(  # mixed with tweets, the titles, fourteen times as many, drown them; this one has the titles alone, before
            "pfcc-s/bsc-row-norm",
            LARGE_BATCHES,
            (
                ("train.learning_rate=2e-5", "train.learning_rate=5e-5"),
                ("train.epochs=3", "train.epochs=6"),
                # last, because it has to find the settings before it, which are those of a stage that says nothing else
                ("", 'stages=[{train={splits="titles",epochs=1,batch_size=128,learning_rate=2e-5}},{}]'),
            ),
        ),
        Factorial(
            "pfcc-s/bsc-row-norm",
            (*LARGE_BATCHES, "train.epochs=6"),
            (
                ("", f"ignore=['{LINK}','{SIGNED}']"),
                ("train.learning_rate=2e-5", "train.learning_rate=5e-5"),
                ("", "train.blend=0.3"),
            ),
        ),
    ),
}


def rounds(task: str) -> dict[str, tuple[Candidate, ...]]:
    """The rounds of a task's search by what they are called, in their order."""
    found = {"Search": SEARCH[task]}
    if task in SECOND:
        found["Second round, by cross-validation"] = SECOND[task]
    for step, design in enumerate(COMBINED.get(task, ()), start=1):
        found[f"Every combination, by cross-validation{f', step {step}' if step > 1 else ''}"] = design.candidates
    return found


def all_candidates(task: str) -> list[Candidate]:
    """Those of all rounds, none twice."""
    found: dict[tuple[str, frozenset[str]], Candidate] = {}
    for candidates in rounds(task).values():
        for candidate in candidates:
            found.setdefault(candidate.settings, candidate)
    return list(found.values())
