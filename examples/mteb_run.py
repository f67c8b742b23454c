"""Run mteb on a tuned model as on any other: a task of mteb's by name (needs a network), or our `stdlib` as one of its tasks.

pip install mteb; python examples/mteb_run.py runs/demo/model [STSBenchmark]
"""

import sys

import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer

from pairtune import load_task
from pairtune.sbert.encoder import find_encoder


class StandardLibrary(AbsTaskRetrieval):
    """Find the function from what it does; mteb asks for the data and never for a download."""

    origin = {"path": "local", "revision": "1"}
    about = {"description": "docstring → function", "type": "Retrieval", "eval_langs": ["eng-Latn"]}
    metadata = TaskMetadata(name="StandardLibrary", dataset=origin, main_score="hit_rate_at_1", **about)

    def load_data(self, **_):
        """The test split of `stdlib`: its corpus, its queries, and which text answers which."""
        pairs = load_task("stdlib").test
        row = {text: str(place) for place, text in enumerate(pairs.corpus)}
        relevant = {left: {} for left in pairs.left}
        for left, right in zip(pairs.left, pairs.right, strict=True):
            relevant[left][row[right]] = 1
        corpus = Dataset.from_list([{"id": place, "text": text} for text, place in row.items()])
        queries = Dataset.from_list([{"id": text, "text": text} for text in relevant])
        self.dataset = {"default": {"test": dict(corpus=corpus, queries=queries, relevant_docs=relevant, top_ranked=None)}}
        self.data_loaded = True


tasks = mteb.get_tasks(tasks=sys.argv[2:]) if sys.argv[2:] else [StandardLibrary()]
for result in mteb.evaluate(SentenceTransformer(find_encoder(sys.argv[1])), tasks, cache=None).task_results:
    print(f"{result.task_name}  {result.get_score():.4f}")
