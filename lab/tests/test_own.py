"""Cases of a user's own data, the choice of rules without the case at hand, and the page."""

from __future__ import annotations

import random

import pytest
from lab.own import packages, senses
from lab.own.cases import CASES, cut_by_query, load_case
from lab.own.choice import best_on_dev, leave_out
from lab.own.own_page import SHIPPED, each_stock_table, left_out_table, make_page, own_table, plain_table, shipped, tuned_table
from lab.own.own_runs import RESULTS, OwnRun, add_runs, read_own_runs
from lab.own.packages import Package, answers, grades, same_section
from lab.own.stock import STOCK, stock_losses
from lab.own.thirds import THIRDS, hold_out, thirds_table

from pairtune import PairSet, Task, UserError, read_recipe
from pairtune.tune.rules import RULES, choose


def run_of(case, name, gain, *, system="pairtune", test=None, dataset=None, seed=1):
    test = gain if test is None else test
    return OwnRun(
        case=case,
        dataset=dataset or case,
        metric="MAP",
        rule="own/answers",
        encoder="minilm",
        system=system,
        name=name,
        seed=seed,
        settings={},
        before={"dev": 0.5, "test": 0.5},
        after={"dev": 0.5 + gain, "test": 0.5 + test},
        seconds=2.0,
    )


def test_a_rule_is_chosen_from_datasets_other_than_the_one_it_is_judged_on():
    runs = [
        *(run_of(case, "pearson", gain) for case, gain in (("a", 0.1), ("b", 0.1), ("c", 0.1))),
        *(run_of(case, "mse", gain) for case, gain in (("a", 0.4), ("b", 0.0), ("c", 0.05))),  # good on a alone
    ]
    assert {one.case: one.chosen for one in leave_out(runs, lambda run: "pearson")} == {"a": "pearson", "b": "mse", "c": "mse"}
    same = [run.model_copy(update={"dataset": "one"}) for run in runs]
    assert leave_out(same, lambda run: "pearson") == []  # two guises of one dataset do not judge each other


def test_a_case_on_which_few_candidates_ran_has_no_part_in_a_choice():
    names = ["pearson", "mse", "cosent", "bsc", "triplet"]
    runs = [run_of(case, name, 0.1 + 0.01 * place) for case in "ab" for place, name in enumerate(names)]
    late = [run_of("late", "pearson", 0.9)]
    assert [(one.case, one.chosen, one.of) for one in leave_out([*runs, *late], lambda run: "mse")] == [
        ("a", "triplet", 1),
        ("b", "triplet", 1),
    ]


def test_a_candidate_that_lacks_a_case_is_not_chosen():
    runs = [run_of("a", "lucky", 0.9), run_of("a", "mse", 0.1), run_of("b", "mse", 0.1)]
    assert best_on_dev(runs) == "mse"


def test_the_table_has_the_best_stock_loss_on_test_and_the_mean_of_our_seeds():
    runs = [
        run_of("a", "pl.1-q-half", 0.2, seed=1), run_of("a", "pl.1-q-half", 0.1, seed=2), run_of("a", "pc.1-q", 0.4),
        run_of("a", "CoSENTLoss", 0.3, test=0.1, system="stock"), run_of("a", "AnglELoss", 0.0, test=0.12, system="stock"),
    ]  # fmt: skip
    table = own_table("minilm", runs)
    assert "| `a` | MAP | 0.500 | 0.620 (AnglE) | 0.650 | +0.030 | 1.0 |" in table
    assert "ahead of the best stock loss on 1 of 1 cases" in table
    assert "best on dev, which a user can choose: ahead on 1, mean difference +0.050" in table  # CoSENT, 0.600 on test


def test_each_stock_loss_is_compared_over_the_cases_that_have_it():
    runs = [
        run_of("a", "pl.1-q-half", 0.2), run_of("b", "pl.1-q-half", 0.2), run_of("c", "pl.1-q-half", 0.9),
        run_of("a", "CoSENTLoss", 0.1, system="stock"), run_of("b", "CoSENTLoss", 0.0, system="stock"),
        run_of("a", "AnglELoss", 0.3, system="stock"),
    ]  # fmt: skip
    table = each_stock_table(runs)
    assert "| CoSENTLoss | +0.150 | 2 of 2 |" in table and "| AnglELoss | -0.100 | 0 of 1 |" in table


