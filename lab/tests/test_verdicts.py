"""What the records say about the paper's claims, by rules that are checked on made-up comparisons."""

from __future__ import annotations

import pytest
from lab.book import Book
from lab.claims import Claim, Contrast, conclusions, open_points
from lab.results_page import make_page
from lab.rows import row_names
from lab.statistics import Difference
from lab.verdicts import VERDICTS, Family, Finding, judge, learned_temperatures
from made_runs import BEFORE, make_run, write

SPREAD = dict(enumerate((-0.0014, -0.0007, 0.0, 0.0007, 0.0014)))
ROWS = Contrast("cqa-a/bsc", "cqa-a/mse")


def finding(mean, low, high, sure=True, comparison=ROWS):
    found = Difference(mean, low, high, p=0.001)
    return Finding(comparison, found, found, sure)


UP, DOWN, NOISE = finding(0.2, 0.1, 0.3), finding(-0.2, -0.3, -0.1), finding(0.1, -0.1, 0.3)
ALONE = finding(0.2, 0.1, 0.3, sure=False)  # sure by itself, not among so many


def claim(rule, **more):
    return Claim("it is so", (ROWS,), rule, **more)


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([UP, UP, NOISE], "confirmed"),
        ([UP, NOISE, NOISE], "depends"),
        ([UP, UP, UP, DOWN], "depends"),
        ([NOISE, NOISE], "not confirmed"),
        ([DOWN, NOISE], "not confirmed"),
        ([ALONE, ALONE], "not confirmed"),
    ],
)
def test_a_conclusion_is_judged_by_its_comparisons(findings, verdict):
    assert judge(claim("most"), findings) == verdict


def test_one_sure_comparison_is_enough_for_what_may_be_so():
    assert judge(claim("some"), [UP, NOISE, DOWN]) == "confirmed"
    assert judge(claim("some"), [NOISE, ALONE]) == "not confirmed"


def test_a_claim_about_sizes_says_what_they_are():
    sizes = claim("most", between=(0.01, 0.02))
    within, above = finding(0.015, 0.01, 0.02), finding(0.08, 0.07, 0.09)
    assert judge(sizes, [within]) == "confirmed" and judge(sizes, [DOWN]) == "not confirmed"
    assert judge(sizes, [within, above]) == "confirmed, but by 1.5 to 8.0 points"


def test_an_open_question_gets_an_answer():
    question = claim("which", first="this", second="that")
    assert [judge(question, found) for found in ([UP, NOISE], [DOWN], [NOISE], [UP, DOWN])] == [
        "this is better on `cqa-a`",
        "that is better on `cqa-a`",
        "no difference beyond the noise",
        "depends on the task",
    ]


def test_a_verdict_by_task_names_the_tasks():
    other = finding(0.1, -0.1, 0.3, comparison=Contrast("cqa-b/bsc", "cqa-b/mse"))
    assert judge(claim("most", by_task=True), [UP, other]) == "confirmed on `cqa-a`; not confirmed on `cqa-b`"


def runs_of(rows, **how):
    return [make_run(name, seed, mean + seed / 1000, 0.5, **how) for name, mean in rows.items() for seed in (1, 2, 3)]


def verdict_of(asked, book, encoder="minilm"):
    return judge(asked, Family([asked], book, [encoder]).findings(asked, encoder))


def test_verdicts_follow_the_records(tmp_path):
    asked = next(one for one in conclusions() if "normalization during" in one.text)
    runs = runs_of({"pfcc-s/bsc": 0.8, "pfcc-s/bsc-row-norm": 0.6, "pfcc-s/bsc-no-norm": 0.7})
    assert verdict_of(asked, Book(tmp_path)) == "not run yet on `pfcc-s`"
    assert verdict_of(asked, write(tmp_path, runs[:1] + runs[3:4])) == "open, one run each is too few on `pfcc-s`"
    assert verdict_of(asked, write(tmp_path, runs[:6])) == "open, 1 of 2 comparisons so far on `pfcc-s`"
    assert verdict_of(asked, write(tmp_path, runs)) == "confirmed on `pfcc-s`"
    assert verdict_of(asked, Book(tmp_path), "mpnet") == "not run yet on `pfcc-s`"
    assert "minilm: **confirmed on `pfcc-s`**" in make_page(Book(tmp_path))


def test_invalid_runs_decide_nothing(tmp_path):
    asked = next(one for one in conclusions() if "normalization during" in one.text)
    rows = {"pfcc-s/bsc": 0.8, "pfcc-s/bsc-row-norm": 0.6, "pfcc-s/bsc-no-norm": 0.7}
    assert verdict_of(asked, write(tmp_path, runs_of(rows, finished=BEFORE))) == "open, to be run again on `pfcc-s`"
    assert verdict_of(asked, write(tmp_path, runs_of(rows))) == "confirmed on `pfcc-s`"


def test_more_than_a_tenth_is_tested_against_a_tenth(tmp_path):
    asked = next(one for one in conclusions() if "more than 10 %" in one.text)
    lower = {"stsb/bsc": 0.8, "stsb/bsc-low-tau": 0.75, "stsb/bsc-high-tau": 0.74}  # surely lower, by 6 and 8 %
    assert "not confirmed on `stsb`" in verdict_of(asked, write(tmp_path, runs_of(lower)))
    assert "; confirmed on `stsb`" in verdict_of(asked, write(tmp_path, runs_of({"stsb/bsc-high-tau": 0.6})))


def test_the_more_is_compared_the_more_it_takes_to_be_sure(tmp_path):
    """0.002 apart with a spread of 0.001 over five seeds: p is about 0.01, enough alone and not among nine."""
    rows = {f"stsb/{name}": 0.8 for name in ("combo", "bsc", "bsc-low-tau", "bsc-high-tau", "bsc-learned", "combo-mean")}
    runs = [
        make_run(name, seed, mean + SPREAD[seed], 0.5) for name, mean in {**rows, "stsb/mse": 0.802}.items() for seed in SPREAD
    ]
    book = write(tmp_path, runs)
    alone = Claim("", (Contrast("stsb/mse", "stsb/combo"),), "most")
    among = Claim("", tuple(Contrast("stsb/bsc", name) for name in rows if name != "stsb/bsc"), "most")
    (found,) = Family([alone], book, ["minilm"]).findings(alone, "minilm")
    assert 0.05 / 6 < found.tested.p < 0.05 and found.sure and str(found).endswith(" ✓")
    family = Family([alone, among], book, ["minilm"])
    (found,) = family.findings(alone, "minilm")
    assert (family.compared, family.alone, family.sure) == (6, 1, 0)
    assert found.tested.sign == 1 and found.sign == 0 and str(found).endswith(" (✓)")


def test_every_claim_names_rows_that_are_there_and_a_rule_that_there_is():
    assert len(conclusions()) == 7
    claims = (*conclusions(), *open_points())
    assert {name for one in claims for pair in one.comparisons for name in (pair.upper, pair.lower)} <= set(row_names())
    assert {one.rule for one in claims} <= set(VERDICTS)


def test_the_learned_temperature_is_that_of_the_kept_epoch(tmp_path):
    book = write(tmp_path, [make_run("stsb/bsc-learned", seed, 0.8, 0.8, temperature=0.1 * seed) for seed in (1, 2)])
    assert learned_temperatures("stsb/bsc-learned", book, "minilm") == pytest.approx([0.1, 0.2])
    assert "0.1000, 0.2000" in make_page(book)
