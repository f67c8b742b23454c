"""Where downloads are kept, and whether the hub can be asked for more."""

from __future__ import annotations

import os
import socket
import urllib.parse
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """`PAIRTUNE_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("PAIRTUNE_CACHE") or user_cache_path("pairtune"))


def reaches_hub() -> bool:
    """Whether the hub has an address here: without, the host asks for every file six times, and waits 23 seconds."""
    from huggingface_hub import constants

    if any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ):
        return True  # then others look for the address
    try:
        socket.getaddrinfo(urllib.parse.urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return False
    return True
