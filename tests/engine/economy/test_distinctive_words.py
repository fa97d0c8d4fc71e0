from __future__ import annotations

from mcp_workbench.engine.economy.distinctive_words import distinctive_words
from mcp_workbench.engine.economy.fields import SearchDocument


def entries(*texts: tuple[str, str]) -> list[SearchDocument]:
    return [SearchDocument(key=name, name=name, description=text) for name, text in texts]


GROUPS = {
    "code": entries(("create_pull_request", "Opens a pull request."), ("mergePullRequests", "Merges a pull request.")),
    "mail": entries(("send_message", "Sends a message to a recipient."), ("create_folder", "Makes a mailbox folder.")),
    "disk": entries(("create_folder", "Makes a folder."), ("read_file", "Reads a file.")),
}


def test_words_that_only_one_group_has_come_first() -> None:
    words = distinctive_words(GROUPS)
    assert set([*words["code"]][:2]) == {"pull", "request"}
    assert [*words["mail"]].index("message") < [*words["mail"]].index("folder")
    assert words["mail"]["message"] > words["mail"]["folder"] > 0


def test_a_word_is_chosen_for_the_tools_that_the_words_before_it_do_not_cover() -> None:
    pages = [(f"{verb}_page_browser", "") for verb in ("open", "close", "save", "print")]
    groups = {"web": entries(*pages, ("take_screenshot", "")), "disk": entries(("close_file", ""), ("save_file", ""))}
    first, second, third, *_ = distinctive_words(groups)["web"]
    assert {first, second} == {"browser", "page"}
    assert third in ("take", "screenshot"), "not a verb of pages, which are covered"


def test_a_word_that_tools_of_others_use_in_their_descriptions_is_no_sign() -> None:
    one = entries(("draw_canvas", ""), ("paint_document", ""))
    others = entries(*((f"office{number}", "Opens it. Reads a document.") for number in range(9)))
    words = distinctive_words({"art": one, "office": others})["art"]
    assert words["canvas"] > words["document"]


def test_words_come_as_people_wrote_them() -> None:
    words = distinctive_words({"a": entries(("list_repositories", "Lists repositories.")), "b": entries(("x", ""))})
    assert "repositories" in words["a"]


def test_words_of_the_name_are_not_repeated() -> None:
    words = distinctive_words({"other": GROUPS["mail"], "pull-requests": GROUPS["code"]})
    assert not {"pull", "request", "requests"} & set(words["pull-requests"])


def test_there_are_at_most_as_many_as_asked_for() -> None:
    assert all(len(words) <= 2 for words in distinctive_words(GROUPS, most=2).values())


def test_characters_of_one_word_are_not_taken_apart_again_and_again() -> None:
    group = entries(("a", "游戏王卡牌"), ("b", "游戏王卡牌的图片"))
    words = distinctive_words({"cards": group, "other": entries(("x", "y"))})["cards"]
    characters = [character for word in words for character in word]
    assert len(characters) == len(set(characters))


def test_no_groups_and_empty_groups_are_fine() -> None:
    assert distinctive_words({}) == {}
    assert distinctive_words({"empty": []}) == {"empty": {}}
