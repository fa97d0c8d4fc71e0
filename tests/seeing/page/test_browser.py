"""The page in a real browser, in front of an API that is told what to answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.seeing.page import page_examples
from tests.seeing.page.browser import NARROW, WIDE, opened
from tests.seeing.page.scripted_api import ScriptedApi
from tests.support.packages import Unavailable, node_packages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.processes

AXE = "axe-core@4.10.3"
VIEWS = ("waiting", "live", "tools", "servers", "tokens", "audit", "connect")
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
BIDI = "pay \u202e001\u202c euro"


@pytest.fixture(autouse=True)
def _no_process_left_behind(_orphans_come_to_us: None) -> None:
    """The browser starts and ends processes as it likes, during any test: `chromium` looks for those that are left."""


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    now = time.time()
    with ScriptedApi(page_examples.state(now)) as scripted:
        scripted.answers = page_examples.answers(now)
        scripted.earlier = [("calls", page_examples.calls(now))]
        yield scripted


@pytest.fixture
def page(browser: Browser, api: ScriptedApi) -> Iterator[Page]:
    with opened(browser, api.address) as (page, wrong):
        page.get_by_text("May it run?").wait_for()
        yield page
        assert wrong == []


def show(page: Page, view: str) -> None:
    page.locator(f"nav a[href='#{view}']").click()
    page.locator(f"#view-{view} h1").wait_for()


def approval(page: Page) -> Any:
    return page.get_by_role("article", name="May it run? dev/github/merge_pull_request")


def test_approval_shows_the_whole_call(page: Page) -> None:
    text = approval(page).inner_text()

    assert '"delete_branch": true' in text
    assert "claude-code 2.1 asks for ada" in text
    assert "policy[2]" in text


def test_long_call_is_shown_whole_on_request(page: Page, api: ScriptedApi) -> None:
    whole = json.dumps({"text": "x" * 100_000 + "the end"})
    api.answers["GET /api/approval"] = (200, {"arguments": whole})
    first, *others = api.state["waiting"]
    api.change(waiting=[{**first, "arguments": whole[:4000] + "… and 96,018 characters more", "rest": "kept"}, *others])
    approval(page).get_by_role("button", name="Show the whole call").click()
    approval(page).get_by_text("the end").wait_for()

    assert page.locator(":focus").get_attribute("aria-label") == "Arguments of the call"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_call_that_was_not_kept_whole_says_so(page: Page, api: ScriptedApi) -> None:
    first, *others = api.state["waiting"]
    api.change(waiting=[{**first, "rest": "lost"}, *others])
    approval(page).get_by_text("nobody can see the rest").wait_for()

    assert approval(page).get_by_role("button", name="Show the whole call").count() == 0


@pytest.mark.parametrize(
    ("label", "decision"), [("Allow once", "once"), ("Allow for an hour", "hour"), ("Deny", "deny")]
)
def test_decision_is_posted_once(page: Page, api: ScriptedApi, label: str, decision: str) -> None:
    approval(page).get_by_role("button", name=label).click()
    approval(page).get_by_role("alert").filter(has_text=re.compile("Allowed|Denied")).wait_for()

    assert api.posted == [("/api/approve", {"id": "a1", "decision": decision})]


@pytest.mark.parametrize(
    ("label", "key", "decision", "said"),
    [
        ("Allow once", "Enter", "once", "Allowed once."),
        ("Allow for an hour", "Space", "hour", "Allowed for an hour."),
        ("Deny", "Enter", "deny", "Denied."),
    ],
)
def test_keyboard_alone_decides_and_goes_on_with_the_next_card(
    page: Page, api: ScriptedApi, label: str, key: str, decision: str, said: str
) -> None:
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.locator(":focus").inner_text() == label:
            break
    page.keyboard.press(key)
    approval(page).get_by_text(said).wait_for()
    api.change(waiting=api.state["waiting"][1:])
    approval(page).wait_for(state="detached")

    assert api.posted == [("/api/approve", {"id": "a1", "decision": decision})]
    assert page.locator(":focus").inner_text() == "Sign in"
    assert page.title() == "(3) MCP Workbench"


def test_second_decision_names_the_first_decider(page: Page, api: ScriptedApi) -> None:
    api.answers["POST /api/approve"] = (409, {"error": "Already denied by grace.", "by": "grace"})
    approval(page).get_by_role("button", name="Allow once").click()

    approval(page).get_by_text("Already denied by grace.").wait_for()


def test_sign_in_offers_the_address(page: Page, api: ScriptedApi) -> None:
    card = page.get_by_role("article", name="Sign in office/calendar")
    card.get_by_role("button", name="Sign in").click()

    link = card.get_by_role("link", name="Continue at accounts.example.com")
    assert link.get_attribute("href") == "https://accounts.example.com/authorize?state=1"
    assert api.posted == [("/api/sign-in", {"toolbox": "office", "server": "calendar"})]


def test_address_that_is_no_web_address_is_not_a_link(page: Page, api: ScriptedApi) -> None:
    api.answers["POST /api/sign-in"] = (200, {"url": "javascript:alert(1)"})
    card = page.get_by_role("article", name="Sign in office/calendar")
    card.get_by_role("button", name="Sign in").click()

    card.get_by_text("javascript:alert(1)").wait_for()
    assert card.get_by_role("link").count() == 0


def test_changed_definition_is_shown_side_by_side_and_accepted(page: Page, api: ScriptedApi) -> None:
    card = page.get_by_role("article", name="Changed description dev/github/create_issue")

    assert "id_ed25519" in card.locator("ins").inner_text()
    assert "id_ed25519" not in card.locator("del").inner_text()
    card.get_by_role("button", name="Accept the change").click()
    card.get_by_text("Accepted.").wait_for()
    assert api.posted == [("/api/lock/accept", {"toolbox": "dev", "server": "github", "item": "create_issue"})]


def test_change_that_is_read_from_the_lock_is_fetched(page: Page, api: ScriptedApi) -> None:
    changed = {"toolbox": "dev", "server": "github", "what": "tool: changed"}
    fetched = {**changed, "before": '{"a": 1}', "after": '{"a": 2}', "warnings": ["It mentions a secret."]}
    api.answers["GET /api/lock"] = (
        200,
        {"changes": [{**fetched, "item": "other", "hash": "1"}, {**fetched, "item": "push_files", "hash": "2"}]},
    )
    item = {"kind": "definition", "item": "push_files", "before": None, "after": None}
    api.change(waiting=[*api.state["waiting"], {**changed, **item}])
    card = page.get_by_role("article", name="tool: changed dev/github/push_files")
    card.get_by_text("It mentions a secret.").wait_for()

    assert card.locator("ins").inner_text().strip() == '"a": 2'
    card.get_by_role("button", name="Accept the change").click()
    card.get_by_text("Accepted.").wait_for()
    wanted = {"toolbox": "dev", "server": "github", "item": "push_files", "seen": "2"}
    assert api.posted == [("/api/lock/accept", wanted)]


def test_change_that_has_changed_again_is_shown_again(page: Page, api: ScriptedApi) -> None:
    changed = {"toolbox": "dev", "server": "github", "what": "tool: changed", "item": "push_files"}
    api.answers["GET /api/lock"] = (200, {"changes": [{**changed, "before": '{"a": 1}', "after": '{"a": 2}'}]})
    api.change(waiting=[*api.state["waiting"], {**changed, "kind": "definition", "before": None, "after": None}])
    card = page.get_by_role("article", name="tool: changed dev/github/push_files")
    card.get_by_text('"a": 2').wait_for()
    api.answers["GET /api/lock"] = (200, {"changes": [{**changed, "before": '{"a": 1}', "after": '{"a": 3}'}]})
    api.answers["POST /api/lock/accept"] = (409, {"error": "this has changed again"})
    card.get_by_role("button", name="Accept the change").click()

    card.get_by_text("this has changed again").wait_for()
    card.get_by_text('"a": 3').wait_for()


def test_crashed_server_has_cause_next_step_and_its_last_lines(page: Page, api: ScriptedApi) -> None:
    card = page.get_by_role("article", name="Not running data/postgres")

    assert page_examples.CAUSE.capitalize() in card.inner_text()
    assert "KeyError: 'DATABASE_URL'" in card.inner_text()
    card.get_by_role("button", name="Show the server").click()
    page.get_by_role("region", name="data/postgres").get_by_role("button", name="Restart").click()
    page.get_by_text("Asked to restart.").wait_for()
    assert api.posted == [("/api/server", {"toolbox": "data", "server": "postgres", "do": "restart"})]


def test_rejected_configuration_is_named_with_its_mistake(page: Page, api: ScriptedApi) -> None:
    place = {"kind": "notice", "server": "/home/ada/config.json"}
    wrong = {**place, "what": "Not in force", "why": "it has changed", "lines": ["$.policy: wrong"]}
    api.change(waiting=[wrong, {**place, "id": "lock", "what": "No lock", "why": "none", "next": "Make `one`."}])
    card = page.get_by_role("article", name="Not in force /home/ada/config.json")
    card.get_by_role("group", name="What is wrong").get_by_text("$.policy: wrong").wait_for()

    page.get_by_role("article", name="No lock").get_by_text("one", exact=True).wait_for()
    assert page.locator("main button:visible").count() == 0


def test_messages_begin_like_sentences_and_what_can_be_typed_stays_as_it_is(page: Page, api: ScriptedApi) -> None:
    notice = {"kind": "notice", "server": "s", "what": "No lock", "why": "it has changed", "next": "`one` makes one"}
    api.change(waiting=[notice])
    card = page.get_by_role("article", name="No lock")
    card.get_by_text("It has changed", exact=True).wait_for()
    card.get_by_text("one makes one", exact=True).wait_for()


def test_nothing_waiting_says_so(page: Page, api: ScriptedApi) -> None:
    api.change(waiting=[])

    page.get_by_text("Nothing is waiting for you.").wait_for()
    assert page.title() == "MCP Workbench"


def test_figures_of_no_servers_are_not_said_to_be_hidden(page: Page, api: ScriptedApi) -> None:
    api.state["servers"] = []
    api.push("state", api.state)

    page.get_by_text("0 of 0").wait_for()
    assert page.get_by_text("not shown to you").count() == 0


def test_call_appears_as_it_begins_and_ends_in_the_same_row(page: Page, api: ScriptedApi) -> None:
    show(page, "live")
    begun = {**page_examples.calls(time.time())[0], "id": 99, "item": "fresh_tool", "state": "sent", "seconds": None}
    api.push("calls", [{**begun, "end": ""}])
    row = page.locator(".calls button").filter(has_text="fresh_tool")
    row.get_by_text("running").wait_for()
    api.push("calls", [{**begun, "state": "ended", "seconds": 1.25, "end": "tool_error"}])
    row.get_by_text("tool error").wait_for()

    assert row.count() == 1
    assert "1.3 s" in row.inner_text()


def test_filter_leaves_matching_calls(page: Page) -> None:
    show(page, "live")
    page.get_by_label("Filter calls").fill("cursor push")
    page.locator(".calls li").filter(has_text="run_query").first.wait_for(state="detached")

    rows = page.locator(".calls li").all_inner_texts()
    assert rows
    assert all("push_files" in row and "cursor" in row for row in rows)


def test_try_again_fills_the_form_and_sends_nothing(page: Page, api: ScriptedApi) -> None:
    show(page, "live")
    page.locator(".calls [data-key='20']").click()
    page.get_by_text("422 Reference does not exist").wait_for()
    page.get_by_role("button", name="Try again…").click()
    editor = page.get_by_label("Arguments as JSON")
    editor.wait_for()

    assert json.loads(editor.input_value())["branch"] == "fix-cart"
    assert api.posted == []


def test_try_again_sends_no_placeholder_of_a_secret(page: Page, api: ScriptedApi) -> None:
    api.answers["GET /api/calls/20"] = (200, {"arguments": '{"title": "a", "priority": "***"}', "kept": "masked"})
    show(page, "live")
    page.locator(".calls [data-key='20']").click()
    page.get_by_role("group", name="Arguments").wait_for()
    page.get_by_role("button", name="Try again…").click()
    page.get_by_text("was hidden when the call was recorded").wait_for()
    pane = page.locator("#view-tools .pane")
    pane.get_by_role("button", name="Call the tool").click()
    pane.get_by_text("Replace each *** first").wait_for()
    assert api.posted == []
    pane.get_by_label("Arguments as JSON").fill('{"title": "a", "priority": "urgent"}')
    pane.get_by_role("button", name="Call the tool").click()
    pane.get_by_text("Created issue #483.").wait_for()

    assert api.posted[-1][1]["arguments"] == {"title": "a", "priority": "urgent"}


@pytest.mark.parametrize(
    ("arguments", "kept", "said"),
    [
        ('{"title": "a\n…(cut, 70,000 bytes)', "cut", "too long to be kept whole"),
        ('{"title": "string of 1"}', "shape", "The arguments were not kept"),
        (None, "none", "The arguments were not kept"),
    ],
)
def test_try_again_leaves_the_form_empty_without_the_arguments(
    page: Page, api: ScriptedApi, arguments: str | None, kept: str, said: str
) -> None:
    api.answers["GET /api/calls/20"] = (200, {"arguments": arguments, "result": "{}", "kept": kept})
    show(page, "live")
    page.locator(".calls [data-key='20']").click()
    page.get_by_role("heading", name="Result").wait_for()
    page.get_by_role("button", name="Try again…").click()
    page.get_by_text(said).wait_for()

    written = page.locator("#view-tools .pane textarea").evaluate_all("all => all.map((each) => each.value)")
    assert not any("cut" in each or "string of" in each for each in written)


def test_call_that_is_not_kept_says_so(page: Page, api: ScriptedApi) -> None:
    api.answers["GET /api/calls/21"] = (404, {"error": "this call is not kept"})
    show(page, "live")
    page.locator(".calls [data-key='21']").click()

    page.get_by_text("this call is not kept").wait_for()
    page.keyboard.press("Escape")
    assert page.locator(".calls [data-key='21']:focus").count() == 1


def open_form(page: Page, name: str = "create_issue") -> Any:
    show(page, "tools")
    page.locator(".items-list button").filter(has_text=name).click()
    return page.get_by_role("region", name=name)


def test_form_sends_enum_nested_array_reference_and_default(page: Page, api: ScriptedApi) -> None:
    form = open_form(page)
    form.get_by_label("title").fill("Cart is empty")
    form.get_by_role("button", name="Add an item to labels").click()
    form.get_by_label("labels 1").fill("bug")
    form.get_by_role("button", name="Add an item to labels").click()
    form.get_by_label("labels 2").fill("cart")
    form.get_by_label("milestone").fill("9007199254740993")
    form.get_by_role("button", name="Add assignee").click()
    form.get_by_label("login").fill("grace")
    form.get_by_role("button", name="Add team").click()
    form.get_by_label("name").last.fill("shop")
    form.get_by_label("extra").fill('{"points": 3}')
    form.get_by_role("button", name="Call the tool").click()
    answer = form.get_by_text("Created issue #483.")
    answer.wait_for()
    box = answer.bounding_box()
    assert box is not None and box["y"] + box["height"] <= WIDE["height"], "it is seen below a long form"

    (path, body) = api.posted[-1]
    assert (path, body["name"], body["confirmed"]) == ("/api/call", "create_issue", False)
    assert body["arguments"] == {
        "title": "Cart is empty",
        "priority": "normal",
        "labels": ["bug", "cart"],
        "milestone": 9007199254740993,
        "assignee": {"login": "grace", "team": {"name": "shop"}},
        "draft": False,
        "extra": {"points": 3},
    }


def test_form_names_mistakes_and_sends_nothing(page: Page, api: ScriptedApi) -> None:
    form = open_form(page)
    form.get_by_label("milestone").fill("soon")
    form.get_by_role("button", name="Call the tool").click()

    form.get_by_text("milestone: is not a number").wait_for()
    assert form.get_by_label("milestone").get_attribute("aria-invalid") == "true"
    assert api.posted == []


def test_form_and_json_show_the_same_arguments(page: Page) -> None:
    form = open_form(page)
    form.get_by_label("title").fill("one")
    form.get_by_role("button", name="JSON").click()
    editor = form.get_by_label("Arguments as JSON")
    assert json.loads(editor.input_value()) == {"title": "one", "priority": "normal", "draft": False}
    editor.fill('{"title": "two", "priority": "urgent", "labels": ["a"]}')
    form.get_by_role("button", name="Form").click()

    assert form.get_by_label("title").input_value() == "two"
    assert form.get_by_label("labels 1").input_value() == "a"
    form.get_by_role("button", name="JSON").click()
    editor.fill('{"title": "two", "priority": "urgent", "unknown": 1}')
    form.get_by_role("button", name="Form").click()
    form.get_by_text("they stay as JSON").wait_for()


def test_destructive_tool_is_called_only_after_confirmation(page: Page, api: ScriptedApi) -> None:
    answer = api.answers["POST /api/call"]
    api.answers["POST /api/call"] = (428, {"error": "It may destroy something.", "confirm": True})
    form = open_form(page, "merge_pull_request")
    form.get_by_role("button", name="Call the tool").click()
    form.get_by_text("It may destroy something.").wait_for()
    api.answers["POST /api/call"] = answer
    form.get_by_role("button", name="Call it").click()
    form.get_by_text("Created issue #483.").wait_for()

    assert [body["confirmed"] for _, body in api.posted] == [False, True]


def test_search_finds_tools_of_all_servers(page: Page) -> None:
    show(page, "tools")
    page.get_by_label("Search tools").fill("query")
    page.get_by_text("2 items").wait_for()

    rows = page.locator(".items-list li").all_inner_texts()
    assert [("search_issues" in row, "run_query" in row) for row in rows] == [(False, True), (True, False)]


def test_tools_are_listed_again_when_a_toolbox_has_changed(page: Page, api: ScriptedApi) -> None:
    show(page, "tools")
    # The first event after a view was shown has it loaded in any case.
    api.change(waiting=[])
    page.locator(".count").first.wait_for(state="hidden")
    page.get_by_text("10 items").wait_for()
    status, listed = api.answers["GET /api/tools"]
    api.answers["GET /api/tools"] = (status, {"items": [*listed["items"], {**listed["items"][0], "name": "new_tool"}]})
    api.change(toolboxes=[{**box, "tools": box["tools"] + 1} for box in api.state["toolboxes"]])

    page.locator(".items-list li").filter(has_text="new_tool").wait_for()


def test_servers_show_state_cause_and_unmeasured_figures(page: Page) -> None:
    show(page, "servers")
    failed, unused = (page.locator(".servers li").filter(has_text=name).inner_text() for name in ("postgres", "sentry"))

    assert "failed" in failed and page_examples.CAUSE.capitalize() in failed
    assert "unused" in unused and re.search(r"–\s+p95", unused)
    assert "since" in page.locator("#view-servers .note").inner_text()


def test_server_has_plots_and_its_log_goes_on(page: Page, api: ScriptedApi) -> None:
    show(page, "servers")
    page.locator(".servers button").filter(has_text="github").click()
    page.get_by_role("img", name=re.compile("Latency.*2,160 calls")).wait_for()
    page.get_by_role("img", name=re.compile("Calls over the day.*p50 210 ms, p95 840 ms since")).wait_for()
    page.get_by_role("img", name=re.compile("Memory over the day.*while this page is open")).wait_for()
    api.push("log", {"toolbox": "dev", "server": "filesystem", "line": "a line of another server"})
    api.push("log", {"toolbox": "dev", "server": "github", "line": "a line that came later"})
    page.get_by_role("log").get_by_text("a line that came later").wait_for()

    assert "another server" not in page.get_by_role("log").inner_text()


def test_another_server_is_shown_in_place_of_the_first(page: Page, api: ScriptedApi) -> None:
    show(page, "servers")
    page.locator(".servers button").filter(has_text="github").click()
    page.get_by_role("region", name="dev/github").get_by_text("2,160").first.wait_for()
    page.locator(".servers button").filter(has_text="warehouse").click()
    pane = page.get_by_role("region", name="data/warehouse")
    calls = pane.locator(".facts > div").filter(has_text="Calls")
    calls.get_by_text("88").wait_for()
    servers = [{**row, "calls": 89} if row["server"] == "warehouse" else row for row in api.state["servers"]]
    api.change(servers=servers)

    calls.get_by_text("89").wait_for()
    api.push("log", {"toolbox": "data", "server": "warehouse", "line": "a line of the second"})
    page.get_by_role("log").get_by_text("a line of the second").wait_for()


def test_running_call_that_is_looked_at_after_another_is_shown_when_it_ends(page: Page, api: ScriptedApi) -> None:
    show(page, "live")
    running = {**page_examples.calls(time.time())[0], "id": 99, "item": "slow_tool", "state": "sent", "seconds": None}
    api.push("calls", [{**running, "end": ""}])
    page.locator(".calls [data-key='20']").click()
    page.get_by_text("422 Reference does not exist").wait_for()
    api.answers["GET /api/calls/99"] = (200, {"arguments": '{"slow": true}', "result": None})
    page.locator(".calls button").filter(has_text="slow_tool").click()
    page.get_by_text("The result is shown when it has ended.").wait_for()
    page.get_by_role("group", name="Arguments").get_by_text('"slow": true').wait_for()
    api.answers["GET /api/calls/99"] = (200, {"arguments": '{"slow": true}', "result": '{"done": 1}'})
    api.push("calls", [{**running, "state": "ended", "seconds": 1.25, "end": "ok"}])

    page.get_by_role("group", name="Result").get_by_text('"done": 1').wait_for()


def refused(*decisions: str | None) -> dict[str, Any]:
    hosts = [{"host": f"host-{n}.com", "count": n, "decision": each} for n, each in enumerate(decisions, 1)]
    return {"hosts": hosts, "setting": '"network": ["host-1.com"]'}


def test_refused_host_waits_and_is_allowed_or_kept_refused(page: Page, api: ScriptedApi) -> None:
    place = {"toolbox": "dev", "server": "github"}
    item = {"kind": "hosts", **place, "why": "", **refused("", "")}
    api.change(waiting=[*api.state["waiting"], item])
    card = page.get_by_role("article", name="Refused hosts dev/github")
    card.get_by_role("button", name="Allow this host: host-1.com").click()
    card.get_by_text("Allowed until the workbench ends.").wait_for()
    card.get_by_role("button", name="Keep refusing: host-2.com").click()
    card.get_by_text("It stays refused.").wait_for()

    assert [body for _, body in api.posted] == [
        {**place, "host": "host-1.com", "decision": "allow"},
        {**place, "host": "host-2.com", "decision": "refuse"},
    ]
    assert '"network": ["host-1.com"]' in card.inner_text()


def test_decision_about_a_host_is_shown_with_its_server_and_can_be_changed(page: Page, api: ScriptedApi) -> None:
    servers = [{**row, "refused": refused("allow", "refuse", None)} if row["server"] == "github" else row
               for row in api.state["servers"]]  # fmt: skip
    api.change(servers=servers)
    show(page, "servers")
    page.locator(".servers button").filter(has_text="github").click()
    rows = page.get_by_role("region", name="dev/github").locator(".hosts li")
    rows.first.wait_for()

    assert "Allowed until the workbench ends." in rows.nth(0).inner_text()
    assert rows.nth(0).get_by_role("button").all_inner_texts() == ["Keep refusing"]
    assert rows.nth(1).get_by_role("button").all_inner_texts() == ["Allow this host"]
    assert rows.nth(2).get_by_role("button").count() == 0, "a host that cannot be allowed"


def test_others_see_no_controls_no_log_and_no_figures_of_all(browser: Browser, api: ScriptedApi) -> None:
    api.state["you"] = {"principal": "guest", "isOwner": False}
    for server in api.state["servers"]:
        server |= dict.fromkeys(("calls", "errors", "denied", "running", "p50", "p95", "memory"))
    status, details = api.answers["GET /api/server"]
    api.answers["GET /api/server"] = (status, {**details, **dict.fromkeys(("histogram", "day", "dayTimes"))})
    with opened(browser, api.address) as (page, _):
        show(page, "servers")
        page.locator(".servers button").filter(has_text="github").click()
        page.get_by_text("Figures are of all users, and not shown to you.").wait_for()

        assert page.get_by_role("button", name="Restart").count() == 0
        assert page.get_by_role("log").count() == 0
        # Not that there are none.
        assert page.get_by_text(re.compile("no calls|nothing yet|(Counted|Figures) since|0 calls")).count() == 0


@pytest.mark.parametrize(
    ("verified", "said"), [(True, "Chain verified"), (False, "Chain broken"), (None, "Chain not verified")]
)
def test_audit_says_whether_the_chain_holds(page: Page, api: ScriptedApi, verified: bool | None, said: str) -> None:
    status, body = api.answers["GET /api/audit"]
    api.answers["GET /api/audit"] = (status, {**body, "verified": verified})
    show(page, "audit")

    page.get_by_text(said, exact=True).wait_for()
    assert page.locator(".audit li").count() == 26


def test_older_audit_lines_follow_those_that_were_seen(page: Page, api: ScriptedApi) -> None:
    status, body = api.answers["GET /api/audit"]
    lines, numbers = body["lines"], [each["number"] for each in body["lines"]]
    api.answers["GET /api/audit"] = (status, {**body, "lines": lines[20:], "more": True, "from": "20,3"})
    show(page, "audit")
    page.get_by_text("Chain verified", exact=True).wait_for()
    older = {"lines": lines[:20], "verified": None, "why": "", "more": False, "from": "0,0"}
    api.answers["GET /api/audit"] = (status, older)
    with page.expect_request(re.compile("from=20%2C3")):
        page.get_by_role("button", name="Older lines").click()
    page.locator(".audit li").nth(len(lines) - 1).wait_for()

    shown = page.locator(".audit button").evaluate_all("all => all.map((each) => each.dataset.key)")
    assert shown == [str(each) for each in reversed(numbers)]
    assert page.get_by_text("Chain verified", exact=True).count() == 1
    assert page.get_by_role("button", name="Older lines").count() == 0


def test_audit_names_lines_that_are_no_calls(page: Page, api: ScriptedApi) -> None:
    stamp = {"time": "2026-11-19T14:28:24.816Z"}
    why = {"decision": "applied", "reason": "the lock file has changed"}
    lines = [{"number": 1, **stamp, "kind": "audit", "event": "started"}]
    lines += [{"number": 2, **stamp, "kind": "configuration", **why}]
    api.answers["GET /api/audit"] = (200, {"lines": lines, "verified": None, "why": "run `this`", "more": False})
    show(page, "audit")
    page.get_by_text("Chain not verified. Run this").wait_for()

    rows = page.locator(".audit button").all_inner_texts()
    assert "the lock file has changed" in rows[0] and "configuration" in rows[0] and "audit started" in rows[1]


def test_change_of_an_item_known_by_hash_is_not_reported_as_new(page: Page, api: ScriptedApi) -> None:
    changed = {"toolbox": "dev", "server": "github", "what": "tool: changed", "item": "push_files"}
    fetched = {**changed, "before": None, "isKnown": False, "after": '{"a": 2}'}
    api.answers["GET /api/lock"] = (200, {"changes": [fetched]})
    api.change(waiting=[*api.state["waiting"], {**changed, "kind": "definition", "before": None, "after": None}])
    card = page.get_by_role("article", name="tool: changed dev/github/push_files")
    card.get_by_text("Only its hash is known.").wait_for()

    assert card.get_by_text("nothing", exact=True).count() == 0 and card.locator("ins").count() == 0


def test_tokens_of_servers_that_are_not_listed_are_no_zeros(page: Page, api: ScriptedApi) -> None:
    status, found = api.answers["GET /api/tokens"]
    boxes = [{"name": "dev", "full": None, "shown": None, "saved": None}]
    told = {**found, "full": None, "saved": None, "unlisted": 2, "perToolbox": boxes, "over": []}
    api.answers["GET /api/tokens"] = (status, told)
    show(page, "tokens")
    page.get_by_text("Not counted: 2 servers not listed yet.").wait_for()

    assert "–" in page.locator(".toolboxes li").inner_text()
    assert page.locator("#view-tokens").get_by_text(re.compile(r"\b0\b")).count() == 0


def test_bars_of_tokens_are_in_proportion(page: Page, api: ScriptedApi) -> None:
    status, found = api.answers["GET /api/tokens"]
    boxes = [{"name": "dev", "full": 400, "shown": 800, "saved": None}]
    api.answers["GET /api/tokens"] = (status, {**found, "perToolbox": boxes})
    show(page, "tokens")
    page.get_by_text("800 opened").wait_for()

    assert [bar.get_attribute("width") for bar in page.locator(".toolboxes rect").all()] == ["50", "100"]


def test_number_of_tools_says_that_servers_are_not_listed(browser: Browser, api: ScriptedApi) -> None:
    dev, data, *_ = api.state["toolboxes"]
    api.change(toolboxes=[dev, {**data, "unlisted": 2}])
    with opened(browser, api.address) as (page, wrong):
        page.get_by_text("2 servers not listed yet").wait_for()
        api.change(toolboxes=[dev, data])
        page.get_by_text("in 2 toolboxes").wait_for()
        assert wrong == []


def test_clients_to_connect_are_filtered(page: Page) -> None:
    show(page, "connect")
    page.get_by_role("article", name="Claude Code").wait_for()
    page.get_by_label("Filter clients").fill("curs")
    page.get_by_role("article", name="Claude Code").wait_for(state="hidden")

    assert page.locator("#view-connect article:visible").count() == 1


def test_tokens_and_connect_views_show_their_data(page: Page) -> None:
    show(page, "tokens")
    page.get_by_text("31,200").wait_for()
    page.get_by_role("img", name=re.compile("Saved over the day.*since")).wait_for()
    rows = page.locator(".toolboxes li").all_inner_texts()
    assert len(rows) > 1 and all(re.search(r"as a flat list[^$]*opened[^$]*tokens saved since", row) for row in rows)
    show(page, "connect")
    page.get_by_text("~/.cursor/mcp.json").wait_for()


def test_lost_connection_is_shown_and_typed_text_survives_it(browser: Browser, api: ScriptedApi) -> None:
    with ScriptedApi(page_examples.state()) as first:
        first.answers = page_examples.answers()
        with opened(browser, first.address) as (page, wrong):
            open_form(page).get_by_label("title").fill("half a sen")
            first.__exit__()
            page.get_by_text("Connection lost.").wait_for()
            state = {**page_examples.state(), "since": time.time(), "waiting": []}
            with ScriptedApi({**state, "workbench": {**state["workbench"], "pid": 9}}, first.port) as second:
                second.answers = page_examples.answers()
                page.get_by_text("Connection lost.").wait_for(state="detached")

                assert (
                    page.get_by_role("region", name="create_issue").get_by_label("title").input_value() == "half a sen"
                )
                page.locator(".count").first.wait_for(state="hidden")
        assert wrong == []


def test_expired_session_names_the_command_and_goes_on_after_sign_in(page: Page, api: ScriptedApi) -> None:
    form = open_form(page)
    form.get_by_label("title").fill("half a sen")
    api.is_signed_in = False
    form.get_by_role("button", name="Call the tool").click()
    banner = page.locator("#connection")
    banner.get_by_text("mcp-workbench page").wait_for()

    assert form.get_by_label("title").input_value() == "half a sen"
    api.is_signed_in = True
    banner.locator("p").wait_for(state="detached")


def hostile(api: ScriptedApi) -> None:
    state = api.state
    for number, item in enumerate([*state["servers"], *state["waiting"], *state["toolboxes"]]):
        for name, value in item.items():
            if isinstance(value, str) and name not in ("kind", "state", "id"):
                item[name] = f"{HOSTILE}{BIDI}{number}"
    state["waiting"][0]["arguments"] = json.dumps({HOSTILE: [HOSTILE, BIDI, "x" * 2**20]})
    api.earlier = [
        (name, [{**call, "item": HOSTILE + BIDI, "client": HOSTILE} for call in calls]) for name, calls in api.earlier
    ]
    bad = {
        "type": "object",
        "properties": {
            HOSTILE: {"type": "string", "description": HOSTILE, "default": BIDI},
            "__proto__": {"type": "string"},
        },
    }
    tools = [
        {
            "kind": "tool",
            "toolbox": HOSTILE,
            "server": HOSTILE,
            "name": f"{HOSTILE}{number}",
            "title": HOSTILE,
            "description": HOSTILE,
            "tokens": 1,
            "inputSchema": bad,
        }
        for number in range(2)
    ]
    api.answers["GET /api/tools"] = (200, {"items": tools})
    api.answers["GET /api/server"] = (
        200,
        {**page_examples.server_details(time.time()), "log": [HOSTILE, BIDI, "y" * 2**20]},
    )
    api.answers["GET /api/calls/28"] = (
        200,
        {
            "arguments": HOSTILE,
            "result": json.dumps(
                {
                    "content": [
                        {"type": "text", "text": HOSTILE},
                        {"type": "image", "mimeType": "image/svg+xml", "data": "x"},
                    ]
                }
            ),
        },
    )
    api.answers["GET /api/connect"] = (
        200,
        [{"client": HOSTILE, "title": HOSTILE, "how": "file", "text": HOSTILE, "path": HOSTILE}],
    )


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["390", "1280"])
def test_hostile_texts_stay_texts(browser: Browser, api: ScriptedApi, size: dict[str, int]) -> None:
    hostile(api)
    with opened(browser, api.address, viewport=size) as (page, wrong):
        page.get_by_text("May it run?").wait_for()
        for view in VIEWS:
            show(page, view)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
            opening = page.locator(f"#view-{view} .rows button")
            if opening.count():
                opening.first.click()
                page.locator(f"#view-{view} .pane h2").wait_for()
                assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{view}, opened"
        page.locator(".log div").nth(2).wait_for(state="attached")
        page.locator("#view-connect article").wait_for()

        assert page.locator("main img, main script, main iframe").count() == 0
        body = page.locator("body").inner_text()
        assert "\u202e" not in page.locator("main").text_content()  # type: ignore[operator]
        assert HOSTILE in body
        show(page, "waiting")
        assert "\\u{202e}001" in page.locator("main").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["390", "1280"])
def test_no_view_scrolls_sideways_or_fails_axe(
    browser: Browser, api: ScriptedApi, size: dict[str, int], scheme: str
) -> None:
    try:
        axe = node_packages([AXE]) / "node_modules" / "axe-core" / "axe.min.js"
    except Unavailable as missing:
        pytest.skip(str(missing))
    findings = {}
    place = {"kind": "notice", "server": "/home/ada/" + "long" * 40 + "/config.json", "what": "Not in force"}
    api.state["waiting"].append({**place, "why": "it has changed", "lines": ["$.policy: wrong"], "next": "Correct it."})
    with opened(browser, api.address, viewport=size, color_scheme=scheme, bypass_csp=True) as (page, _):
        page.get_by_text("May it run?").wait_for()
        page.add_script_tag(path=axe)
        for view in VIEWS:
            show(page, view)
            if view in ("live", "tools", "servers"):
                page.locator(f"#view-{view} .rows button").nth(1).click()
                page.locator(f"#view-{view} .pane h2").wait_for()
            found = page.evaluate("axe.run().then((result) => result.violations)")
            findings[view] = [
                (rule["id"], rule["nodes"][0]["target"]) for rule in found if rule["impact"] in ("serious", "critical")
            ]
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
    assert findings == {view: [] for view in VIEWS}
