"""The pages, which are one file each: what they may do is said in a header that names their own script by its hash."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files


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
