"""Algorithm 2 of the paper as one relational query, and how each engine spells its few primitives.

    row, value → rank = h(seed|row) → words → shingle: t words picked by rank → number within the shingle
               → group = h(seed|shingle|number div k) → the rows sorted by (group, row)

h is the first 15 hexadecimal digits of MD5 as a BIGINT: the only source of chance, and the same on every engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from pairtune.engines.shuffle import Reading, ShuffleJob
from pairtune.ordering.shingles import STOP_WORDS

LETTERS = r"\p{L}\p{M}\p{N}"
WORD, SPACE = f"[{LETTERS}]+", f"[^{LETTERS}]+"
# What stands between two words, with the stop words in it: DuckDB finds and drops in one pass with this, a sixth faster
# than word by word. To Java's regular expressions it would be three times slower.
GAP = f"{SPACE}(?:(?:{'|'.join(sorted(STOP_WORDS))}){SPACE})*"


@dataclass(frozen=True)
class Dialect:
    """One engine's spelling of: hash a string, divide, the words of a column by how it is read, pick, remove, join.

    words: the words of a column's value, by how it is read: a text to split, words already split, one value, row ids.
    """

    hash: str
    quotient: str
    count: str
    pick: str
    remove: str
    join: str
    words: dict[Reading, str]


# İ first: its lower case is one or two characters, by engine. ς last: some engines give it for a final Σ, some give σ.
LOWERED = "replace(lower(replace(value, 'İ', 'i')), 'ς', 'σ')"

DUCKDB = Dialect(
    hash="('0x' || substr(md5({0}), 1, 15))::BIGINT",
    quotient="({0} // {1})",
    count="nullif(len({0}), 0)",
    pick="{0}[{1} + 1]",
    remove="list_filter({0}, lambda w: w <> {1})",
    join="array_to_string(list_sort([{0}]), ' ')",
    words={
        "text": f"string_split(nullif(trim(regexp_replace(' ' || {LOWERED} || ' ', '{GAP}', ' ', 'g')), ''), ' ')",
        "words": "list_filter(value, lambda w: w IS NOT NULL)",
        "value": "[CAST(value AS VARCHAR)]",
        "ids": "list_transform(list_filter(value, lambda i: i >= 0), lambda i: CAST(i AS VARCHAR))",
    },
)

SPARK = Dialect(
    hash="CAST(conv(substr(md5({0}), 1, 15), 16, 10) AS BIGINT)",
    quotient="({0} div {1})",
    count="nullif(size({0}), 0)",
    pick="{0}[{1}]",
    remove="array_remove({0}, {1})",
    join="concat_ws(' ', array_sort(array({0})))",
    words={
        # r'…': Spark unescapes backslashes in plain strings
        "text": f"filter(regexp_extract_all({LOWERED}, r'{WORD}', 0), w -> w NOT IN ({str(sorted(STOP_WORDS))[1:-1]}))",
        "words": "array_compact(value)",
        "value": "array(CAST(value AS STRING))",
        "ids": "transform(filter(value, i -> i >= 0), i -> CAST(i AS STRING))",
    },
)


def words_query(dialect: Dialect, rows: str, reading: Reading) -> str:
    """Row → its words, in the order in which they stand; `rows` is a relation of (row, value)."""
    return f"SELECT row, {dialect.words[reading]} AS words FROM ({rows})"


def shingles_query(dialect: Dialect, words: str, seed: int, shingle: int) -> str:
    """Row → a random subset of t of its words, sorted and joined by spaces; a row with no word is its own shingle.

    The rank is read as a number in mixed radix: its lowest digit, modulo the number of words, picks the first one, the
    next digit picks from what remains, so that one hash serves all draws. A word that stands twice is twice as likely,
    and never picked twice: taking the distinct words first would need a sort, and double the time.
    """
    ranked = f"SELECT row, {_rank(dialect, seed)} AS rank, words FROM ({words})"
    query = f"SELECT row, rank, rank AS digits, words FROM ({ranked})"
    picked: list[str] = []
    for draw in range(shingle):
        if draw:
            rest = dialect.remove.format("words", picked[-1])
            digits = dialect.quotient.format("digits", dialect.count.format("words"))
            kept = ", ".join(picked)
            query = f"SELECT row, rank, {digits} AS digits, {rest} AS words, {kept} FROM ({query})"
        place = f"digits % {dialect.count.format('words')}"
        query = f"SELECT *, {dialect.pick.format('words', place)} AS word{draw} FROM ({query})"
        picked.append(f"word{draw}")
    joined = "word0" if shingle == 1 else dialect.join.format(", ".join(picked))
    return f"SELECT row, rank, CASE WHEN word0 IS NULL THEN ' ' || row ELSE {joined} END AS shingle FROM ({query})"


def groups_query(dialect: Dialect, shingles: str, seed: int, group_size: int) -> str:
    """Row → the hashed number of its group, and its place in it from 0; sorting by (group_id, row) is the shuffle.

    The paper's pseudo-code does not reset the size of the group when the shingle changes; this does: a group is at
    most k rows of one shingle.
    """
    number = "CAST(row_number() OVER (PARTITION BY shingle ORDER BY rank, row) - 1 AS BIGINT)"
    group = dialect.hash.format(f"'{seed}|' || shingle || '|' || {dialect.quotient.format('number', group_size)}")
    numbered = f"SELECT row, shingle, {number} AS number FROM ({shingles})"
    return f"SELECT row, {group} AS group_id, number % {group_size} AS place FROM ({numbered})"


def random_query(dialect: Dialect, rows: str, seed: int) -> str:
    """Row → its own hash as the group: a plain shuffle, the same on every engine."""
    return f"SELECT row, {_rank(dialect, seed)} AS group_id, 0 AS place FROM ({rows})"


def order_query(dialect: Dialect, rows: str, reading: Reading | None, job: ShuffleJob) -> str:
    """The whole of Algorithm 2: (row, value) → (row, group_id, place); nothing to read, no grouping."""
    if reading is None:
        return random_query(dialect, rows, job.seed)
    words = words_query(dialect, rows, reading)
    return groups_query(dialect, shingles_query(dialect, words, job.seed, job.shingle), job.seed, job.group_size)


def count_columns(group_size: int) -> dict[str, str]:
    """What a report needs, as aggregates over `place`: as many rows stand at place p as groups have more than p rows."""
    places = {"groups": 0, "paired": 1, "full": group_size - 1}
    return {"rows": "count(*)"} | {name: f"count_if(place = {place})" for name, place in places.items()}


def _rank(dialect: Dialect, seed: int) -> str:
    return dialect.hash.format(f"'{seed}|' || row")
