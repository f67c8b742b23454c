"""Two processes that train together, started once for all tests of them; and runs of two that were killed before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Shared:
    """What two processes found and left.

    words: the command line of their runs, which are in `folder`; mixed, sources: those of two sources, whose pairs share
    batches or not.
    killed: how the run ended of which the first process was killed, and the one of which the second was.
    """

    words: list[str]
    mixed: list[str]
    sources: list[str]
    folder: Path
    ranks: list[dict]
    killed: list[tuple[list[int], int]]


@pytest.fixture(scope="session")
def plain_encoder(tiny_encoder, tmp_path_factory):
    """The tiny encoder without dropout: what two processes compute is then what one computes."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(tiny_encoder, device="cpu")
    model[0].auto_model.config.hidden_dropout_prob = model[0].auto_model.config.attention_probs_dropout_prob = 0.0
    model.save_pretrained(str(tmp_path_factory.mktemp("plain")), create_model_card=False)
    return str(tmp_path_factory.getbasetemp() / "plain0")


@pytest.fixture(scope="session")
def shared(tiny_encoder, plain_encoder, tmp_path_factory):
    """Two processes, of which the first or the second is killed in epoch 2; two others resume both runs and do all the rest."""
    import torch

    import ddp_worker
    from ranks import FAST, PADDED, STEPS, kill_one_rank, run_two_ranks, write_sources, write_training

    out = tmp_path_factory.mktemp("ddp")
    words = write_training(out, tiny_encoder)
    mixed, sources = (write_sources(out, tiny_encoder, mix) for mix in (True, False))
    killed = [kill_one_rank(rank, STEPS + 2, [*words, "--out", str(out / f"killed-{rank}")]) for rank in range(2)]
    commands = [
        *([*words, "--out", str(out / f"killed-{rank}"), "--resume"] for rank in range(2)),
        [*words, "--out", str(out / "undisturbed")],
        [*words, "--out", str(out / "fast"), "--model", plain_encoder, *FAST],
        [*words, "--out", str(out / "padded"), "--model", plain_encoder, *PADDED],
        [*mixed, "--out", str(out / "mixed"), "--model", plain_encoder, *FAST],
        [*sources, "--out", str(out / "sources"), "--model", plain_encoder],
    ]
    (out / "commands.json").write_text(json.dumps(commands))
    run_two_ranks(ddp_worker.__file__, tiny_encoder, out, logs=out)
    return Shared(words, mixed, sources, out, [torch.load(out / f"{rank}.pt") for rank in range(2)], killed)


@pytest.fixture(scope="session")
def two_ranks(shared):
    """What each of the two processes found."""
    return shared.ranks
