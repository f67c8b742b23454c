"""One thread that works, in batches, so that the event loop stays free to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Batcher(Generic[Question, Answer]):
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
