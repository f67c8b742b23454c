"""Files that engines disagree on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shuffles import awkward_texts


@pytest.fixture
def awkward(tmp_path):
    """The awkward texts in three files of a folder, with the row's number beside them."""
    texts = awkward_texts()
    table = pa.table({"id": range(len(texts)), "question": texts, "label": np.linspace(0, 1, len(texts), dtype=np.float32)})
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    pq.write_table(table[:100], folder / "a.parquet", row_group_size=30)
    pq.write_table(table[100:101], folder / "b" / "0.parquet")
    pq.write_table(table[101:], folder / "c.parquet")
    return folder
