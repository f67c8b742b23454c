"""Train on your own CSV and score new pairs: what `pairtune train --data pairs.csv` does, as a library.

python examples/own_csv.py pairs.csv LEFT_COLUMN RIGHT_COLUMN [LABEL_COLUMN] [--encoder minilm]
"""

import argparse
from pathlib import Path

from pairtune import load_encoder, read_recipe, read_table, train

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("csv", type=Path)
arguments.add_argument("left")
arguments.add_argument("right")
arguments.add_argument("label", nargs="?")
arguments.add_argument("--encoder", default="minilm")
arguments.add_argument("--out", type=Path, default=Path("runs/own"))
given = arguments.parse_args()

task = read_table(given.csv, given.left, given.right, given.label)
for note in task.notes:
    print("note:", note)
recipe = read_recipe("own/labelled" if given.label else "own/positives", [f'encoder="{given.encoder}"', "train.epochs=1"])
record, *_ = train(recipe, out=given.out, task=task, overwrite=True)
print(f"{task.metric} on test: {record.before['test'][task.metric]:.3f} → {record.after['test'][task.metric]:.3f}")

model = load_encoder(record.model)
left, right = model.encode([task.test.left[0], task.test.right[0]])
print(f"first test pair scores {model.similarity(left, right).item():.3f}")