def test_what_a_search_found_stands_beside_the_default_and_the_best_stock_loss():
    runs = [
        run_of("a", "pl.1-q-half", 0.2), run_of("a", "tune", 0.1, test=0.25),
        run_of("a", "CoSENTLoss", 0.3, test=0.1, system="stock"), run_of("a", "AnglELoss", 0.0, test=0.12, system="stock"),
    ]  # fmt: skip
    assert "| `a` | MAP | 0.620 | 0.700 | 0.750 | +0.130 | +0.050 |" in tuned_table(runs)
    both = [*runs, run_of("b", "pl.1-q-half", 0.2)]
    assert [one.chosen for one in leave_out(both, shipped)] == ["pl.1-q-half"] * 2, "a search is no variant"


def test_marked_candidates_are_shown_as_encode_reads_them():
    plain = run_of("a", "pearson-half", 0.2, test=0.3).model_copy(update={"plain": {"dev": 0.6, "test": 0.75}})
    table = plain_table([plain, run_of("a", "pearson", 0.15, test=0.2)])
    assert "| pearson-half | +0.2000 | +0.1000 | +0.3000 | +0.2500 |" in table
    assert "| pearson (no marks) | +0.1500 | +0.1500 | +0.2000 | +0.2000 |" in table


def test_the_shipped_recipes_have_the_settings_of_the_candidates_that_were_chosen():
    assert {rule.recipe for rule in RULES} == set(SHIPPED)
    runs = read_own_runs("minilm")
    for rule, name in SHIPPED.items():
        settings = next(run.settings for run in runs if run.name == name and run.rule == rule)
        recipe = read_recipe(rule)
        for key, value in settings.items():
            table, _, field = key.rpartition(".")
            assert getattr(getattr(recipe.stages[0], table) if table else recipe, field) == value, (rule, key)


def test_the_page_is_made_of_the_records_that_are_there():
    page = make_page()
    assert left_out_table(read_own_runs("minilm")) in page
    assert all(f"`{case}`" in page for case in CASES)


def test_the_readme_has_the_table_of_the_records():
    readme = (RESULTS.parents[2] / "README.md").read_text(encoding="utf-8")
    shown = readme.split("<!-- own-data table -->")[1].split("<!-- end -->")[0].strip()
    assert shown == own_table("minilm", read_own_runs("minilm"))


def test_records_are_appended_and_read_again(tmp_path):
    runs = [run_of("a", "mse", 0.1), run_of("b", "mse", 0.2)]
    add_runs(runs[:1], "minilm", tmp_path)
    add_runs(runs[1:], "minilm", tmp_path)
    assert read_own_runs("minilm", tmp_path) == runs
    assert read_own_runs("mpnet", tmp_path) == []


def test_queries_stay_whole_when_a_case_is_cut():
    pairs = PairSet.of([f"q{row // 4}" for row in range(40)], [f"r{row}" for row in range(40)])
    cut = cut_by_query(pairs, 10)
    assert len(cut) == 8
    assert all(cut.left.count(left) == 4 for left in cut.left)


@pytest.mark.parametrize("case", ["stsb-yes-no", "cqa-b-search"])
def test_the_rules_and_the_stock_losses_take_a_case_as_a_users_file(case, real_data):
    task = load_case(case)
    assert choose(task).recipe.name == {"stsb-yes-no": "own/labelled", "cqa-b-search": "own/positives"}[case]
    assert set(stock_losses(task)) <= set(STOCK)
    assert not set(task.train.left) & set(task.test.left) or case == "stsb-yes-no"


def made_packages(count):
    """Packages of two sections, with tags that some of them share."""
    return [
        Package(
            ("net", "games")[row % 2], f"summary {row}", f"description {row}", frozenset({f"use::{row % 3}", f"game::{row % 5}"})
        )
        for row in range(count)
    ]


def test_grades_of_packages_are_the_share_of_tags_in_common():
    by_summary = {one.summary: one for one in made_packages(60)}
    found = list(grades(made_packages(60), 30, random.Random(1)))
    assert len(found) == 30 and len({grade for *_, grade in found}) > 1
    for first, second, grade in found:
        one, other = by_summary[first].tags, by_summary[second].tags
        assert first != second and grade == round(5 * sum(tag in other for tag in one) / len(set(one) | set(other)), 1)


def test_packages_are_paired_within_and_across_sections():
    section = {one.text: one.section for one in made_packages(80)}
    found = list(same_section(made_packages(80), 40, random.Random(1)))
    assert {same for *_, same in found} == {"yes", "no"}
    assert all((section[one] == section[other]) == (same == "yes") and one != other for one, other, same in found)


