"""The storage that processes of a search share."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from pairtune.runs.toml import make_recipe
from pairtune.tune.ledger import Ledger
from pairtune.tune.space import Space

SPACE = Space.around(make_recipe({"name": "base", "loss": {"kind": "pearson"}}), "regression")
OPEN = "import sys; from pairtune.tune.ledger import Ledger; print(len(Ledger.open(sys.argv[1], 'shared').entries()))"


@pytest.fixture
def ledger(tmp_path):
    found = Ledger.open(tmp_path / "journal.log", "mine")
    found.begin({"pairs": 7}, SPACE)
    return found


def test_processes_that_make_a_database_at_the_same_time_all_get_in(tmp_path):
    command = [sys.executable, "-c", OPEN, f"sqlite:///{tmp_path / 'new.db'}"]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: subprocess.run(command, capture_output=True, text=True, check=False), range(4)))
    assert [result.stdout.strip() for result in results] == ["0"] * 4, [result.stderr for result in results]


def test_the_first_to_begin_decides_the_plan_and_the_start_counts_once(tmp_path, ledger):
    other = Ledger.open(tmp_path / "journal.log", "mine")
    other.begin({"pairs": 99}, SPACE)
    assert ledger.plan() == other.plan() == {"pairs": 7}
    assert [entry.levels for entry in other.entries()] == [SPACE.start]


def test_a_result_is_there_for_whoever_opens_the_storage_next(tmp_path, ledger):
    ledger.report(ledger.entries()[0], 3, 0.7, 0.5, 12.0)
    [entry] = Ledger.open(tmp_path / "journal.log", "mine").entries()
    assert (entry.scores, entry.before, entry.seconds) == ({3: 0.7}, {3: 0.5}, {3: 12.0})


def test_a_second_result_of_a_fold_is_passed_over(ledger):
    entry = ledger.entries()[0]
    for score in (0.7, 0.9):
        ledger.report(entry, 3, score, 0.5, 12.0)
    assert ledger.entries()[0].scores == {3: 0.7}


def test_a_claim_holds_while_its_process_lives(tmp_path, ledger):
    program = (
        "import sys; from pairtune.tune.ledger import Ledger; ledger = Ledger.open(sys.argv[1], 'mine')\n"
        "ledger.claim(ledger.entries()[0], 2); print('claimed', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, tmp_path / "journal.log"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout.readline() == "claimed\n"
        assert ledger.entries()[0].claimed == {2}
        process.kill()
    assert ledger.entries()[0].claimed == frozenset()


def test_what_a_killed_search_of_this_process_had_claimed_is_free(tmp_path, ledger):
    ledger.claim(ledger.entries()[0], 2)
    assert ledger.entries()[0].claimed == {2}
    assert Ledger.open(tmp_path / "journal.log", "mine").entries()[0].claimed == frozenset()


def test_candidates_that_are_drawn_were_not_tried_before(ledger):
    drawn = [ledger.draw(SPACE) for _ in range(12)]
    levels = [frozenset(entry.levels.items()) for entry in (*ledger.entries(),)]
    assert all(drawn) and len(set(levels)) == len(levels) == 13


def test_the_same_search_draws_the_same_candidates(tmp_path):
    found = []
    for name in ("one", "two"):
        ledger = Ledger.open(tmp_path / f"{name}.log", "mine")
        ledger.begin({}, SPACE)
        found.append([ledger.draw(SPACE).levels for _ in range(5)])
    assert found[0] == found[1]


def test_a_candidate_that_has_ended_stays_so_and_keeps_its_reason(ledger):
    entry = ledger.draw(SPACE)
    ledger.end(entry, "dropped", -0.01)
    ledger.end(entry, "better", 0.5)  # another process came later
    assert ledger.entries()[-1].ended == "dropped"
    ledger.report(entry, 1, 0.9, 0.5, 1.0)
    assert ledger.entries()[-1].scores == {}
