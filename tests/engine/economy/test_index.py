from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.economy.fields import SearchDocument
from mcp_workbench.engine.economy.index import Index
from mcp_workbench.engine.economy.postings import INDEX_VERSION
from tests.support.examples import examples

CATALOGUE = [
    SearchDocument(
        key="fs/write_file", name="write_file", description="Create or overwrite a file.", server="filesystem"
    ),
    SearchDocument(
        key="fs/read_file", name="read_file", description="Read the contents of a file.", server="filesystem"
    ),
    SearchDocument(
        key="fs/info", name="get_info", description="Tells file size, file date and file owner.", server="filesystem"
    ),
    SearchDocument(key="gh/create_issue", name="create_issue", description="Open a new issue.", server="github"),
    SearchDocument(
        key="gh/list_repos", name="list_repositories", description="List repositories of a user.", server="github"
    ),
    SearchDocument(
        key="mail/send",
        name="send",
        description="Sends it.",
        server="post",
        schema={"properties": {"recipient_address": {"type": "string", "description": "who gets the letter"}}},
    ),
    SearchDocument(key="cn/search", name="bing_search", description="使用必应搜索指定的关键词", server="bing"),
    SearchDocument(
        key="weather", name="getForecast", description="Weather for a city.", server="meteo", toolbox="outdoors"
    ),
]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.build(CATALOGUE, stamp="one")


def best(index: Index, query: str, limit: int = 10) -> list[str]:
    return [hit.key for hit in index.search(query, limit=limit).hits]


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("write file", "fs/write_file"),
        ("overwriting files", "fs/write_file"),
        ("createIssue", "gh/create_issue"),
        ("repository listing", "gh/list_repos"),
        ("recipient address", "mail/send"),
        ("outdoors", "weather"),
        ("github user", "gh/list_repos"),
        ("搜索关键词", "cn/search"),
    ],
)
def test_a_need_finds_its_tool_by_name_text_argument_server_or_toolbox(index: Index, query: str, key: str) -> None:
    assert best(index, query)[0] == key


def test_a_name_that_the_query_spells_out_wins_over_a_text_that_repeats_a_word(index: Index) -> None:
    assert best(index, "read file")[0] == "fs/read_file"


def test_a_name_that_is_all_said_wins_over_one_that_says_more() -> None:
    """However often the other one speaks of it."""
    more = "Closes an issue, or a list of issues; an issue that is closed."
    index = Index.build(
        [
            SearchDocument(key="more", name="close_issue_with_label_and_comment", description=more),
            SearchDocument(key="all", name="close_issue", description="Done."),
        ]
    )
    found = {hit.key: hit.score for hit in index.search("close issue").hits}
    assert found["all"] > 1.3 * found["more"]


def test_synonyms_find_tools_without_the_words(index: Index) -> None:
    assert best(index, "repo")[0] == "gh/list_repos"


def test_a_synonym_counts_less_than_the_word() -> None:
    index = Index.build(
        [SearchDocument(key="other", name="remove_note"), SearchDocument(key="said", name="delete_note")]
    )
    assert best(index, "delete note") == ["said", "other"]


@pytest.mark.parametrize("slip", ["repostiories", "repositoryes", "repossitory"])
def test_a_slip_of_the_pen_is_forgiven(index: Index, slip: str) -> None:
    assert "gh/list_repos" in best(index, slip)


@pytest.mark.parametrize(
    ("query", "key"),
    [("a file system", "one"), ("filesystem", "one"), ("word cloud", "two"), ("wordcloud", "two"), ("To Do", "three")],
)
def test_a_word_in_one_piece_or_in_two_is_the_same(query: str, key: str) -> None:
    made = Index.build(
        [
            SearchDocument("one", "list", "Lists a filesystem."),
            SearchDocument("two", "draw", "Draws a word cloud."),
            SearchDocument("three", "todo_add"),
            SearchDocument("four", "other", "Something else."),
        ]
    )
    assert made.search(query).hits[0].key == key


def test_nothing_is_found_for_unused_words(index: Index) -> None:
    found = index.search("zyzzyva quux", limit=5)
    assert found.hits == ()
    assert found.matched == 0


def test_matched_counts_beyond_the_limit(index: Index) -> None:
    found = index.search("file", limit=1)
    assert len(found.hits) == 1
    assert found.matched == 3


def test_only_tools_within_are_found(index: Index) -> None:
    found = index.search("file", limit=10, within={"fs/read_file"})
    assert [hit.key for hit in found.hits] == ["fs/read_file"]
    assert found.matched == 1