def test_a_description_has_its_own_summary_among_eight_of_its_section():
    packages = made_packages(60)
    owner, section = {one.text: one.summary for one in packages}, {one.summary: one.section for one in packages}
    found = list(answers(packages, 5, random.Random(1)))
    for begin in range(0, 40, 8):
        shown = found[begin : begin + 8]
        assert len({text for text, *_ in shown}) == 1 and len({summary for _, summary, _ in shown}) == 8
        assert [summary for text, summary, right in shown if right] == [owner[shown[0][0]]]
        assert len({section[summary] for _, summary, _ in shown}) == 1


@pytest.mark.parametrize(
    ("case", "recipe"),
    [
        ("packages-search", "own/positives"),
        ("packages-yes-no", "own/labelled"),
        ("senses-answers", "own/answers"),
        ("senses-grades", "own/grades"),
        ("faq-search", "own/positives"),
    ],
)
def test_files_of_debian_are_read_as_a_users(case, recipe):
    maker = packages if case.startswith("packages") else senses
    if not maker.can_read():
        with pytest.raises(UserError, match="on Debian, run apt-get"):
            load_case(case)
        pytest.skip("needs texts that Debian has")
    task = load_case(case)
    assert choose(task).recipe.name == recipe
    assert not set(task.train.left) & set(task.test.left)


WORDNET = """  1 a licence
00000001 03 n 02 dog 0 domestic_dog 0 001 @ 00000009 n 0000 | an animal that barks; "the dog barked all night"; "the dog is brown"
00000002 03 n 01 dog 0 001 @ 00000009 n 0000 | a dull unattractive man; "he is such a sad old dog"
00000009 03 n 01 being 0 000 | what is; a living thing
"""


def test_senses_are_read_with_their_words_definitions_and_sentences(tmp_path, monkeypatch):
    (tmp_path / "data.noun").write_text(WORDNET)
    monkeypatch.setattr(senses, "WORDNET", tmp_path)
    dog, man, being = found = list(senses.read_senses("noun"))
    assert (dog.words, dog.definition) == (("dog", "domestic dog"), "an animal that barks")
    assert dog.examples == ("the dog barked all night", "the dog is brown")
    assert (being.definition, being.above) == ("what is; a living thing", None)
    known = {one.key: one for one in found}
    assert senses.path_up(man, known) == [man.key, being.key]
    pairs = list(senses.same_sense([dog, man], 20, random.Random(1)))
    animal = {f"dog: {text}" for text in dog.examples}
    assert {same for *_, same in pairs} == {0, 1}
    assert all(({first, second} == animal) == bool(same) for first, second, same in pairs)
    near = {frozenset(pair): value for *pair, value in senses.nearness(found, known, 30, random.Random(1))}
    assert near == {  # by hand: depths 2, 2 and 1
        frozenset([dog.definition, man.definition]): 0.5,
        frozenset([dog.definition, being.definition]): 0.67,
        frozenset([man.definition, being.definition]): 0.67,
    }


def test_a_question_has_the_first_paragraphs_of_its_answer():
    answer = "Because B<order> helps to find what you look for.\n\n    code()\n\nSo do it.\n"
    text = f"=head1 A\n\n=head2 Why C<sort>?\nX<sort>\n\n{answer}"
    assert list(senses.read_questions(text)) == [("Why sort?", "Because order helps to find what you look for. So do it.")]


def test_thirds_hold_each_pair_out_once_and_share_no_text():
    pairs = PairSet.of([f"left {row}" for row in range(60)], [f"right {row % 50}" for row in range(60)])
    task = Task("made", "retrieval", pairs.take(range(45)), pairs.take(range(45, 60)), pairs, "HP@1", ("HP@1",))
    held = [hold_out(task, third) for third in THIRDS]
    assert sorted(left for one in held for left in one.dev.left) == sorted(pairs.left)
    for one in held:
        assert not {*one.train.left, *one.train.right} & {*one.dev.left, *one.dev.right}
        assert len(one.train) + len(one.dev) == 60
        assert {*one.dev.corpus} == {*pairs.right}  # searched in all of them
        assert not {*one.train.corpus} & {*one.dev.right}


def test_a_candidate_is_compared_third_by_third_with_what_was_shipped_before():
    runs = [
        *(run_of(case, "old", 0.1, seed=third) for case in "ab" for third in THIRDS),
        *(run_of(case, "new", 0.1 + 0.01 * third, seed=third) for case in "ab" for third in THIRDS),
        run_of("a", "half", 0.05),
    ]
    table = thirds_table(runs, "own/answers", "old")
    assert table.splitlines()[2:] == ["| new | +20 | +20 | +20.0 | 0.0 | 2 |"]  # `half` did not run on b
