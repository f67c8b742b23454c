"""The training step of published encoders' shapes: pairtune's against SentenceTransformerTrainer, in one run.

    python benchmarks/architectures.py --device cuda --out architectures.jsonl
    python benchmarks/architectures.py --batch 8 --steps 6          # on a CPU
    python benchmarks/architectures.py --toy --batch 8              # small shapes: does it run?
    python benchmarks/architectures.py --table architectures.jsonl  # Markdown, with the ratios

Weights are random, lengths natural: docstrings of the standard library under MiniLM's tokenizer, at most 128 tokens. Where
MiniLM is not there and cannot be fetched, a tokenizer is learned from the docstrings. Each shape and batch is a process of its
own, so that what fails there stops nothing else. Every measurement is one line of JSON, written at once. All stops after
--budget seconds; the shapes that matter most come first. A batch that does not fit is halved until it does. Ways: ours; ours
with compiled layers; the host as it comes (sdpa); the host with flash attention and without padding. Where flash-attn is not
installed, torch's own flash kernel stands in for it, and the line says so.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ |= {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "5"}  # where there is no network, find_tokenizer need not wait for one
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # to look for a GPU must not begin CUDA: a fork could not use it

import torch
import transformers
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from tokenizers import BertWordPieceTokenizer
from training import SHAPES, build, make_pairs, measure
from transformers import modeling_flash_attention_utils as flash

from pairtune.encoders.loading import find_encoder
from pairtune.errors import UserError
from pairtune.fast import step
from pairtune.fast.architectures import why_padded

FIRST = ["modernbert-base", "qwen3-0.6b", "nomic", "embeddinggemma-300m", "albert-base", "gte-base", "eurobert-210m"]
WAYS = ("ours", "host", "host, flash", "ours, compiled")
STEPS = {  # steps of ours and of the host; the clock runs over the second half. Few, as device time is dear
    "small": {"ours": 80, "ours, compiled": 80, "host": 12, "host, flash": 16},
    "large": {"ours": 12, "ours, compiled": 12, "host": 4, "host, flash": 6},
}
LARGE = 256  # pairs in a batch from which steps are long


def main() -> None:
    """Run all cases, or print the table of those that were run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--shape", nargs="+", default=FIRST, choices=list(SHAPES))
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 1024])
    parser.add_argument("--way", nargs="+", default=list(WAYS[:3]), choices=WAYS)
    parser.add_argument("--tokenizer", default="minilm", help="minilm, or a folder with a tokenizer")
    parser.add_argument("--toy", action="store_true", help="two layers of width 64")
    parser.add_argument("--steps", type=int, default=0, help="steps of each way; 0: as many as the device needs to be measured")
    parser.add_argument("--out", default="architectures.jsonl", help="JSON lines are added to this file")
    parser.add_argument("--limit", type=int, default=60, help="seconds after which a case is stopped")
    parser.add_argument("--budget", type=int, default=225, help="seconds after which no case is begun or goes on")
    parser.add_argument("--table", help="only print the table of this file")
    given = parser.parse_args()
    if given.table:
        print(make_table([json.loads(line) for line in Path(given.table).read_text().splitlines()]))
        return
    end = time.monotonic() + given.budget
    data = make_pairs("natural", "stdlib", 3000, None)  # before processes are made, each of which has it then
    with tempfile.TemporaryDirectory() as folder:
        given.tokenizer = find_tokenizer(given.tokenizer, data, folder)
        start = choose_start(given.device)
        for shape in given.shape:
            for batch in given.batch:
                run_apart(given, start, shape, batch, data, min(given.limit, end - time.monotonic()))


def find_tokenizer(name: str, data: Dataset, folder: str) -> str:
    """The folder of an encoder with its tokenizer, or of a tokenizer that is learned here, where there is no such encoder."""
    try:
        return find_encoder(name)
    except UserError as problem:
        print(f"a tokenizer is learned here: {problem}", flush=True)
    made = Path(folder) / "learned"
    made.mkdir()
    learned = BertWordPieceTokenizer()
    learned.train_from_iterator([*data["left"], *data["right"]], vocab_size=30_522, show_progress=False)
    learned.save_model(str(made))
    transformers.BertTokenizerFast(str(made / "vocab.txt")).save_pretrained(made)
    return str(made)


def choose_start(device: str) -> str:
    """How processes are made: forked, where the GPU allows it, as then nothing is imported again."""
    child = multiprocessing.get_context("fork").Process(target=torch.zeros, args=(1,), kwargs={"device": device})
    child.start()
    child.join()
    return "spawn" if child.exitcode else "fork"


def run_apart(given: argparse.Namespace, start: str, shape: str, batch: int, data: Dataset, limit: float) -> None:
    """One case in a process of its own, for at most so many seconds."""
    if limit < 5:  # a case takes longer
        write(given, {"shape": shape, "batch": batch, "error": f"not begun: the {given.budget} s of --budget are over"})
        return
    child = multiprocessing.get_context(start).Process(target=run_case, args=(given, shape, batch, data))
    child.start()
    child.join(limit)
    if child.is_alive():
        child.kill()
        child.join()
        write(given, {"shape": shape, "batch": batch, "error": f"stopped after {limit:.0f} s"})
    elif child.exitcode:
        write(given, {"shape": shape, "batch": batch, "error": f"the process ended with {child.exitcode}"})


