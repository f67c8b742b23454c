"""A local page and a JSON API to try a model: search, score two texts, score a list, beside the encoder it came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairtune.errors import UserError

if TYPE_CHECKING:
    from pairtune.encoders.prompts import AskedPrompts


def serve(
    model: str,
    *,
    corpus: Path | None = None,
    column: str | None = None,
    original: str | None = None,
    dimension: int | None = None,
    prompts: AskedPrompts | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
) -> None:
    """Answer on http://host:port until stopped. prompts: by side, "left" and "right"; None: the models' own."""
    try:
        from pairtune.serve.server import run_server
    except ModuleNotFoundError as problem:
        if problem.name not in ("fastapi", "starlette", "uvicorn", "h11"):
            raise
        raise UserError(f"the page needs {problem.name}, which is not installed: pip install 'pairtune[serve]'") from problem
    own: Any = {"corpus": corpus, "column": column, "original": original, "dimension": dimension, "prompts": prompts}
    run_server(model, **own, host=host, port=port, token=token)
