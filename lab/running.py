"""Train what has no record yet, many runs at once, and file what comes out: records, scores of test queries and pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from lab.agenda import job_key, record_key
from lab.cosines import append_pairs
from lab.queries import FOLDER, append_queries, score_queries
from lab.validity import problem_of
from lab.variants import base_task, load_variant
from pairtune import Run, UserError
from pairtune.runs.evidence import EVIDENCE, read_evidence
from pairtune.runs.record import append_record, read_records
from pairtune.tune.queue import run_jobs, threads_for
from pairtune.tune.worker import Job, Setup, encoder_name

SILVER = "silver"  # the folder of pairs that a cross-encoder has labelled, beside the runs


def missing_jobs(jobs: Iterable[Job], *folders: Path) -> list[Job]:
    """The runs that have no valid record with scores on test, of the same settings, encoder and seed, whatever its name."""
    records = [run for folder in folders if any(folder.glob("*.jsonl")) for run in read_records(folder)]
    done = {record_key(run) for run in records if "test" in run.after and problem_of(run) is None}
    return [job for job in jobs if job_key(job) not in done]


def reproduce(
    jobs: Sequence[Job],
    *,
    workers: int,
    out: Path,
    results: Path,
    known: Path | None = None,
    keep_models: bool = False,
    checkpoints: bool = True,
    minutes: float = 0.0,
) -> dict[Job, str]:
    """Train the runs that have no record with test scores in `results` yet, and append theirs; what failed, with the reason.

    known: a folder whose records need not be made again either. minutes: then it stops; 0: when all is done.
    """
    from lab.rival_losses import RIVALS

    if not jobs:
        raise UserError("no runs to make: give at least one seed")
    missing = missing_jobs(jobs, results, *([known] if known else []))
    setup = Setup(
        out,
        load=partial(load_variant, silver=out / SILVER),
        threads=threads_for(workers, len(missing)),
        keep_models=keep_models,
        checkpoints=checkpoints,
        losses=RIVALS,
    )
    filed, seconds = len(jobs) - len(missing), 60 * minutes or None
    return run_jobs(missing, workers=workers, setup=setup, file=filing(results, out), done_before=filed, seconds=seconds)


def filing(results: Path, out: Path) -> Callable[[Job, Run], None]:
    """What takes the record of a finished run: queries and pairs go first, because a record says that a run is finished."""

    def file_run(job: Job, run: Run) -> None:
        name = f"{encoder_name(job.recipe.encoder)}.jsonl"
        evidence = read_evidence(job.folder(out) / EVIDENCE)
        scores = None if evidence is None else score_queries(evidence, run.metric)
        if scores is not None:
            append_queries(results / FOLDER / name, job_key(job), run.metric, scores)
        if evidence is not None:
            append_pairs(results, encoder_name(job.recipe.encoder), base_task(run.task), job_key(job), evidence)
        append_record(results / name, run)

    return file_run
