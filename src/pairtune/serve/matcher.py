"""The encoders that answer, the tuned one and the one it came from; and one thread that works for them, in batches."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import faiss
import numpy as np
import torch

from pairtune.data.formats import read_texts
from pairtune.encoders.index import Index, open_index
from pairtune.encoders.loading import load_encoder
from pairtune.encoders.prompts import NO_PROMPTS, AskedPrompts, Prompts, choose_prompts, keep_prompts
from pairtune.errors import UserError
from pairtune.progress import say

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Served:
    """One encoder, by the name it was given, and its index of the corpus where there is one."""

    name: str
    encoder: str
    model: SentenceTransformer
    index: Index | None = None
    prompts: Prompts = NO_PROMPTS


@dataclass(frozen=True)
class Question:
    """Texts to encode, and how many matches of the first one to find. left: so many of them, the first ones, are left texts."""

    texts: tuple[str, ...]
    top: int = 0
    left: int = 1

    def prompted(self, prompts: Prompts) -> tuple[str, ...]:
        """The texts as an encoder with these prompts reads them."""
        return prompts.of_left(self.texts[: self.left]) + prompts.of_right(self.texts[self.left :])


@dataclass(frozen=True)
class Answer:
    """By model, tuned or original: (texts, n) unit vectors, and the matches of the first text, best first."""

    vectors: dict[str, np.ndarray]
    matches: dict[str, list[tuple[float, str]]]


@dataclass(frozen=True)
class Matcher:
    """Answers many questions at a time: every distinct text goes through each encoder once."""

    models: tuple[Served, ...]
    corpus: str | None = None

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers, in order."""
        answers = [Answer({}, {}) for _ in questions]
        for served in self.models:
            asked = [question.prompted(served.prompts) for question in questions]
            distinct = list(dict.fromkeys(text for texts in asked for text in texts))
            row = {text: place for place, text in enumerate(distinct)}
            vectors = served.model.encode(distinct, normalize_embeddings=True, show_progress_bar=False).astype(np.float32)
            for texts, answer in zip(asked, answers, strict=True):
                answer.vectors[served.name] = vectors[[row[text] for text in texts]]
            _search(served, questions, answers)
        return answers

    @property
    def texts(self) -> int:
        """How many distinct texts the corpus has."""
        index = self.models[0].index
        return 0 if index is None else len(index.texts)


def _search(served: Served, questions: Sequence[Question], answers: Sequence[Answer]) -> None:
    """Find the matches of all questions that ask for some, in one go."""
    asking = [place for place, question in enumerate(questions) if question.top]
    if served.index is None or not asking:
        return
    most = min(max(questions[place].top for place in asking), len(served.index.texts))
    scores, rows = served.index.faiss.search(np.stack([answers[place].vectors[served.name][0] for place in asking]), most)
    for place, values, found in zip(asking, scores, rows, strict=True):
        pairs = zip(values[: questions[place].top], found[: questions[place].top], strict=True)
        answers[place].matches[served.name] = [(float(value), served.index.texts[at]) for value, at in pairs]


def use_half_the_cores() -> None:
    """Leave room for the event loop and the clients: threads that wait for each other on busy cores wait long.

    Measured on two busy cores (benchmarks/serve.py): a query takes 22 ms with one thread, 185 ms with two.
    """
    threads = max(1, (os.cpu_count() or 1) // 2)
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)  # of the thread that calls it, in both libraries


def load_matcher(
    model: str,
    corpus: Path | None = None,
    column: str | None = None,
    original: str | None = None,
    dimension: int | None = None,
    prompts: AskedPrompts | None = None,
) -> Matcher:
    """Load the encoders and open their indexes, which are kept beside the corpus, one folder each.

    dimension: of the embeddings of both; None: all. prompts: of both; None: each has its own.
    """
    texts = None if corpus is None else read_texts(corpus, column)
    loaded = {"tuned": (model, load_encoder(model, dimension=dimension))}
    if original is not None:
        loaded["original"] = (original, load_encoder(original, dimension=dimension))
    elif (found := find_original(Path(model))) is not None:
        try:
            loaded["original"] = (found, load_encoder(found, dimension=dimension))
        except UserError as problem:
            say(f"the encoder that {model} came from is not shown: {problem}; --original names one")
    asked: AskedPrompts = prompts or {}
    models = tuple(_prepare(name, *encoder, texts, corpus, asked) for name, encoder in loaded.items())
    return Matcher(models, None if corpus is None else corpus.name)


def _prepare(
    name: str,
    encoder: str,
    model: SentenceTransformer,
    texts: Sequence[str] | None,
    corpus: Path | None,
    asked: AskedPrompts,
) -> Served:
    prompts = choose_prompts(model, asked)
    if prompts:
        keep_prompts(model, prompts)
        say(f"{encoder}: {prompts}")
    if texts is None or corpus is None:
        return Served(name, encoder, model, prompts=prompts)
    beside = corpus if name == "tuned" else corpus.with_name(f"{corpus.name}.{name}")
    return Served(name, encoder, model, open_index(model, texts, beside=beside, prompts=prompts), prompts)


def find_original(model: Path) -> str | None:
    """The encoder that a run of ours began with, from the record beside its model."""
    run = model.absolute().parent
    for record in (run / "record.json", *sorted(run.glob("seed-*/record.json"))):
        try:
            encoder = json.loads(record.read_text(encoding="utf-8"))["encoder"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return str(encoder)
    return None


class Batcher:
    """Questions that arrive while the thread is busy are answered together.

    work: a list of questions to the list of their answers, called in the thread, never twice at a time.
    prepare: called in the thread before anything else.
    """

    def __init__(
        self, work: Callable[[Sequence[Question]], Sequence[Answer]], prepare: Callable[[], None], most: int = 32
    ) -> None:
        self.work, self.most = work, most
        self._queue: asyncio.Queue[tuple[Question, asyncio.Future[Answer]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encode", initializer=prepare)

    async def ask(self, question: Question) -> Answer:
        """The answer, when its turn has come."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((question, future))
        return await future

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            waiting = [await self._queue.get()]
            while len(waiting) < self.most and not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            asked = [(question, future) for question, future in waiting if not future.cancelled()]
            if asked:
                await self._answer([question for question, _ in asked], [future for _, future in asked])

    async def _answer(self, questions: list[Question], futures: list[asyncio.Future[Answer]]) -> None:
        """One by one where they cannot be answered together: a question that fails must fail alone."""
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._work_safely, questions)
        except Exception as problem:  # theirs to report: the next batch must find us here
            if len(questions) > 1:
                for question, future in zip(questions, futures, strict=True):
                    await self._answer([question], [future])
            elif not futures[0].done():
                futures[0].set_exception(problem)
            return
        for future, answer in zip(futures, answers, strict=True):
            if not future.done():  # its client has gone
                future.set_result(answer)

    def _work_safely(self, questions: list[Question]) -> list[Answer]:
        """The answers, one to each question; whatever the work raises comes out as an ordinary exception.

        A panic of the tokenizer is none, and would end the task that answers.
        """
        try:
            return [answer for _, answer in zip(questions, self.work(questions), strict=True)]
        except BaseException as problem:
            raise RuntimeError(f"could not be answered: {problem!r}") from problem

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)
