"""How fast texts are encoded on a CPU: sentence-transformers' own `encode`, ours, and ours in bfloat16, in one process.

    python benchmarks/encode.py
    PAIRTUNE_DATA=data python benchmarks/encode.py --texts 2000 --threads 1 2 --json

Real texts: questions of QQP and answers of CQA-A where PAIRTUNE_DATA has them, else docstrings of the standard library. The
ways take turns, and each has its fastest round. cosine: to what `encode` gives, text by text; score: the largest change of
the cosine of two neighboring texts. With --json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time

import numpy as np
import torch

from pairtune.data.datasets import load_task, task_status
from pairtune.encoders.embedding import encode
from pairtune.encoders.export import run_on_openvino
from pairtune.encoders.loading import load_encoder
from pairtune.fast.architectures import first_position, packed_attention
from pairtune.fast.packing import Tokens, pack

HOST = "sentence-transformers, float32"


def main():
    """Measure every way on every set of texts, print a table and, if asked, the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="alias, folder or hub name of the encoder")
    parser.add_argument("--texts", type=int, default=400, help="short texts; of long ones a fifth as many")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="threads; each number is measured in turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = {}
    for threads in given.threads:
        torch.set_num_threads(threads)
        ways = find_ways(given.model)
        for name, texts in find_texts(given.texts).items():
            figures[f"{name}, {threads} thread{'s' * (threads > 1)}"] = compare(ways, texts, given.rounds)
    for name, found in figures.items():
        print(f"\n{name}")
        for way, figure in found.items():
            speed = f"{figure['seconds']:7.2f} s   {figure['ratio']:5.2f} x   {figure['texts per second']:8.0f} texts/s"
            cosine = f"cosine {figure['mean cosine']:.6f} mean {figure['min cosine']:.6f} lowest"
            print(f"  {way:32s} {speed}   {cosine}   score {figure['score']:.1e}")
    if given.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
        print(json.dumps({**vars(given), "machine": machine, "figures": figures}))


def find_texts(count):
    """Short texts and long ones, as real as there are."""
    if task_status("qqp").found and task_status("cqa-a").found:
        found = {"questions of QQP": load_task("qqp").test.left, "answers of CQA-A": load_task("cqa-a").test.right}
    else:
        found = {"first lines of docstrings": load_task("stdlib").train.left}
    counts = (count, max(1, count // 5))
    return {name: list(dict.fromkeys(texts))[:some] for (name, texts), some in zip(found.items(), counts, strict=False)}


def find_ways(name):
    """Functions from texts to unit vectors, by what they are called."""
    model, on_openvino = load_encoder(name, device="cpu"), run_on_openvino(load_encoder(name, device="cpu"))

    def in_bfloat16(texts):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return encode(model, texts)

    return {
        HOST: lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False),
        "ours, float32": lambda texts: encode(model, texts),
        "torch, bfloat16": in_bfloat16,
        "torch, bfloat16, packed": lambda texts: encode_packed(model, texts),
        "OpenVINO, bfloat16 (--openvino)": lambda texts: encode(on_openvino, texts),
    }


@torch.inference_mode()
def encode_packed(model, texts):
    """Without padding, as training does it, in bfloat16; blocks of 64 texts of about the same length."""
    tokens = Tokens()
    places = tokens.places(model, texts)
    order = sorted(range(len(texts)), key=lambda row: len(tokens[places[row]]))
    found = np.empty((len(texts), model.get_embedding_dimension()), np.float32)
    model.eval()
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        batch = pack(tokens, places[rows][None], None, offset=first_position(model), longest=model.max_seq_length)
        with packed_attention(model, batch), torch.autocast("cpu", dtype=torch.bfloat16):
            vectors = model(batch.features())["sentence_embedding"][batch.index[0]]
        found[rows] = torch.nn.functional.normalize(vectors.float()).numpy()
    return found


def compare(ways, texts, rounds):
    """Each way's fastest round and how near its vectors are to the host's."""
    vectors = {way: function(texts) for way, function in ways.items()}  # a round to warm up
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, function in ways.items():
            started = time.perf_counter()
            function(texts)
            seconds[way] = min(seconds[way], time.perf_counter() - started)
    scores = {way: (found[1:] * found[:-1]).sum(axis=1) for way, found in vectors.items()}
    figures = {}
    for way, found in vectors.items():
        cosine = np.einsum("ij,ij->i", found, vectors[HOST], dtype=np.float64)
        figures[way] = {
            "seconds": seconds[way],
            "ratio": seconds[HOST] / seconds[way],
            "texts per second": len(texts) / seconds[way],
            "mean cosine": float(cosine.mean()),
            "min cosine": float(cosine.min()),
            "score": float(np.abs(scores[way] - scores[HOST]).max()),
        }
    return figures


if __name__ == "__main__":
    main()
