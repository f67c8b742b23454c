"""Real parts for the tests of product and lab: a real small encoder, the real data where it is there. And no clock."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from killing import Commands
    from pairtune.data.pairs import Task

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test workers on two cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test depends on a network

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported until now stays: each training collects garbage, and would look through all of it again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Nothing stays any more: extensions report what is frozen as leaked."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def tiny_encoder() -> str:
    """A folder with most of MiniLM's first two layers and its most frequent words: real geometry, little time.

    Made once and kept in the cache, so that both test workers and later runs share it.
    """
    from pairtune.cache import cache_folder
    from small import make_tiny_encoder, tiny_name

    folder = cache_folder() / "encoders" / tiny_name()
    if not (folder / "modules.json").exists():
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        make_tiny_encoder(aside)
        try:
            aside.rename(folder)
        except OSError:  # the other worker was first
            assert (folder / "modules.json").exists()
            shutil.rmtree(aside)
    return str(folder)


@pytest.fixture
def tiny_model(tiny_encoder: str) -> SentenceTransformer:
    """A fresh copy of the tiny encoder, on the CPU."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(tiny_encoder, device="cpu")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the original datasets; the test is skipped where there is none."""
    folder = os.environ.get("PAIRTUNE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the original datasets: set PAIRTUNE_DATA to their folder")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def small_task() -> Task:
    """A few pairs in three splits, as similarities."""
    from pairtune.data.pairs import Task
    from small import small_pairs

    metrics = ("Spearman", "Pearson")
    return Task("small", "regression", small_pairs(48, 1), small_pairs(24, 2), small_pairs(24, 3), "Spearman", metrics)


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """Starts commands of pairtune in processes of their own that need not load torch again."""
    from killing import starting_commands

    with starting_commands() as commands:
        yield commands


TOGETHER = {  # files whose tests share what is slow to make, by the name of their group: each group runs on one worker
    "tests/tune/test_tuner.py": "searches",
    "tests/test_resume.py": "stopped runs",
    "tests/test_train.py": "trained runs",
    "tests/report/test_report.py": "reported runs",
    "tests/sbert/test_losses_ddp.py": "two processes",
    "tests/sbert/test_sampler_ddp.py": "two processes",
    "tests/sbert/test_processes.py": "two processes",
    "tests/sbert/test_sharded.py": "spread weights",
    "tests/sbert/test_card.py": "cards",
    "tests/test_keeping.py": "kept encoders",
    "tests/test_killed_anywhere.py": "stopped runs",
    "tests/encoders/test_adapters.py": "stopped runs",
    "tests/encoders/test_sizes.py": "sizes",
    "tests/data/test_sources.py": "sources",
    "tests/serve/test_serve.py": "served models",
    "tests/serve/test_serve_browser.py": "browser",
    "tests/report/test_report_browser.py": "browser",
    "tests/engines/test_engines_spark.py": "Spark",
}


LONG = (  # single tests that take seconds: begun early, so that no worker is left with one when the other has ended
    "tests/test_docs.py::test_the_blocks_of_a_page",
    "tests/test_readme.py",
    "tests/loss/test_kernels.py::test_the_kernels_pass_their_tests",
    "tests/cli/test_tuning.py",
    "tests/cli/test_every_format.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those in LONG first; the rest stays in its order."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out the groups of TOGETHER first, the largest of them at the start, then all other tests one by one.

    The marks of pytest-xdist 3.8 for this do nothing with pytest 9.2, which keeps a test's name elsewhere.
    """
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER.get(nodeid.partition("::")[0], nodeid)

    return GroupScheduling(config, log)
