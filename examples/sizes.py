"""Train embeddings that can be cut (Matryoshka) on your own CSV, and see what each size scores on dev.

python examples/sizes.py pairs.csv LEFT_COLUMN RIGHT_COLUMN LABEL_COLUMN [encoder]
"""

import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer

from pairtune import read_recipe, read_table, train

file, left, right, label, encoder = (*sys.argv[1:], "minilm")[:5]
settings = [f'encoder="{encoder}"', "train.dimensions=[384, 192, 96, 48]", "train.epochs=1"]
task = read_table(Path(file), left, right, label)
record, *_ = train(read_recipe("own/labelled", settings), out=Path("runs/sizes"), task=task, overwrite=True)

for size in record.sizes:
    score = size.scores[task.metric]
    print(f"{size.dimension:4} numbers in {size.precision:8} {size.bytes:5} bytes a text  {task.metric} on dev {score:.3f}")

small = SentenceTransformer("runs/sizes/model", truncate_dim=96)  # any model, anywhere: its first 96 numbers
print(small.encode("a text").shape)
