"""The routes: the pages with their headers, the API, and its description."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from pairtune import __version__
from pairtune.encoders.loading import length_of
from pairtune.runs.evidence import shorten
from pairtune.serve.matcher import Batcher, Matcher, Question, use_half_the_cores
from pairtune.serve.requests import (
    MOST_CHARACTERS,
    MOST_MATCHES,
    MOST_PAIRS,
    About,
    Encoder,
    Guard,
    Match,
    Matches,
    Pair,
    Refusal,
    Refused,
    ScoreAnswer,
    ScoreRequest,
    Scores,
    SearchAnswer,
    SearchRequest,
)


@dataclass(frozen=True)
class Page:
    """A page and the headers that it is sent with."""

    html: str
    headers: dict[str, str]


def load_page(name: str) -> Page:
    """A page of the package; the browser runs its own script and no other, and asks this server and no other."""
    html = files("pairtune.serve").joinpath(name).read_text(encoding="utf-8")
    policy = {
        "default-src": "'none'",
        "script-src": _hashes(html, "script"),
        "style-src": _hashes(html, "style"),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    headers = {
        "Content-Security-Policy": "; ".join(f"{what} {allowed}" for what, allowed in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Page(html, headers)


def _hashes(html: str, element: str) -> str:
    found = re.findall(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in found)


MOST_SHOWN = 80  # characters of a text that is given back in an error
PAIRS_AT_A_TIME = 16  # a long list takes turns with the questions of others
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": meaning}
    for status, meaning in {
        401: "no token, or another one",
        408: "the request did not arrive in time",
        413: "the body is too large",
        422: "the body is not what is expected",
        503: "too many requests at once",
    }.items()
}


def make_app(matcher: Matcher, **guarded: Any) -> Guard:
    """The page and the API of a matcher, behind a guard, which takes what else is given."""
    batcher = Batcher(matcher.answer, prepare=use_half_the_cores)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        work = asyncio.create_task(batcher.run())
        yield
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        batcher.close()

    app = FastAPI(
        title="pairtune",
        version=__version__,
        description="Search a corpus and score pairs of texts, with a tuned encoder and the one it came from.",
        docs_url=None,  # the usual page fetches its scripts from elsewhere; ours is below
        redoc_url=None,
        lifespan=lifespan,
        responses=REFUSALS,
    )
    add_pages(app)
    add_api(app, matcher, batcher)
    app.add_exception_handler(RequestValidationError, explain_request)
    app.add_exception_handler(HTTPException, explain_http)
    app.add_exception_handler(Refused, explain_refusal)
    app.add_exception_handler(Exception, answer_failure)
    return Guard(app, **guarded)


def add_pages(app: FastAPI) -> None:
    """What a browser opens."""
    pages = {"/": load_page("page.html"), "/docs": load_page("docs.html")}

    async def show(request: Request) -> HTMLResponse:
        page = pages[request.url.path]
        return HTMLResponse(page.html, headers=page.headers)

    for path in pages:
        app.add_api_route(path, show, methods=["GET", "HEAD"], include_in_schema=False)


def add_api(app: FastAPI, matcher: Matcher, batcher: Batcher) -> None:
    """What a program asks."""

    @app.get("/api/about", summary="What is served")
    async def about() -> About:
        models = [Encoder(model=one.name, encoder=one.encoder, tokens=length_of(one.model)) for one in matcher.models]
        return About(
            version=__version__,
            models=models,
            corpus=matcher.corpus,
            texts=matcher.texts,
            most_characters=MOST_CHARACTERS,
            most_matches=MOST_MATCHES,
            most_pairs=MOST_PAIRS,
        )

    @app.post("/api/search", summary="The nearest texts of the corpus", responses={409: {"model": Refusal}})
    async def search(asked: SearchRequest) -> SearchAnswer:
        started = time.perf_counter()
        if matcher.corpus is None:
            raise Refused(409, "there is nothing to search", "a server without a corpus", "pairtune serve MODEL --corpus FILE")
        answer = await batcher.ask(Question((asked.text,), asked.top))
        found = [
            Matches(
                model=one.name,
                encoder=one.encoder,
                matches=[Match(score=round(score, 6), text=text) for score, text in answer.matches[one.name]],
            )
            for one in matcher.models
        ]
        return SearchAnswer(models=found, milliseconds=_since(started))

    @app.post("/api/score", summary="The scores of pairs of texts")
    async def score(asked: ScoreRequest, request: Request) -> ScoreAnswer:
        started = time.perf_counter()
        scores: dict[str, list[float]] = {one.name: [] for one in matcher.models}
        for start in range(0, len(asked.pairs), PAIRS_AT_A_TIME):
            if start and await request.is_disconnected():
                break
            for name, values in (await score_some(batcher, asked.pairs[start : start + PAIRS_AT_A_TIME])).items():
                scores[name] += values
        found = [Scores(model=one.name, encoder=one.encoder, scores=scores[one.name]) for one in matcher.models]
        return ScoreAnswer(models=found, milliseconds=_since(started))


async def score_some(batcher: Batcher, pairs: list[Pair]) -> dict[str, list[float]]:
    """By model, the cosine of each pair."""
    texts = (*(pair.left for pair in pairs), *(pair.right for pair in pairs))
    answer = await batcher.ask(Question(texts, left=len(pairs)))
    return {
        name: [round(float(value), 6) for value in np.einsum("ij,ij->i", vectors[: len(pairs)], vectors[len(pairs) :])]
        for name, vectors in answer.vectors.items()
    }


async def explain_request(request: Request, problem: Exception) -> JSONResponse:
    """All that is wrong with a body, each with what was given and what was expected."""
    assert isinstance(problem, RequestValidationError)
    problems = [_problem(error, problem.body) for error in problem.errors()[:20]]
    first = problems[0]
    expected = first["expected"]
    if first["where"] == "body" and not request.headers.get("content-type", "").startswith("application/json"):
        expected += " (send it with Content-Type: application/json)"
    return _answer(422, f"{first['where']} is not as expected", first["given"], expected, problems)


def _problem(error: Mapping[str, Any], body: object) -> dict[str, str]:
    """One thing that is wrong with a body: where, what was given, what was expected."""
    if error["type"] == "json_invalid":
        expected = f"JSON: {error['ctx']['error']} at character {error['loc'][1]}"
        return {"where": "body", "given": _show(body), "expected": expected}
    return {"where": ".".join(map(str, error["loc"])), "given": _show(error.get("input")), "expected": error["msg"]}


async def explain_http(request: Request, problem: Exception) -> JSONResponse:
    """No such route, no such method, a body that is no text or has too many brackets within brackets."""
    assert isinstance(problem, HTTPException)
    if problem.status_code == 400:  # the host's own words tell nothing
        return _answer(400, "the body cannot be read", "no JSON, or nested too deep", "JSON in UTF-8; see /docs")
    return _answer(problem.status_code, str(problem.detail), f"{request.method} {request.url.path[:200]}", "see /docs")


async def explain_refusal(request: Request, problem: Exception) -> JSONResponse:
    """What cannot be answered as things are."""
    assert isinstance(problem, Refused)
    return _answer(problem.status, problem.error, problem.given, problem.expected)


async def answer_failure(request: Request, problem: Exception) -> JSONResponse:
    """Our own failure: said, not shown; the traceback is in the server's log."""
    return _answer(500, "the server failed; its log says why", f"{request.method} {request.url.path[:200]}", "an answer")


def _answer(status: int, error: str, given: str, expected: str, problems: list[dict[str, str]] | None = None) -> JSONResponse:
    content = {"error": error, "given": given, "expected": expected, "problems": problems or []}
    return JSONResponse(content, status_code=status)


def _show(value: object) -> str:
    """The beginning of what was given, fit to print: a text may hold half characters, a number may be no number."""
    if not isinstance(value, str):
        shown = shorten(repr(value))
    elif len(value) > MOST_SHOWN:
        shown = f"{shorten(value, MOST_SHOWN + 1)} ({len(value):,} characters)"
    else:
        shown = value  # white space too
    return shown.encode("utf-8", "backslashreplace").decode()


def _since(started: float) -> float:
    return round(1000 * (time.perf_counter() - started), 1)
