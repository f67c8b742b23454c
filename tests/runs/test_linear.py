"""Expressions that are taken read every text in linear time, and mean what they meant; those that are refused would not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers

from pairtune.runs.linear import STEPS, written_linear
from steps import Counting

TAKEN = [
    r"https?://\S+",
    r"(https?://|pic[.]twitter[.]com/)\S+",
    r"[(]@\w+[)]\s\w+\s\d+,\s\d{4}",
    r"\(@\w+\)\s\w+\s\d+,\s\d{4}$",
    r"[;,]",
    r"#\w+",
    r"<[^<>]+>",
    r"<[^>]{1,9}>",
    r"<.{1,9}?>",
    r"\[[^\[\]]*\]",
    r"\bid:\s*\d+\b",
    r"^>.*$",
    r"\b\w+:",
    r"(?<!\S)[^\s@]+@\S+",
    r"[\w.+-]{1,6}@[\w-]{1,6}(?:\.[\w-]{1,6}){1,3}",
    r"<[^<>]+>|\[[^\[\]]+\]",
    r"-\d{2,}:|x(?!y)\w*",
    r"(?<=:)a+b",
    r"xa++b",
    r"(?:ab|b){1,4}c",
    r"id[0-9]+(?:-\d+)?$",
    r"-{3,}.*$",
    r"^x.+$\nb",
    "|".join(["ab", *(one + "-{450}" for one in "abcde")]),
]
# with a text that, twice as long, takes more than three times the steps
SLOW = [
    (r"<[^>]+>", "<", "repeats '[^>]' without end, may then fail, and would read the same again from the next place"),
    (r"\[[^\]]*\]", "[", "without end, may then fail"),
    (r"<[^>]++>", "<", "may then fail"),
    (r"\d+:", "1", "may then fail"),
    (r"x\w++:", "x", "may then fail"),
    (r"\S+@\S+", "a", "what follows may begin with the same character: bound it, as in"),
    (r"<.*?>", "<", "what follows may begin with the same character: bound it, as in .{0,200}?"),
    (r"<.+$:", "<", "what follows may begin with the same character"),
    (r"x\w*\d{1,2}:", "x1", "what follows may begin with the same character"),
    (r"x(?:\w+,?){1,2}:", "x", "repeats a group without end"),
    (r"x(?=\w+:)", "x", "looks without end"),
]
OTHERS = [
    (r"(?:https?://\S+\s*)+$", "repeats a group without end"),
    (r"(\d|1)+x", "repeats a group without end"),
    (r"(a|a){1,20}c", f"may take more than {STEPS:,} steps from one place"),
    (r"a{1,60}a{1,60}b", f"may take more than {STEPS:,} steps from one place"),
    (r"(?:(?:a?){9}){9}b", f"may take more than {STEPS:,} steps from one place"),
    ("|".join(f"ab{n}" for n in range(999)), "|ab…' on: give what repeats smaller bounds, write fewer alternatives"),
    (r"x.*?$", "repeats '.' without end, may then fail"),
    (r"#\w+?", "takes as few of"),
    (r"(?:ab)++", "repeats a group without end"),
    (r"(?:ab)?+c", "gives nothing back"),
    (r"(?i)Straße", "also matches the characters 'ss'"),
    (r"a(?i)b", "in the middle: write it at the beginning"),
    (r"a{2}+", "has '{2}+': write {2} alone"),
    (r"a**", "repeats what does not repeat: 'a*'"),
    *((rule, "which ignore does not take") for rule in (r"(a)\1", "(?>a)b", r"x\Ky", "[a[b]]", r"(?<n>a)\g<n>", "(?i-m)a")),
]


def replaced(expression, text):
    return normalizers.Replace(Regex(expression), "¤").normalize_str(text)


def steps(expression, text):
    """Of the search in this text, whose matches are those of `re`."""
    search = Counting(expression, text)
    assert search.matches() == [match.span() for match in re.finditer(expression, text, re.MULTILINE)]
    return search.steps


def grows(expression, part, length):
    """How many times as many steps twice as long a text takes."""
    once, twice = (part * length)[:length], (2 * part * length)[: 2 * length]
    return max(steps(expression, twice + end) / steps(expression, once + end) for end in ("", "\0", ":"))


PARTS = [
    "<",
    "x<",
    "[",
    "<[",
    "a",
    "a b ",
    " ",
    "1",
    "-1",
    "1,",
    "(@a) b 1,",
    "id:",
    "id: 1",
    "https://",
    "a@",
    "a.",
    "x@a.",
    "ab",
    "\n>",
    ":",
    "#a",
]


@pytest.mark.parametrize("rule", TAKEN)
def test_a_taken_rule_needs_steps_in_proportion_to_the_length_of_any_text(rule):
    for part in PARTS:
        assert grows(written_linear(rule), part, 150) < 2.2, part


@pytest.mark.parametrize(("rule", "part", "message"), SLOW, ids=[rule for rule, _, _ in SLOW])
def test_a_rule_whose_steps_grow_faster_than_some_text_is_refused(rule, part, message):
    assert grows(rule, part, 30) > 3
    with pytest.raises(ValueError, match=re.escape(message)):
        written_linear(rule)


@pytest.mark.parametrize(("rule", "message"), OTHERS)
def test_a_rule_that_may_take_too_many_steps_or_is_not_understood_is_refused(rule, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        written_linear(rule)


TEXTS = st.lists(st.sampled_from([*PARTS, ">", "]", "\n", "@mouse", ", 2018", "y", "é", "ß", "²", "\u0130", "_"])).map("".join)


@pytest.mark.parametrize(
    "rule", [*TAKEN, r"(?i)ID:\s*\d+", r"(?m)<.{1,5}b", r"(?x) id: \d+ # number", r"\p{L}\x{31}|\h\u0031", r"(?<n>a)b"]
)
@settings(max_examples=30, deadline=None)
@given(text=TEXTS)
def test_what_runs_means_what_was_written(rule, text):
    assert replaced(written_linear(rule), text) == replaced(rule, text)


SETS = st.sampled_from(["a", "b", "-", "[ab]", "[^a]", "[^b-]", r"\w", r"\W", "."])
TIMES = st.sampled_from(["", "", "?", "+", "*", "{2,}", "{1,3}", "{0,2}?", "++", "*+", "+?"])
SINGLE = st.tuples(SETS, TIMES).map("".join)
EDGES = st.sampled_from(["", "", r"\b", "^", "$", "(?<!a)", "(?=b)", "(?!-)"])
ROW = st.lists(st.one_of(SINGLE, SINGLE, EDGES), min_size=1, max_size=5).map("".join)
GROUP = st.tuples(st.lists(ROW, min_size=1, max_size=2).map("|".join), st.sampled_from(["", "?", "{1,3}"])).map(
    lambda given: f"(?:{given[0]}){given[1]}"
)
ANY_RULE = st.lists(st.one_of(SINGLE, ROW, GROUP), min_size=1, max_size=3).map("".join)


@settings(max_examples=200, deadline=None)
@given(rule=ANY_RULE, text=st.text("ab- \n", max_size=12), part=st.text("ab- ", min_size=1, max_size=4))
def test_any_rule_is_refused_or_reads_any_text_in_linear_time(rule, text, part):
    try:
        replaced(rule, "")
        written = written_linear(rule)
    except Exception:  # that of the engine has no name of its own
        return
    assert replaced(written, text) == replaced(rule, text)
    for end in ("", "b", "-", "\n"):
        assert steps(written, part * 80 + end) < 2.3 * steps(written, part * 40 + end) + 100
