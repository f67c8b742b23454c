"""Train what has no record yet, many runs at once, and file what comes out: records, scores of test queries and pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from lab.agenda import job_key, record_key
from lab.cosines import append_pairs
from lab.guises import base_task, load_guise
from lab.queries import FOLDER, append_queries, score_queries
from lab.validity import problem_of
from pairtune import Run, UserError
from pairtune.runs.evidence import EVIDENCE, read_evidence
from pairtune.runs.record import append_record, read_records
from pairtune.tune.queue import run_jobs, threads_for
from pairtune.tune.worker import Job, Setup, encoder_name

SILVER = "silver"  # the folder of pairs that a cross-encoder has labelled, beside the runs


def missing_jobs(jobs: Iterable[Job], *folders: Path, since: datetime | None = None) -> list[Job]:
    """The runs that have no valid record with scores on test, of the same settings, encoder and seed, whatever its name.

    since: records that were finished earlier do not count.
    """
    records = [run for folder in folders if any(folder.glob("*.jsonl")) for run in read_records(folder)]
    valid = (run for run in records if "test" in run.after and problem_of(run) is None)
    done = {record_key(run) for run in valid if since is None or datetime.fromisoformat(run.finished) >= since}
    return [job for job in jobs if job_key(job) not in done]


def parse_since(text: str) -> datetime | None:
    """A date, with or without a time of day, in UTC unless it names another zone; of an empty text none.

    >>> parse_since("2026-11-18").isoformat()
    '2026-11-18T00:00:00+00:00'
    """
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"--since is {text!r}; expected a date such as 2026-11-18 or 2026-11-18T08:15") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def reproduce(
    missing: Sequence[Job],
    *,
    filed: int,
    workers: int,
    out: Path,
    results: Path,
    keep_models: bool = False,
    checkpoints: bool = True,
    minutes: float = 0.0,
) -> dict[Job, str]:
    """Train the runs that are missing, and append their records to `results`; what failed, with the reason.

    filed: so many are there already. minutes: then it stops; 0: when all is done.
    """
    from lab.rival_losses import RIVALS

    setup = Setup(
        out,
        load=partial(load_guise, silver=out / SILVER),
        threads=threads_for(workers, len(missing)),
        keep_models=keep_models,
        checkpoints=checkpoints,
        losses=RIVALS,
    )
    seconds = 60 * minutes or None
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
