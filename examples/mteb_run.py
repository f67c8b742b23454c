"""Run mteb on a tuned model as on any other: our `stdlib` as one of its tasks, or a task of its own (needs a network).
pip install mteb; python examples/mteb_run.py runs/demo/model [STSBenchmark]
"""

import sys

import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from pairtune import load_encoder, load_task

ABOUT = {"description": "stdlib", "eval_langs": ["eng-Latn"], "dataset": {"path": "local", "revision": "1"}}


class StandardLibrary(AbsTaskRetrieval):
    """Find the function from what it does; mteb asks for the data and never for a download."""

    metadata = TaskMetadata(name="Stdlib", type="Retrieval", main_score="hit_rate_at_1", **ABOUT)

    def load_data(self, **_):
        """The test split of `stdlib`: its corpus, its queries, and which text answers which."""
        pairs = load_task("stdlib").test
        row = {text: str(place) for place, text in enumerate(pairs.corpus)}
        relevant = {left: {} for left in pairs.left}
        for left, right in zip(pairs.left, pairs.right, strict=True):
            relevant[left][row[right]] = 1
        corpus = Dataset.from_list([{"id": place, "text": text} for text, place in row.items()])
        queries = Dataset.from_list([{"id": text, "text": text} for text in relevant])
        self.dataset = {
            "default": {"test": {"corpus": corpus, "queries": queries, "relevant_docs": relevant, "top_ranked": None}}
        }
        self.data_loaded = True


tasks = mteb.get_tasks(tasks=sys.argv[2:]) if sys.argv[2:] else [StandardLibrary()]
for result in mteb.evaluate(load_encoder(sys.argv[1]), tasks, cache=None).task_results:
    print(f"{result.task_name}  {result.get_score():.4f}")
