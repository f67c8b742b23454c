"""A process may die at any operation on a file: random data, random recipes, and the folder of a run in any order of commands.

A longer search: `PAIRTUNE_FUZZ=500 python -m pytest tests/test_killed_anywhere.py` tries so many, new ones each time.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from killing import Commands
from pairtune.errors import UserError
from pairtune.runs.record import Run
from pairtune.runs.toml import make_recipe, to_toml
from small import assert_same_weights, make_smallest_encoder, small_pairs

MORE = os.environ.get("PAIRTUNE_FUZZ")
OPERATIONS = 260  # on files, of a run that overwrites another: more than there are
TRAIN = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "max_seq_length": 12}
RECIPES = {
    "one": {"loss": {"kind": "combo", "learn_temperature": True}},
    "two": {"select": "average", "stages": [{"train": {"epochs": 1}}, {"order": {"by": "examples", "group": 2}}]},
}
HOW = ((), ("--resume",), ("--overwrite",))


def fuzzed(few, **more):
    return settings(
        max_examples=int(MORE or few), derandomize=MORE is None, database=None, suppress_health_check=list(HealthCheck), **more
    )


def write_pairs(path, rows):
    """rows: left, right, label, and the split where that is chosen."""
    names = ("left", "right", "label", "split")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=False))) + "\n" for row in rows))


def known_pairs(count, seed):
    pairs = small_pairs(count, seed)
    return list(zip(pairs.left, pairs.right, pairs.label.tolist(), strict=True))


@dataclass(frozen=True)
class Place:
    """Where commands run: their data, an encoder that trains in a moment, and the model of each recipe undisturbed."""

    folder: Path
    encoder: str
    commands: Commands

    def own(self, data):
        return ["--data", self.folder / f"{data}.jsonl", "--left", "left", "--right", "right", "--label", "label"]

    def words(self, name, out, *how, data="pairs"):
        return ["train", self.folder / f"{name}.toml", *self.own(data), "--out", out, *how]

    def command(self, words, **kill):
        return self.commands.run(words, self.folder / "said.txt", **kill)

    def undisturbed(self, name):
        return self.folder / f"undisturbed-{name}" / "model"

    def write_recipe(self, name, table):
        recipe = make_recipe({"name": name, "encoder": self.encoder, "keep_original": False, "train": TRAIN, **table})
        (self.folder / f"{name}.toml").write_text(to_toml(recipe))


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_encoder, commands):
    folder = tmp_path_factory.mktemp("place")
    write_pairs(folder / "pairs.jsonl", known_pairs(40, 7))
    place = Place(folder, make_smallest_encoder(tiny_encoder, folder / "encoder"), commands)
    for name, table in RECIPES.items():
        place.write_recipe(name, table)
        ended = place.command(place.words(name, place.undisturbed(name).parent))
        assert ended.status == 0, ended.said
    return place


class FolderOfARun(RuleBasedStateMachine):
    """Two recipes that want the same folder; each command may be killed. What is promised is asked after every one."""

    place: Place

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.place.folder))
        self.out, self.seed = self.folder / "run", self.folder / "run" / "seed-1"

    def teardown(self):
        shutil.rmtree(self.folder)

    def holds(self):
        """The recipe of the run that was begun here."""
        path = self.seed / "recipe.json"
        return json.loads(path.read_text())["recipe"]["name"] if path.exists() else None

    def is_refused(self, name, how):
        there = self.holds()
        return there is not None and (how == () or (how == ("--resume",) and there != name))

    @rule(name=st.sampled_from(sorted(RECIPES)), how=st.sampled_from(HOW))
    def train(self, name, how):
        refused = self.is_refused(name, how)
        ended = self.place.command(self.place.words(name, self.out, *how))
        assert ended.status == (2 if refused else 0), ended.said
        assert "Traceback" not in ended.said, ended.said
        if not refused:
            self.check_done(name)

    @rule(
        name=st.sampled_from(sorted(RECIPES)),
        how=st.sampled_from(HOW),
        kill=st.integers(1, 20) | st.integers(1, OPERATIONS),  # the first ones lose what is there, or claim the folder
        tear=st.booleans(),
    )
    def train_and_be_killed(self, name, how, kill, tear):
        ended = self.place.command(self.place.words(name, self.out, *how), kill=kill, tear=tear)
        assert ended.status in (-9, 0, 2), ended.said

    @precondition(lambda self: self.holds())
    @rule()
    def resume(self):
        self.train(self.holds(), ("--resume",))

    @rule()
    def report(self):
        finished = (self.seed / "record.json").exists()
        ended = self.place.command(["report", self.out])
        assert ended.status == (0 if finished else 2), ended.said
        assert "Traceback" not in ended.said

    def check_done(self, name):
        """What a command that ended well leaves."""
        assert self.holds() == name
        for model in (self.out / "model", self.seed / "model"):
            assert_same_weights(model, self.place.undisturbed(name))
        assert (self.seed / "record.json").exists() and not (self.seed / "checkpoints").exists()
        assert (self.seed / "report.html").read_text().rstrip().endswith("</html>")
        assert not [path for path in self.folder.rglob("*") if path.suffix in (".part", ".pending", ".gone")]

    def told(self):
        """The records in results.jsonl; a line that a process died in is none."""
        path = self.folder / "results.jsonl"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return Counter(line for line in lines if line.endswith("}"))

    @invariant()
    def a_finished_run_is_told_of_once_and_has_its_model(self):
        assert max(self.told().values(), default=1) == 1
        if (self.seed / "record.json").exists():
            record = Run.model_validate_json((self.seed / "record.json").read_text())
            assert self.told()[record.model_dump_json()] == 1
            assert_same_weights(self.seed / "model", self.place.undisturbed(record.name))

    @invariant()
    def a_model_is_whole_or_not_there(self):
        for model in (self.out / "model", self.seed / "model"):
            if model.exists():
                whole = self.place.undisturbed("one")
                assert {path.relative_to(model) for path in model.rglob("*")} == {
                    path.relative_to(whole) for path in whole.rglob("*")
                }


def test_the_folder_of_a_run_keeps_its_promises_whatever_is_done_to_it(place):
    FolderOfARun.place = place
    run_state_machine_as_test(FolderOfARun, settings=fuzzed(3, stateful_step_count=6))


TEXTS = st.text(st.sampled_from("ab \n\t,;\"'\\\0é😀\u2028\x1b\ud7ff"), min_size=1, max_size=12).filter(str.strip)
CERTAIN = [("a", "b", 0.0), ("b", "a", 1.0)]  # of both labels there is one at least
PAIRS = st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from([0.0, 1.0])), min_size=12, max_size=40)


@st.composite
def recipe_tables(draw):
    """A valid recipe: what does not go together is refused when it is read, and another is drawn."""

    def some(**choices):
        return {key: draw(choice) for key, choice in choices.items() if draw(st.booleans())}

    loss = some(
        kind=st.sampled_from(["bsc", "combo", "mse", "cosent", "pearson"]),
        normalize=st.sampled_from(["l2", "l2-batch", "minmax-batch", "range-batch", "none"]),
        duplicates=st.sampled_from(["keep", "mask"]),
        temperature=st.sampled_from([0.05, 1.2]),
        learn_temperature=st.booleans(),
        mini_batch_size=st.sampled_from([0, 3]),
    )
    order = some(
        by=st.sampled_from(["original", "uniform", "queries", "examples", "words", "clusters", "neighbors"]),
        group=st.integers(1, 4),
        encode=st.sampled_from(["each-epoch", "once", "reuse"]),
        side=st.sampled_from(["left", "right"]),
    )
    if order.get("by") in ("examples", "words", "clusters", "neighbors"):
        order |= some(drop_identical=st.booleans())
    train = {**TRAIN, **some(epochs=st.integers(1, 3), batch_size=st.integers(2, 9), fast=st.booleans(), blend=st.just(0.25))}
    rest = some(select=st.sampled_from(["best", "last", "average"]), dev=st.sampled_from(["given", "rotating"]))
    return {**rest, "loss": loss, "order": order, "train": train, "stages": [{}] * draw(st.integers(1, 2))}


def check_like_undisturbed(place, folder, kill, tear):
    """Train, train again but be killed, resume; then the model scores as its record says, and is found by a search."""
    alone = place.command(place.words("random", folder / "alone" / "run", data="random"))
    assert alone.status in (0, 2) and "Traceback" not in alone.said, alone.said
    if alone.status:
        return
    out = folder / "killed" / "run"
    place.command(place.words("random", out, data="random"), kill=kill, tear=tear)
    resumed = place.command(place.words("random", out, "--resume", data="random"))
    assert resumed.status == 0, resumed.said
    assert_same_weights(out / "model", folder / "alone" / "run" / "model")
    first, second = (json.loads((run / "seed-1" / "record.json").read_text()) for run in (out, folder / "alone" / "run"))
    for key in ("before", "after", "epochs", "best_epoch", "kept_epochs", "pairs", "notes"):
        assert first[key] == second[key]
    scored = place.command(["evaluate", out / "model", *place.own("random"), "--split", "test", "--json"])
    assert scored.status == 0, scored.said
    found, recorded = json.loads(scored.said.splitlines()[-1]), first["after"]["test"]
    same = recorded.keys() - {"F1", "threshold"}  # chosen on dev, which may rotate
    assert same and {name: found[name] for name in same} == pytest.approx({name: recorded[name] for name in same}, abs=1e-5)
    corpus = folder / "corpus.txt"
    corpus.write_text("a stone bridge\nthe river\na candle\n")
    found = place.command(["search", out / "model", corpus, "the river", "--top", "1", "--json"])
    assert found.status == 0 and json.loads(found.said.splitlines()[-1])["matches"][0]["text"] == "the river", found.said


def test_any_recipe_on_any_pairs_ends_the_same_killed_or_not(place):
    @fuzzed(2)
    @given(PAIRS, recipe_tables(), st.integers(1, 200), st.booleans())
    def holds(pairs, table, kill, tear):
        known = [(left, right, float(label > 0.9)) for left, right, label in known_pairs(8, 3)]
        others = [(*pair, split) for split in ("dev", "test") for pair in known]
        write_pairs(place.folder / "random.jsonl", [*((*pair, "train") for pair in [*CERTAIN, *pairs]), *others])
        try:
            place.write_recipe("random", table)
        except UserError:
            return
        with tempfile.TemporaryDirectory(dir=place.folder) as folder:
            check_like_undisturbed(place, Path(folder), kill, tear)

    holds()
