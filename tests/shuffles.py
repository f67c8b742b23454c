"""What the engines must agree on: awkward files, and the paper's pseudo-code written out as loops."""

from __future__ import annotations

import hashlib
import random
import unicodedata

import pyarrow.parquet as pq


def h(text):
    return int(hashlib.md5(text.encode()).hexdigest()[:15], 16)


def shuffle_slowly(words, k, t, seed):
    """Algorithm 2, line by line; every `random` of the paper is a hash, and s starts anew with every shingle."""
    shingles = []
    for row, own in enumerate(words):
        chance, picked, left = h(f"{seed}|{row}"), [], list(own)
        while left and len(picked) < t:
            picked.append(left[chance % len(left)])
            chance = chance // len(left)
            left = [word for word in left if word != picked[-1]]
        shingles.append(" ".join(sorted(picked)) or f" {row}")
    by_shingle = sorted(range(len(words)), key=lambda row: (shingles[row], h(f"{seed}|{row}"), row))
    group_ids, previous, size, chunk = {}, None, 0, 0
    for row in by_shingle:
        if shingles[row] != previous:
            size, chunk = 0, 0
        elif size >= k:
            size, chunk = 0, chunk + 1
        group_ids[row] = h(f"{seed}|{shingles[row]}|{chunk}")
        size += 1
        previous = shingles[row]
    order = sorted(range(len(words)), key=lambda row: (group_ids[row], row))
    return order, [group_ids[row] for row in order]


def awkward_texts():
    """All that makes engines disagree: skew, only stop words, empty, missing, repeated, and Unicode case."""
    chance = random.Random(3)
    vocabulary = [f"word{i}" for i in range(60)]
    texts = [" ".join(chance.choices(vocabulary, range(60, 0, -1), k=chance.randint(1, 9))) + "?" for _ in range(300)]
    texts += ["Everybody"] * 40  # a tenth of the rows share one word
    texts += ["the of and", "The  OF?!", "", " ", "...", None, None, "a\tb\nc\x00d", "don't won't"]
    texts += [
        "İstanbul ISTANBUL ıstanbul",
        "ΟΔΟΣ ΟΔΟΣ. Σ",
        "οδος οδοσ",
        "STRASSE straße",
        "cafe\u0301 CAFE\u0301 café",
        "Ünïcödé x\u0302y",
    ]
    texts += ["日本語 テキスト", "ﬁre ǅ ǆ", "१२३ x² Ⅻ", "emoji 😀 word1", "under_score-hyphen", "word1 word1 word1 word2"] * 2
    chance.shuffle(texts)
    return texts


def ids(path, column="id"):
    return pq.read_table(path)[column].to_pylist()


def neighbor_lists():
    chance = random.Random(5)
    lists = [[chance.choice([-1, None, *range(12)]) for _ in range(chance.randint(0, 5))] for _ in range(150)]
    return [*lists, None, []]


def old_characters():
    """Those of Unicode 3.2: what came since may be unknown to one engine or the other."""
    known = unicodedata.ucd_3_2_0
    return [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000 and known.category(chr(i)) != "Cn"]
