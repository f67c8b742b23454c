"""Our loss and our batches in a plain sentence-transformers script: nothing else of pairtune is needed.

python examples/plain_trainer.py [encoder] [pairs]
"""

import sys

from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from pairtune import BatchSoftmaxLoss, HardBatches, PairEvaluator, load_encoder, load_task

encoder, pairs = (sys.argv[1:] + ["minilm", "1000"][len(sys.argv) - 1 :])[:2]
task = load_task("stdlib")
train = task.train.take(range(int(pairs)))
model = load_encoder(encoder, max_length=48)
evaluator = PairEvaluator.of_task(task, "test")

trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir="runs/plain",
        num_train_epochs=1,
        per_device_train_batch_size=32,
        learning_rate=1e-4,
        save_strategy="no",
        batch_sampler=HardBatches(by="examples", group=4),  # near texts share a batch
    ),
    train_dataset=Dataset.from_dict({"left": train.left, "right": train.right}),
    loss=BatchSoftmaxLoss(model, temperature=0.05),
)
before = evaluator(model)["test_HP@1"]
trainer.train()
print(f"HP@1 {before:.3f} → {evaluator(model)['test_HP@1']:.3f}")
