"""How the lab's tables write numbers."""

from __future__ import annotations


def four_digits(value: float | None, signed: bool = False) -> str:
    """Four digits, a dash for nothing.

    >>> four_digits(0.5, signed=True)
    '+0.5000'
    """
    if value is None:
        return "–"
    return f"{value:+.4f}" if signed else f"{value:.4f}"


def with_spread(mean: float | None, spread: float | None, seeds: int) -> str:
    """A mean and the standard deviation over seeds, where there are several.

    >>> with_spread(0.8088, 0.0031, 3)
    '0.8088 ± 0.0031'
    """
    return f"{four_digits(mean)} ± {spread:.4f}" if seeds > 1 and spread is not None else four_digits(mean)
