"""Tune an adapter (LoRA) on your own CSV: a few new parameters are trained, and the encoder stays as it is.

python examples/adapter.py pairs.csv LEFT_COLUMN RIGHT_COLUMN LABEL_COLUMN [encoder]    needs: pip install 'pairtune[adapters]'
"""

import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer

from pairtune import read_recipe, read_table, train

file, left, right, label, encoder = (*sys.argv[1:], "minilm")[:5]
settings = [
    f'encoder="{encoder}"',
    "adapter.kind=lora",
    "adapter.rank=16",
    "adapter.save=adapter",  # merged, the default, saves a whole model
    "train.learning_rate=5e-4",  # higher than for a whole encoder
    "train.epochs=1",
]
task, out = read_table(Path(file), left, right, label), Path("runs/adapter")
record, *_ = train(read_recipe("own/labelled", settings), out=out, task=task, overwrite=True)
print(f"{task.metric} on test: {record.before['test'][task.metric]:.3f} → {record.after['test'][task.metric]:.3f}")

model = SentenceTransformer(str(out / "model"))  # the adapter, on top of the encoder that it was trained on
adapter = (out / "model" / "adapter_model.safetensors").stat().st_size / 1e6
print(f"the adapter has {adapter:.1f} MB, its encoder {sum(one.numel() for one in model.parameters()) * 4 / 1e6:.0f} MB")
