"""One server for the tests of a module."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def both(tiny_encoder, tmp_path_factory):
    from serving import load_both

    return load_both(tiny_encoder, tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def url(both):
    from serving import serving

    with serving(both) as url:
        yield url
