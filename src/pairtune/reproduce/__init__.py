"""Every table of the paper, run for real: which runs there are, which are done, and a queue of workers for the rest."""

from pairtune.reproduce.plan import Job, plan_jobs
from pairtune.reproduce.queue import reproduce

__all__ = ["Job", "plan_jobs", "reproduce"]