def test_equal_tools_come_in_the_order_of_the_catalogue() -> None:
    index = Index.build([SearchDocument(key=str(number), name="same") for number in range(5)])
    assert best(index, "same") == ["0", "1", "2", "3", "4"]


def test_a_hit_knows_its_place_in_the_catalogue(index: Index) -> None:
    for hit in index.search("file issue forecast", limit=10).hits:
        assert CATALOGUE[hit.position].key == hit.key


def test_an_index_survives_being_written_down(index: Index) -> None:
    again = Index.from_bytes(index.to_bytes())
    assert again is not None
    assert again.stamp == "one"
    for query in ("write file", "repo", "搜索", "misspeling repositores"):
        assert again.search(query) == index.search(query)


def test_the_same_catalogue_gives_the_same_bytes() -> None:
    assert Index.build(CATALOGUE).to_bytes() == Index.build(list(CATALOGUE)).to_bytes()


def test_bytes_of_another_version_are_refused(index: Index) -> None:
    assert (
        Index.from_bytes(index.to_bytes().replace(f"economy-index/{INDEX_VERSION}".encode(), b"economy-index/0"))
        is None
    )


@pytest.mark.parametrize("data", [b"", b"\x00", b"not msgpack", b"\x90", json.dumps({"tag": "x"}).encode()])
def test_bytes_that_are_no_index_are_refused(data: bytes) -> None:
    assert Index.from_bytes(data) is None


@given(st.integers(min_value=0), st.binary(min_size=1, max_size=4))
def test_damaged_bytes_are_refused(position: int, damage: bytes) -> None:
    data = Index.build(CATALOGUE).to_bytes()
    at = position % len(data)
    damaged = data[:at] + damage + data[at + len(damage) :]
    assert (Index.from_bytes(damaged) is None) == (damaged != data)


def test_an_empty_catalogue_finds_nothing() -> None:
    index = Index.build([])
    assert index.search("anything").hits == ()
    again = Index.from_bytes(index.to_bytes())
    assert again is not None
    assert again.keys == []


ENTRIES = st.lists(
    st.builds(
        SearchDocument,
        key=st.text(max_size=5),
        name=st.text(max_size=20),
        description=st.text(max_size=80),
        server=st.text(max_size=8),
        schema=st.sampled_from([b"", b"{", b"[]", b'{"properties":7}', b'{"properties":{"a":{"enum":["x",1]},"b":3}}']),
    ),
    max_size=8,
)


@examples(60)
@given(ENTRIES, st.text(max_size=60), st.integers(min_value=0, max_value=12))
def test_any_catalogue_and_query_give_ordered_hits(entries: Sequence[SearchDocument], query: str, limit: int) -> None:
    found = Index.build(entries).search(query, limit=limit)
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    assert len(found.hits) == min(limit, found.matched)
    assert len({hit.position for hit in found.hits}) == len(found.hits)


def test_a_pasted_page_is_cut_to_a_query(index: Index) -> None:
    assert best(index, "file " + "word " * 100_000)[0].startswith("fs/")


def test_a_contracted_word_does_not_match_a_code_that_ends_in_its_letter() -> None:
    entries = [SearchDocument(key="k", name="list_k8s_resources"), SearchDocument(key="w", name="get_weather")]
    assert [hit.key for hit in Index.build(entries).search("what's the weather").hits] == ["w"]
    assert [hit.key for hit in Index.build(entries).search("kubernetes resources").hits] == ["k"]


def test_a_tool_that_has_one_common_word_of_the_need_is_a_weak_match() -> None:
    entries = [SearchDocument(key=f"c{number}", name=f"create_thing{chr(97 + number)}") for number in range(20)]
    entries += [
        SearchDocument(key="i", name="close_ticket"),
        SearchDocument(key="r", name="read_file", description="Reads a file."),
    ]
    index = Index.build(entries)
    assert all(hit.is_weak for hit in index.search("create an issue").hits)
    assert not index.search("read a file").hits[0].is_weak
    assert not index.search("close ticket").hits[0].is_weak
    assert not index.search("ticket").hits[0].is_weak


