"""Find the function that does what you say, among those of the Python standard library.

python examples/search.py "wait until all threads are done" [encoder or folder of a tuned model]
"""

import sys

from pairtune import Index, load_encoder, load_task

query = sys.argv[1] if len(sys.argv) > 1 else "wait until all threads are done"
model = load_encoder(sys.argv[2] if len(sys.argv) > 2 else "minilm")
task = load_task("stdlib")
functions = [text for split in (task.train, task.dev, task.test) for text in split.right]
for score, function in Index.build(model, functions).search(model, query, top=5):
    print(f"{score:.3f}  {function}")
