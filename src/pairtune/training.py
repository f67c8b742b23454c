"""The story in one function: task, order, encode, loss, evaluate, select, record."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pairtune.data.pairs import ALIKE, Task, add_prompts, leave_some_plain
from pairtune.data.sources import arrange, find_pairs, prompt_sources, without_test
from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.runs.folder import RunFolder, ask_for, disk_in_words, drop_folder, refuse_encoder_folder, whole_folder
from pairtune.runs.lock import check_free
from pairtune.runs.recipe import Recipe
from pairtune.runs.record import Run, Trained, choice_score, is_unchanged, kept_run
from pairtune.stages import save_whole, train_stages

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from pairtune.encoders.prompts import Sides


AVERAGED = "averaged"  # the folder of trainings whose weights are averaged with those of a seed, while they are needed
SEED_STEP = 1_000_003  # between the seeds of trainings that are averaged: far from those that people take


def run(
    recipe: Recipe,
    seed: int,
    *,
    out: Path,
    results: Path | None = None,
    task: Task | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoints: bool = True,
    keep_model: bool = True,
    others: Sequence[Run] = (),
) -> Run:
    """Train one seed of a recipe into the folder `out`, and append its record to `results`.

    checkpoints: after each epoch, to resume from; without them less is written, and an interrupted run begins anew.
    keep_model: without, the record and the scores are all that remains.
    others: other runs on the same pairs: the best on dev is kept, or the mean of several weights where dev is no worse for it.
    Of several processes, each trains on its part of every batch; the first one alone looks at the folder, scores and writes.
    """
    from pairtune.encoders.ignoring import give_tokenizer, ignoring, note_emptied
    from pairtune.processes import check_same, share_from_first
    from pairtune.sbert.outcomes import evaluate_before

    task, results = find_pairs(recipe, task), results or out.parent / "results.jsonl"
    if "task" not in recipe.model_fields_set:  # the default's name would stand in records of a user's own pairs
        recipe = recipe.model_copy(update={"task": task.name})
    folder, asked = RunFolder(out), ask_for(recipe, seed, task.fingerprint(recipe.extra_splits))
    check_shares(recipe)
    check_same("the pairs, the settings or the encoder", json.dumps(asked))
    if done := share_from_first(lambda: find_finished(folder, asked, resume=resume, overwrite=overwrite)):
        return done
    task = arrange(task, recipe, seed)
    for note in task.notes:
        say(f"{task.name}: {note}")
    model, sides, as_it_came, task = prepare_encoder(recipe, task, seed)
    tokenizer = ignoring(model.tokenizer, recipe.ignore) if recipe.ignore else None
    if tokenizer and (emptied := note_emptied(tokenizer, [*task.train.left, *task.train.right])):
        say(f"{task.name}: {emptied}")
    with folder.hold(), disk_in_words(out):  # not before all that can be refused has been
        if done := share_from_first(lambda: begin(folder, asked, results, resume=resume, overwrite=overwrite)):
            return done
        say(f"{recipe.name}, seed {seed}: scoring {recipe.encoder} as it is on {task.name}")
        score, original = partial(evaluate_before, model, as_it_came, folder), model.tokenizer
        before = share_from_first(lambda: folder.remember("before", score))
        to_beat = choice_score(before["dev"], task.metric)
        sides.keep()
        trained = tune_encoder(model, tokenizer, recipe, task, seed, folder, to_beat, checkpoints=checkpoints)
        if is_unchanged(trained) and all(one.unchanged for one in others):  # it has its own prompts and tokenizer again
            task = as_it_came
            sides.restore()
            if tokenizer is not None:
                give_tokenizer(model, original)
        end = partial(conclude, model, task, recipe, seed, folder, results, before, trained, others, keep_model=keep_model)
        return share_from_first(end)


def tune_encoder(
    model: SentenceTransformer,
    tokenizer: Any,
    recipe: Recipe,
    task: Task,
    seed: int,
    folder: RunFolder,
    to_beat: float,
    *,
    checkpoints: bool,
) -> list[Trained]:
    """Train all stages with what the recipe gives to the encoder: rules of what to ignore, an adapter.

    tokenizer: the one with the rules; None without rules.
    """
    from pairtune.encoders.adapters import add_adapter, merge_adapter
    from pairtune.encoders.ignoring import give_tokenizer

    if tokenizer is not None:
        give_tokenizer(model, tokenizer)
    if recipe.adapter:
        say(f"{recipe.name}, seed {seed}: {add_adapter(model, recipe.adapter, seed)}")
    trained = train_stages(model, task, recipe, seed, folder, to_beat, checkpoints=checkpoints)
    if recipe.adapter and recipe.adapter.save == "merged":
        merge_adapter(model)
    return trained


def conclude(
    model: SentenceTransformer,
    task: Task,
    recipe: Recipe,
    seed: int,
    folder: RunFolder,
    results: Path,
    before: dict[str, dict[str, float]],
    trained: list[Trained],
    others: Sequence[Run] = (),
    *,
    keep_model: bool,
) -> Run:
    """Score the trained model, and write all that is left of the run; its record last."""
    from pairtune.sbert.averaging import join_others
    from pairtune.sbert.evaluator import evaluate_sizes
    from pairtune.sbert.outcomes import evaluate_with_outcome, follow_leader, make_record, read_stages, write_evidence

    joined = join_others(model, task, others, alone=is_unchanged(trained))
    after, outcome = evaluate_with_outcome(model, task)
    sizes = evaluate_sizes(model, task, "dev", recipe.dimensions) if recipe.dimensions else []
    record = make_record(recipe, seed, task, folder, before, after, trained, str(model.device), sizes)
    seconds = record.seconds + sum(one.seconds for one in others)
    record = record.model_copy(update={"mean_of": max(1, len(joined)), "seconds": seconds})
    leader = joined[0] if joined else None
    record = record if leader is None else follow_leader(record, leader)
    if keep_model:
        write_model(model, folder, len(recipe.stages), record, task)
    write_evidence(folder, task, read_stages(folder, len(recipe.stages), leader), outcome)
    folder.finish(record, results)
    return record


def prepare_encoder(recipe: Recipe, task: Task, seed: int) -> tuple[SentenceTransformer, Sides, Task, Task]:
    """The original encoder, its prompts, and the task as it reads it: at first, and in training."""
    from pairtune.encoders.adapters import check_adapter, merge_adapter
    from pairtune.encoders.loading import check_dimensions, load_encoder
    from pairtune.encoders.prompts import Sides
    from pairtune.sbert.outcomes import name_base_model

    model = load_encoder(recipe.encoder, recipe.stages[0].train.max_seq_length)
    if recipe.adapter:
        check_adapter(model, recipe.adapter)
    merge_adapter(model)  # one that the encoder came with
    check_dimensions(model, recipe.dimensions, "train.dimensions")
    name_base_model(model, recipe.encoder)
    sides = Sides(model, recipe.prompts, alike=task.kind in ALIKE, mark=recipe.mark_sides)
    for note in sides.notes:
        say(f"{task.name}: {note}")
    if task.sources:
        task = prompt_sources(task, recipe, model)
        return model, sides, task, task
    plain, read = add_prompts(task, sides.own), add_prompts(task, sides.trained)
    if sides.trained != sides.own and recipe.mark_share < 1:
        read = leave_some_plain(read, plain, recipe.mark_share, np.random.default_rng(seed))
    return model, sides, plain, read


def check_shares(recipe: Recipe) -> None:
    """Refuse a batch size that several processes cannot share equally, and what FSDP cannot do."""
    from pairtune.processes import spreads_weights, world_size

    if spreads_weights():
        from pairtune.sbert.sharded import check_spread

        check_spread(recipe)
    for size in (stage.train.batch_size for stage in recipe.stages):
        if size % world_size():
            above = -(-size // world_size()) * world_size()
            raise UserError(
                f"train.batch_size is {size}, and {world_size()} processes share each batch: "
                f"give a multiple of {world_size()}, such as {above}"
            )


def find_finished(folder: RunFolder, asked: dict[str, Any], *, resume: bool, overwrite: bool) -> Run | None:
    """The record of the run that is in the folder, where it is finished and kept. Refuses a folder that may not be written."""
    check_free(folder.path)
    folder.check(asked, resume=resume, overwrite=overwrite)
    if not folder.finished or overwrite:
        return None
    folder.drop_checkpoints()
    return folder.record()


def begin(folder: RunFolder, asked: dict[str, Any], results: Path, *, resume: bool, overwrite: bool) -> Run | None:
    """Make the folder of a run that is held; the record of one that had only to be told of."""
    folder.check(asked, resume=resume, overwrite=overwrite)  # another process may have been faster
    folder.begin(asked, overwrite=overwrite)
    return folder.publish(results) if folder.pending else None


def train(
    recipe: Recipe,
    *,
    out: Path | str,
    seeds: Sequence[int] | None = None,
    task: Task | None = None,
    resume: bool = False,
    overwrite: bool = False,
    average_with: Sequence[Recipe] = (),
) -> list[Run]:
    """Train every seed of a recipe into its own folder. The best seed on dev becomes `out/model`; with dev = "joined", the first.

    seeds: instead of the recipe's. task: your own data (`read_pairs`), if the recipe names no dataset.
    resume: continue what is there. overwrite: start again; runs of other seeds in `out` are deleted at the end.
    average_with: other recipes to train on the same pairs, as `average_of` trains other seeds: the best on dev is kept, or the
    mean of several weights where dev is no worse for it.
    """
    from pairtune.processes import share_from_first, together

    out, seeds = Path(out), recipe.seeds if seeds is None else seeds
    options: Any = {"results": out.parent / "results.jsonl", "task": task, "resume": resume, "overwrite": overwrite}
    with together():
        old = share_from_first(lambda: find_others(out, seeds, overwrite=overwrite))
        runs = []
        for seed in seeds:
            wanted = further_trainings(recipe, seed, average_with)
            others = train_others(wanted, out, seed, task, overwrite=overwrite) if wanted else []
            runs.append(run(recipe, seed, out=out / f"seed-{seed}", others=others, **options))
        share_from_first(lambda: drop_folder(out / AVERAGED))
        share_from_first(lambda: keep_best_seed(out, runs, old if overwrite else None))
    return runs


def further_trainings(recipe: Recipe, seed: int, average_with: Sequence[Recipe]) -> list[tuple[Recipe, int]]:
    """What is trained beside a recipe, to be compared and averaged with it on dev: other recipes, and other seeds of it."""
    if recipe.average_of > 1 and recipe.dev != "given":
        raise UserError(f'average_of is {recipe.average_of}: dev decides which trainings are kept, so set dev = "given"')
    if recipe.average_of > 1 and recipe.adapter and recipe.adapter.save == "adapter":
        raise UserError(f"average_of is {recipe.average_of}: adapters alone cannot be averaged, set adapter.save = merged")
    seeds = [(seed + SEED_STEP * number) % 2**32 for number in range(1, recipe.average_of)]
    return [*((one, seed) for one in average_with), *((recipe, other) for other in seeds)]


def train_others(wanted: Sequence[tuple[Recipe, int]], out: Path, seed: int, task: Task | None, *, overwrite: bool) -> list[Run]:
    """Train what the run of a seed is compared and averaged with, without a look at test; nothing where that run is finished."""
    from pairtune.processes import share_from_first

    place = out / AVERAGED / str(seed)
    if overwrite:
        share_from_first(lambda: drop_folder(place))
    elif RunFolder(out / f"seed-{seed}").finished:
        return []
    blind, found, total = without_test(find_pairs(wanted[0][0], task)), [], len(wanted) + 1
    for number, (recipe, own_seed) in enumerate(wanted, start=1):
        say(f"training {number} of {total}: the best on dev is kept, or the mean of several")
        alone = recipe.model_copy(update={"average_of": 1})
        found.append(run(alone, own_seed, out=place / str(number), results=place / "results.jsonl", task=blind, resume=True))
    say(f"training {total} of {total}")
    return found


def find_others(out: Path, seeds: Sequence[int], *, overwrite: bool) -> list[Path]:
    """The runs of other seeds in the folder. Refuses one with a model that none of them made; to lose one that is at work."""
    refuse_encoder_folder(out)
    mine = {f"seed-{seed}" for seed in seeds}
    others = [path.parent for path in out.glob("seed-*/recipe.json") if path.parent.name not in mine]
    if (out / "model").exists() and not others and not any((out / name / "recipe.json").exists() for name in mine):
        raise UserError(f"{out / 'model'} was not made by pairtune, and would be replaced: give another --out")
    for path in others if overwrite else ():
        check_free(path)
    return others


def keep_best_seed(out: Path, runs: Sequence[Run], lost: Sequence[Path] | None) -> None:
    """Make the model of the best seed that of all. lost: the runs of other seeds, where they are to be replaced."""
    if lost is not None:
        for path in lost:
            check_free(path)  # another process may have begun it since
            drop_folder(path)
        (out / "report.html").unlink(missing_ok=True)  # of several seeds; who trains writes the new one
    with disk_in_words(out):
        copy_whole(out / f"seed-{runs[kept_run(runs)].seed}" / "model", out / "model")


def write_model(model: SentenceTransformer, folder: RunFolder, stages: int, record: Run, task: Task) -> None:
    """Put the model where users look for it, with a card that says how it came to be."""
    from pairtune.encoders.adapters import has_adapter
    from pairtune.sbert.outcomes import write_card

    saved = folder.stage(stages) / "model"
    whole = (saved / "adapter_config.json").exists() == has_adapter(model)  # or its adapter has been merged since
    if saved.exists() and whole and not record.unchanged and record.mean_of == 1 and not record.led_by:  # with the host's card
        copy_whole(saved, folder.model)
    else:
        save_whole(model, folder.model)
    write_card(folder.model / "README.md", record, task)


def copy_whole(source: Path, target: Path) -> None:
    """Copy a folder: a process that dies in between leaves the source, and no half target."""
    with whole_folder(target) as aside:
        shutil.copytree(source, aside)