DESK = [
    SearchDocument(
        key="list", name="list_notes", title="List notes", description="List the notes, or those with a tag."
    ),
    SearchDocument(
        key="search", name="search_notes", description="Find the notes that contain every word of the query."
    ),
    SearchDocument(
        key="add", name="add_note", title="Add note", description="Add a note and return it with its number."
    ),
    SearchDocument(key="delete", name="delete_note", description="Delete the note with this number and return it."),
    SearchDocument(key="convert", name="convert_time", description="Convert a local time from one zone to another."),
    SearchDocument(key="now", name="now", description="The current date and time in a zone."),
]


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("write something down", "add"),
        ("save a reminder", "add"),
        ("remember this", "add"),
        ("jot down an idea", "add"),
        ("throw away the memo", "delete"),
        ("look for what I wrote", "search"),
    ],
)
def test_everyday_words_find_tools_with_technical_names(said: str, key: str) -> None:
    assert best(Index.build(DESK), said)[0] == key


def test_an_everyday_word_counts_less_where_a_tool_has_it() -> None:
    known = [*DESK, SearchDocument(key="own", name="remember_fact", description="Remembers a fact.")]
    assert best(Index.build(known), "remember this")[:2] == ["own", "add"]


@pytest.mark.parametrize(
    ("said", "key"),
    [("create note", "add"), ("show notes", "list"), ("remove notes", "delete"), ("make a note", "add")],
)
def test_of_tools_for_the_same_thing_the_one_with_the_action_that_is_asked_for_wins(said: str, key: str) -> None:
    first = Index.build(DESK).search(said).hits[0]
    assert first.key == key and not first.is_weak


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("create note", "add_note"),
        ("create a new note", "add_note"),
        ("add entity", "create_entities"),
        ("create directory", "create_directory"),
    ],
)
def test_what_is_acted_on_decides_more_than_the_action(said: str, name: str) -> None:
    """Among tools that have the word for the action, of published servers."""
    others = {
        "create_directory": "Create a new directory or ensure a directory exists.",
        "create_entities": "Create multiple new entities in the knowledge graph",
        "create_relations": "Create multiple new relations between entities in the knowledge graph.",
        "git_create_branch": "Creates a new branch from an optional base branch",
        "git_add": "Adds file contents to the staging area",
        "delete_entities": "Delete multiple entities and their associated relations from the knowledge graph",
    }
    documents = [SearchDocument(key=each, name=each, description=text) for each, text in others.items()]
    found = Index.build([*documents, *(msgspec.structs.replace(each, key=each.name) for each in DESK)]).search(said)
    assert found.hits[0].key == name and not found.hits[0].is_weak


def test_a_question_asks_how_things_are_now_and_changes_nothing() -> None:
    assert best(Index.build(DESK), "what time is it")[:2] == ["now", "convert"]
    assert best(Index.build(DESK), "convert the time")[0] == "convert"


def test_actions_of_a_whole_task_do_not_decide() -> None:
    index = Index.build(DESK)
    task = "notes: create alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu"
    assert best(index, task)[0] == "list" != best(index, "notes: create")[0]


@pytest.mark.parametrize("quotes", ['""', "\u201c\u201d", "''", "\u300c\u300d"])
def test_quoted_text_counts_less(quotes: str) -> None:
    entries = [SearchDocument(key="w", name="weather_report"), SearchDocument(key="m", name="send_message")]
    index = Index.build(entries)
    assert best(index, "message: weather report")[0] == "w"
    assert best(index, f"message: {quotes[0]}weather report{quotes[1]}") == ["m", "w"]
    # Everything is quoted: it is the need itself.
    assert best(index, f"{quotes[0]}weather report{quotes[1]}") == ["w"]
    assert best(index, "it's the user's weather report")[0] == "w"


def test_words_of_conversation_count_less_than_those_of_the_need() -> None:
    entries = [
        SearchDocument(key="h", name="help"),
        SearchDocument(key="w", name="weather", description="Help for it."),
    ]
    entries += [SearchDocument(key=f"o{number}", name=f"other{chr(97 + number)}") for number in range(5)]
    assert best(Index.build(entries), "can you help me with the weather")[0] == "w"
    assert best(Index.build(entries), "help")[0] == "h"


def test_a_chinese_particle_next_to_a_word_counts_little() -> None:
    entries = [
        SearchDocument(key="noise", name="a", description="我的文件的"),
        SearchDocument(key="weather", name="b", description="天气预报"),
        SearchDocument(key="apply", name="c", description="提交申请"),
    ]
    assert best(Index.build(entries), "请告诉我的天气")[0] == "weather"
    # Alone, a pair with such a character is all there is to go by.
    assert best(Index.build(entries), "申请") == ["apply"]
