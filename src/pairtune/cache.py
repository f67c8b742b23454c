"""Where downloads are kept."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """`PAIRTUNE_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("PAIRTUNE_CACHE") or user_cache_path("pairtune"))
