"""MD5 of many short texts at once: each of the 64 steps of RFC 1321 is a few operations on whole arrays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

LONGEST = 55  # bytes that fit into a single block of MD5, beside its padding
ROWS = 16_384  # texts at a time: what a step reads and writes stays in the processor's cache

SHIFTS = np.repeat([[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]], 4, axis=0).reshape(64).astype(np.uint32)
SINES = np.floor(np.abs(np.sin(np.arange(1, 65))) * 2**32).astype(np.uint32)
BEGIN = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)


def hash_numbered(prefix: bytes, count: int) -> np.ndarray:
    """(count,) int64: of each text prefix + str(row), the first 15 hexadecimal digits of its MD5.

    >>> hash_numbered(b"7|", 1)
    array([317837971778625153])
    """
    hashes = np.empty(count, np.int64)
    for start in range(0, count, ROWS):
        stop = min(count, start + ROWS)
        bounds = [start, *(10**digits for digits in range(1, 19) if start < 10**digits < stop), stop]
        parts = [_write_blocks(prefix, np.arange(*few), len(str(few[0]))) for few in pairwise(bounds)]  # of equally many digits
        hashes[start:stop] = _hash_blocks(np.concatenate(parts, axis=1))
    return hashes


def _write_blocks(prefix: bytes, rows: np.ndarray, digits: int) -> np.ndarray:
    """(16, b) uint32: the texts, each padded to the one block that MD5 reads."""
    length = len(prefix) + digits
    assert length <= LONGEST
    blocks = np.zeros((len(rows), 64), np.uint8)
    blocks[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    for place in range(digits):
        blocks[:, length - 1 - place] = ord("0") + rows // 10**place % 10
    blocks[:, length] = 0x80
    blocks[:, 56:58] = np.frombuffer((8 * length).to_bytes(2, "little"), np.uint8)
    return np.ascontiguousarray(blocks.view("<u4").T)


def _hash_blocks(words: np.ndarray) -> np.ndarray:
    """(b,) int64: the first 60 bits of the MD5 of single blocks, words: (16, b)."""
    a, b, c, d = (np.full(words.shape[1], value, np.uint32) for value in BEGIN)
    for step in range(64):
        if step < 16:
            mixed, word = d ^ (b & (c ^ d)), step
        elif step < 32:
            mixed, word = c ^ (d & (b ^ c)), (5 * step + 1) % 16
        elif step < 48:
            mixed, word = b ^ c ^ d, (3 * step + 5) % 16
        else:
            mixed, word = c ^ (b | ~d), 7 * step % 16
        mixed += a
        mixed += words[word] + SINES[step]
        turned = (mixed << SHIFTS[step]) | (mixed >> (32 - SHIFTS[step]))
        a, d, c, b = d, c, b, b + turned
    high, low = ((value + np.uint32(begin)).byteswap().astype(np.int64) for value, begin in zip((a, b), BEGIN, strict=False))
    return (high << 28) | (low >> 4)
