"""A shuffled file goes into the host's trainer as it stands."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairtune.engines import shuffle, stream
from pairtune.errors import UserError


def test_rows_come_in_file_order_and_only_as_they_are_asked_for(tmp_path):
    table = pa.table({"left": [f"left {i}" for i in range(100_000)], "right": [f"right {i}" for i in range(100_000)]})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=500)
    first = pq.read_metadata(tmp_path / "in.parquet").row_group(199).column(0).dictionary_page_offset
    with (tmp_path / "in.parquet").open("r+b") as file:  # the last row group is unreadable, far beyond what is read ahead
        file.seek(first)
        file.write(bytes(200))
    rows = iter(stream(str(tmp_path / "in.parquet"), columns=["right", "left"]))
    assert [next(rows) for _ in range(2)] == [{"right": f"right {i}", "left": f"left {i}"} for i in range(2)]
    with pytest.raises(OSError, match="Couldn't deserialize"):
        list(rows)


def test_a_missing_column_is_refused_with_those_there_are(tmp_path):
    pq.write_table(pa.table({"left": ["a"], "right": ["b"]}), tmp_path / "in.parquet")
    with pytest.raises(UserError, match="has no column 'write'; there are: left, right"):
        stream(str(tmp_path / "in.parquet"), columns=["left", "write"])


def test_the_host_trains_on_a_shuffled_file_in_its_order(tiny_model, tmp_path):
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    texts = {"left": [f"question {i} about word{i % 4}" for i in range(24)], "right": [f"answer {i}" for i in range(24)]}
    pq.write_table(pa.table(texts), tmp_path / "in.parquet")
    shuffle(str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"), column="left", group_size=4)
    seen: list[list[int]] = []

    class Watched(MultipleNegativesRankingLoss):
        def forward(self, sentence_features, labels=None):
            features = list(sentence_features)
            seen.extend(features[0]["input_ids"].tolist())
            return super().forward(features, labels)

    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), max_steps=3, per_device_train_batch_size=8, save_strategy="no", report_to="none", use_cpu=True
    )
    data = stream(str(tmp_path / "out.parquet"))
    SentenceTransformerTrainer(tiny_model, arguments, train_dataset=data, loss=Watched(tiny_model)).train()
    order = pq.read_table(tmp_path / "out.parquet")["left"].to_pylist()
    assert [tiny_model.tokenizer.decode(ids, skip_special_tokens=True) for ids in seen] == order