def run_case(given: argparse.Namespace, shape: str, batch: int, data: Dataset) -> None:
    """All ways at one batch; ours again at the batch that the host could hold, where that is a smaller one."""
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    found = {way: run_way(given, shape, batch, data, way) for way in given.way}
    held = {line["batch"] for way, line in found.items() if way.startswith("host") and "ms" in line}
    for size in sorted(held - {found.get("ours", {}).get("batch")}):
        run_way(given, shape, size, data, "ours")


def run_way(given: argparse.Namespace, shape: str, batch: int, data: Dataset, way: str) -> dict:
    """The line of one way, at the largest half, quarter … of the batch that fits."""
    begin, asked = time.perf_counter(), batch
    line = {"shape": shape, "way": way, "toy": given.toy, "device": given.device, "tokenizer": Path(given.tokenizer).name}
    line["gib_before"] = round(torch.cuda.memory_allocated() / 2**30, 3) if given.device == "cuda" else 0.0
    while True:
        try:
            line |= time_way(given, shape, batch, data, way)
        except torch.OutOfMemoryError:
            if batch > 1:
                batch //= 2
                gc.collect()
                torch.cuda.empty_cache()
                continue
            line["error"] = "out of memory"
        except Exception as problem:  # a way that does not run is a result too
            line["error"] = f"{type(problem).__name__}: {problem}"[:300]
        break
    line |= {"batch": batch, "asked": asked, "took": round(time.perf_counter() - begin, 1)}
    write(given, line)
    gc.collect()
    torch.cuda.empty_cache()
    return line


def time_way(given: argparse.Namespace, shape: str, batch: int, data: Dataset, way: str) -> dict:
    """Milliseconds, memory and pairs per second of a step."""
    encoder = build(shape, given.device, given.tokenizer, toy=given.toy)
    ours, steps = way.startswith("ours"), STEPS["large" if batch >= LARGE else "small"][way]
    steps = given.steps or (4 if given.toy else steps)
    if ours and (reason := why_padded(encoder)):
        return {"error": f"trains with padding: {reason}"}
    step.WORTH_COMPILING = 0 if way == "ours, compiled" else 4000
    kernel = {"flash": use_flash(encoder, given.device)} if way == "host, flash" else {}
    rows = [row % len(data) for row in range(batch * steps)]
    precision = "bf16" if given.device == "cuda" else "float32"
    found = measure(ours, encoder, data.select(rows), batch, steps, precision)
    attention = encoder[0].auto_model.config._attn_implementation
    sizes = {"parameters": sum(parameter.numel() for parameter in encoder.parameters()), "attention": attention, "steps": steps}
    return {
        **{name: round(value, 3) for name, value in found.items()},
        "pairs_per_s": round(1000 * batch / found["ms"], 1),
        **sizes,
        **kernel,
    }


def use_flash(encoder: SentenceTransformer, device: str) -> str:
    """Let the host go without padding, as it does with attn_implementation="flash_attention_2". Whose kernel it is."""
    module, name = encoder[0], "flash_attention_2"
    assert isinstance(module, Transformer)
    if not module.auto_model._supports_flash_attn:
        raise ValueError(f"{type(module.auto_model).__name__} has no flash attention")
    installed = transformers.utils.is_flash_attn_2_available()
    if not installed and device == "cpu":
        raise ValueError("flash-attn is not installed, and torch's own flash kernel for packed texts needs a GPU")
    if not installed:
        flash._loaded_implementation, flash._flash_fn, flash._flash_varlen_fn = name, attend_varlen, attend_varlen
        flash._process_flash_kwargs_fn = flash._lazy_define_process_function(attend_varlen)
    module.auto_model.config._attn_implementation = name
    module.unpad_inputs = True  # looks again whether it can
    if not module.can_flatten_inputs:
        raise ValueError("the host does not go without padding here")
    return "flash-attn" if installed else "torch's"


def attend_varlen(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
):
    """flash-attn's function of this name, by the kernel that torch has of it. q, k, v: (T, heads, width)."""
    reach = {} if window_size == (-1, -1) else {"window_size_left": window_size[0], "window_size_right": window_size[1]}
    lengths = cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k)
    return torch.ops.aten._flash_attention_forward(q, k, v, *lengths, dropout_p, causal, False, scale=softmax_scale, **reach)[0]


def write(given: argparse.Namespace, line: dict) -> None:
    """One line to the file and to whoever watches."""
    gpu = torch.cuda.get_device_name() if given.device == "cuda" and torch.cuda.is_initialized() else None
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({**line, "gpu": gpu, **versions, "date": time.strftime("%Y-%m-%d")})
    with Path(given.out).open("a") as file:
        file.write(text + "\n")
    print(text, flush=True)


def make_table(lines: list[dict]) -> str:
    """Markdown: per shape and batch the pairs per second of each way, and ours over the host's."""
    rows = ["| shape | batch | way | step | pairs/s | memory | ours is times as fast | memory of ours |", "| --- " * 8 + "|"]
    ours = {(line["shape"], line["batch"]): line for line in lines if line.get("way") == "ours" and "ms" in line}
    for line in lines:
        mine = ours.get((line["shape"], line["batch"]))
        name = f"| {line['shape']} | {line['batch']:,} | {line.get('way', '')} | "
        if "ms" not in line:
            rows.append(name + f"{line['error']} | | | | |")
            continue
        ratio = f"{line['ms'] / mine['ms']:.1f} | {mine['gib'] / line['gib']:.2f}" if mine and line["gib"] else " | "
        rows.append(name + f"{line['ms']:.1f} ms | {line['pairs_per_s']:,.0f} | {line['gib']:.1f} GiB | {ratio} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
