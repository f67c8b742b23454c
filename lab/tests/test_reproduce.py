"""Many runs at once: what there is to run, what is done, and a queue that may be killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from lab.agenda import plan_jobs, record_key
from lab.paper import tables
from lab.queries import append_queries, read_queries
from lab.rows import read_row

from interrupts import heed_interrupts
from pairtune.data.datasets import load_task
from pairtune.runs.lock import hold_folder
from pairtune.runs.record import read_records
from pairtune.tune.worker import Job, before_path

ROOT = Path(__file__).parents[2]
QUICK = [f"--set={change}" for change in ("train.epochs=2", "train.batch_size=16", "train.max_seq_length=16", "dev_candidates=0")]


def write_antique(folder: Path) -> None:
    """Twenty questions with three answers each to train on, ten to test on, in the original format."""
    folder.mkdir(parents=True)
    collection, rng = [], np.random.default_rng(0)
    words = ["stone", "river", "cloud", "engine", "garden", "paper", "silver", "window", "forest", "needle"]
    for split, count in (("train", 20), ("test", 10)):
        judged, asked = [], []
        for number in range(count):
            text = " ".join(rng.choice(words, 3))
            asked.append(f"{split}{number}\twhat is a {text}?")
            for grade in (4, 2, 1):
                name = f"{split}{number}_{grade}"
                judged.append(f"{split}{number} U0 {name} {grade}")
                collection.append(f"{name}\t{text if grade == 4 and number % 2 else ' '.join(rng.choice(words, 3))}")
        (folder / f"antique-{split}.qrel").write_text("\n".join(judged))
        (folder / f"antique-{split}-queries.txt").write_text("\n".join(asked))
    (folder / "antique-collection.txt").write_text("\n".join(collection))


@pytest.fixture
def work(tmp_path):
    write_antique(tmp_path / "data" / "antique")
    return tmp_path


def command(work, encoder, what, *more):
    options = ["--model", encoder, "--jobs", "2", "--seeds", "1", "--results", "results", *more]
    return [sys.executable, "-m", "lab", "reproduce", what, *options]


def start(work, words, **how):
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PAIRTUNE_DATA": str(work / "data"), "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heed_interrupts, **how}
    return subprocess.Popen(words, cwd=work, env=environment, **how)


def finish(work, words):
    process = start(work, words)
    out, error = process.communicate()
    return process.returncode, out, error


def records(work):
    return read_records(work / "results")


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(child) for child in found.split()]


def alive(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def wait_for(condition, process=None):
    """Look until it is so; in vain where a process was to make it so, and has ended."""
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_a_queue_that_is_killed_goes_on_and_records_every_run_once(work, tiny_encoder):
    words = command(work, tiny_encoder, "1", *QUICK)
    first = start(work, words)
    wait_for(lambda: list((work / "results").glob("*.jsonl")) and records(work), first)
    workers = children(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    wait_for(lambda: not any(map(alive, workers)))
    before = records(work)
    assert before
    status, out, error = finish(work, words)
    assert status == 0 and "5 of 5 runs are in results" in out, error
    assert f"{5 - len(before)} runs to make, {len(before)} are recorded already" in error
    assert "leaked" not in error  # idle workers end by themselves, and leave nothing to clean up after them
    counted = Counter((run.name, run.seed) for run in records(work))
    assert counted == {(name, 1): 1 for name in tables()["1"]}
    assert records(work)[: len(before)] == before
    check_what_is_left(work)


def workers_of(queue):
    """The processes that train; Python's own helper is a child of the queue too."""
    return [pid for pid in children(queue.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def begun(work):
    """Whether a run has got as far as its training."""
    return list((work / "runs").rglob("before.json"))


@pytest.mark.parametrize("when", ["workers begin", "workers train"])
def test_ctrl_c_ends_workers_that_begin_and_workers_that_train_without_a_traceback(work, tiny_encoder, when):
    process = start(work, command(work, tiny_encoder, "1", *QUICK), start_new_session=True)
    wait_for(lambda: workers_of(process) and (when == "workers begin" or begun(work)), process)
    workers = workers_of(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, error = process.communicate()
    assert process.returncode == 130 and "Traceback" not in error, error
    wait_for(lambda: not any(map(alive, workers)))


def check_what_is_left(work):
    """Records with relative paths, a score per query whose mean is the record's, and no weights."""
    queries = read_queries(work / "results")
    for run in records(work):
        assert (
            run.model
            == f"{Path(run.encoder).name}/{run.name.replace('/', '-')}-{run.model.split('/')[1][-6:]}/seed-{run.seed}/model"
        )
        folder = work / "runs" / "lab" / Path(run.model).parent
        assert {path.name for path in folder.iterdir()} >= {"evidence.json", "log.txt", "record.json", "recipe.json"}
        scores = queries[record_key(run)]
        assert scores.mean() == pytest.approx(run.after["test"]["MRR"], abs=1e-4)
        assert len(scores) == 10 and len(set(scores)) > 1
    assert len({json.dumps(run.before) for run in records(work)}) == 1
    assert not list((work / "runs").rglob("*.safetensors"))


def test_a_worker_that_is_killed_is_replaced_and_its_run_goes_on(work, tiny_encoder):
    queue = start(work, command(work, tiny_encoder, "antique/mse", *QUICK, "--jobs", "1"))
    wait_for(lambda: begun(work), queue)
    os.kill(workers_of(queue)[0], signal.SIGKILL)
    _, error = queue.communicate()
    assert queue.returncode == 0, error
    assert [run.seed for run in records(work)] == [1]


def test_a_run_that_fails_is_told_at_the_end_and_the_others_are_made(work, tiny_encoder):
    (work / "results").mkdir()
    words = command(work, tiny_encoder, "antique/mse", *QUICK, "--seeds", "1,2", "--jobs", "1", "--no-checkpoints")
    folder = plan_jobs([read_row("antique/mse", [q[6:] for q in QUICK])], tiny_encoder, [2])[0].folder(Path("runs/lab"))
    (work / folder).mkdir(parents=True)
    (work / folder / "recipe.json").write_text('{"seed": 7, "recipe": {}}')  # not ours: refused
    status, out, error = finish(work, words)
    assert status == 2 and "1 of 2 runs are in results" in out, error
    assert "these runs failed:\nantique/mse, seed 2: " in error and "holds a run with other settings" in error
    assert [run.seed for run in records(work)] == [1]


def test_two_queues_do_not_share_a_folder(work):
    with hold_folder(work / "runs" / "lab"):
        status, _, error = finish(work, command(work, "none", "antique/mse"))
    assert status == 2 and f"runs/lab is in use: process {os.getpid()} on" in error


def test_scores_of_the_encoder_as_it_comes_are_lent_to_runs_of_the_same_texts_only(tmp_path):
    write_antique(tmp_path / "antique")
    task = load_task("antique", tmp_path)

    def place(*overrides, seed=1, task=task):
        return before_path(Job(read_row("antique/mse", overrides), seed), task, tmp_path)

    assert place() == place("train.learning_rate=1e-5", "dev=joined") == place(seed=2)
    others = ["dev_candidates=5", "dev=rotating", "train.max_seq_length=20", "encoder=mpnet"]
    known = {place(), *map(place, others), place("dev=rotating", seed=2)}
    assert len(known) == 2 + len(others)
    collection = tmp_path / "antique" / "antique-collection.txt"
    collection.write_text(collection.read_text().replace("test0_1\t", "test0_1\tmended, "))
    assert place(task=load_task("antique", tmp_path)) not in known


def test_half_a_line_of_query_scores_is_passed_over(tmp_path):
    path = tmp_path / "queries" / "minilm.jsonl"
    append_queries(path, "a-1", "MAP", [0.5, 1.0])
    with path.open("a") as file:
        file.write('{"run":"b-1","sco')
    append_queries(path, "c-1", "MAP", [0.25])
    found = read_queries(tmp_path)
    assert {key: scores.tolist() for key, scores in found.items()} == {"a-1": [0.5, 1.0], "c-1": [0.25]}
