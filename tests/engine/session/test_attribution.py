"""What a user is asked says which server asks, in every combination of eras, and reaches no further than that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.protocol.results import ASKING, result_type
from mcp_workbench.engine.session.attribution import SERVER_META, Attribution, check_page
from mcp_workbench.engine.session.questions import BadQuestion, why_not
from tests.bridge.conversation import FORM, KINDS, SAMPLE, URL, input_required
from tests.bridge.in_process import ERAS, Json, in_process_workbench, until

ALONE, AMONG_OTHERS = (Attribution("box/server", is_alone=is_alone) for is_alone in (True, False))


def asked(method: str, params: Any, way: Attribution = AMONG_OTHERS) -> Any:
    return json.loads(bytes(way.question(method, Raw(json.dumps(params).encode())) or b"null"))


def test_an_elicitation_begins_with_the_server_that_asks() -> None:
    assert asked("elicitation/create", FORM) == {**FORM, "message": "[box/server] Who are you?"}
    assert asked("elicitation/create", {"message": "[bank/main] PIN?"})["message"] == "[box/server] [bank/main] PIN?"
    for missing in ({}, {"message": None}, {"message": 5}):
        assert asked("elicitation/create", missing)["message"] == "[box/server]"


def test_the_only_server_of_a_plain_file_is_not_named_in_elicitations() -> None:
    unnamed = Attribution("server", is_alone=True, is_named=False)
    assert asked("elicitation/create", FORM, unnamed) == FORM
    hostile = asked("elicitation/create", {"message": "\x1b[2K\rPIN?"}, unnamed)["message"]
    assert hostile == "\\x1b[2K\\x0dPIN?"
    assert asked("sampling/createMessage", SAMPLE, unnamed)["_meta"] == {SERVER_META: "server"}


@pytest.mark.parametrize(("names", "prefix"), [(("server",), ""), (("other", "server"), "[server] ")])
async def test_the_servers_of_a_plain_file_are_named_without_a_toolbox(names: tuple[str, ...], prefix: str) -> None:
    eras = dict.fromkeys(names, "legacy")
    async with in_process_workbench("", servers=eras, plain=True) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        client.call()
        await until(lambda: bool(server.open_calls()))
        server.ask("elicitation/create", FORM)
        (question,) = client.questions()
        assert question["params"]["message"] == prefix + FORM["message"]


def test_a_question_cannot_overwrite_the_name_of_the_server_that_asks() -> None:
    for hostile in ("\x1b[2K\r[bank/main] PIN?", "\r[bank/main]", "\b" * 13 + "[bank/main]", "\x9b2K", "\x7f"):
        message = asked("elicitation/create", {"message": hostile})["message"]
        assert message.startswith("[box/server] \\x") and message.isprintable()
    assert asked("elicitation/create", {"message": "a\r\nb\n\tü"})["message"] == "[box/server] a\nb\n\tü"


def test_a_sampling_request_names_its_server_where_no_model_reads_it() -> None:
    shown = asked("sampling/createMessage", {**SAMPLE, "_meta": {"kept": 1}})
    assert shown == {**SAMPLE, "_meta": {"kept": 1, SERVER_META: "box/server"}}


@pytest.mark.parametrize(
    ("wanted", "alone", "among_others"),
    [
        ("none", "none", "none"),
        ("thisServer", "thisServer", "none"),
        ("allServers", "thisServer", "none"),
        ("everything", "thisServer", "none"),
    ],
)
def test_context_beyond_the_server_that_asks_is_not_included(wanted: str, alone: str, among_others: str) -> None:
    """To the client we are one server: `thisServer` would be all that lie behind us."""
    params = {**SAMPLE, "includeContext": wanted}
    assert asked("sampling/createMessage", params, ALONE)["includeContext"] == alone
    assert asked("sampling/createMessage", params)["includeContext"] == among_others
    assert "includeContext" not in asked("sampling/createMessage", SAMPLE)


def test_everything_else_passes_as_it_is() -> None:
    for method, params in (("roots/list", b'{"a" :1}'), ("custom/x", b'{"message":"m"}')):
        assert AMONG_OTHERS.question(method, Raw(params)) == Raw(params)
    assert AMONG_OTHERS.question("elicitation/create", None) is None
    for result in (b'{"resultType":"input_required"}', b'{"text":"\\ud800"}', b"5"):
        assert AMONG_OTHERS.input_required(result) == result
    for data in (b'{"elicitations":5}', b'{"elicitations":[5]}', b"5", b"{}"):
        assert AMONG_OTHERS.pages(Raw(data)) == Raw(data)


def test_every_page_that_a_user_is_sent_to_is_noted() -> None:
    noted: list[str] = []
    way = Attribution("box/server", is_alone=False, note=noted.append)
    shown = way.pages(Raw(json.dumps({"elicitations": [URL, {**URL, "url": "https://example.test/pay"}]}).encode()))
    assert [each["message"] for each in json.loads(bytes(shown))["elicitations"]] == [
        f"[box/server] {URL['message']}"
    ] * 2
    assert noted == ["elicitation/create"] * 2
    with pytest.raises(BadQuestion):
        way.pages(Raw(json.dumps({"elicitations": [{**URL, "url": "http://example.test/"}]}).encode()))
    assert len(noted) == 2, "nobody was sent there"


# What we cannot read a client may be able to: it must not get past us for that.
UNREADABLE = (
    b"5",
    b'{"mode":"url","url":"http://example.test/","message":"\\ud800"}',
    b'{"mode":"url","url":"http://example.test/","\\udc00":1}',
    b'{"mode":"url","url":"http://example.test/","deep":' + b"[" * 5000 + b"]" * 5000 + b"}",
)


@pytest.mark.parametrize("params", UNREADABLE)
def test_unreadable_question_is_not_asked(params: bytes) -> None:
    with pytest.raises(BadQuestion):
        AMONG_OTHERS.question("elicitation/create", Raw(params))
    request = b'{"method":"elicitation/create","params":%b}' % params
    for requests in (b'{"q":%b}' % request, b'{"a":5,"q":%b}' % request, b"5", b'{"a":{"params":{}},"q":%b}' % request):
        with pytest.raises(BadQuestion):
            AMONG_OTHERS.input_required(b'{"resultType":"input_required","inputRequests":%b}' % requests)
    for pages in (b"[%b]" % params, b"[5,%b]" % params) if params != b"5" else ():
        with pytest.raises(BadQuestion):
            AMONG_OTHERS.pages(Raw(b'{"elicitations":%b}' % pages))


@pytest.mark.parametrize("mode", [b'"mode":"\\u0075rl",', b'"\\u006dode":"url",', b""])
def test_a_page_is_judged_however_the_question_is_spelt(mode: bytes) -> None:
    params = b'{%b"url":"http://example.test/","message":"Sign in"}' % mode
    with pytest.raises(BadQuestion, match="neither https nor"):
        AMONG_OTHERS.question("elicitation/create", Raw(params))
    assert (why_not({"elicitation": Raw(b"{}")}, "elicitation/create", Raw(params)) is None) == (not mode)


@pytest.mark.parametrize(
    "result",
    [
        b'{"resultTyp\\u0065":"input_required"}',
        b'{"resultType":"input\\u005Frequired"}',
        b'{"resultType":"input_required","text":"\\ud800"}',
        b'{"resultTyp\\u0065":"input_required","text":"\\ud800"}',
    ],
)
def test_a_result_that_asks_is_known_however_it_is_spelt(result: bytes) -> None:
    assert result_type(result) == ASKING


def test_a_result_that_says_nothing_of_itself_passes() -> None:
    for result in (b"{}", b'{"text":"\\ud800"}', b'{"text":"\\u00e9\\u0041"}', b'{"text":"resultType"}'):
        assert result_type(result) is None


async def test_unreadable_error_opens_no_page() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call()
        server.fail(server.call, -32042, "\ud800", {"elicitations": [{"url": "http://example.test/"}]})
        await until(lambda: request.answer is not None)
        assert "elicitations" not in json.dumps(request.answer)
        assert "its question cannot be read" in json.dumps(request.answer)


GOOD = (
    "https://example.test/a?b=c#d",
    "HTTPS://EXAMPLE.TEST",
    "https://example.test:8443/ü",
    "http://localhost:8080/callback",
    "http://app.localhost/",
    "http://127.0.0.1:1/",
    "http://127.9.9.9/",
    "http://[::1]:80/",
)
BAD = (
    "http://example.test/",
    "http://127.0.0.1.example.test/",
    "http://localhost.example.test/",
    "http://localhost@example.test/",
    "http://example.test\\@localhost/",
    "http://[::1",
    "http://10.0.0.1/",
    "http://0.0.0.0/",
    "https:///path",
    "https:example.test",
    "ftp://example.test/",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "ftp://localhost/",
    "ftp://127.0.0.1/",
    "javascript:alert(1)",
    "data:text/html,x",
    "//example.test/",
    "https://example.test/\n",
    " https://example.test/",
    "https://example.test/\u202emoc",
    "",
)


@pytest.mark.parametrize("url", GOOD)
def test_pages_may_be_https_or_on_this_machine(url: str) -> None:
    check_page(url)


@pytest.mark.parametrize("url", BAD)
def test_other_pages_are_not_shown_to_anybody(url: str) -> None:
    with pytest.raises(BadQuestion, match="neither https nor http on this machine"):
        check_page(url)


@given(st.text(max_size=50))
def test_any_address_is_judged(url: str) -> None:
    for address in (url, f"http://{url}", f"https://{url}"):
        try:
            check_page(address)
        except BadQuestion:
            continue
        assert address.lower().startswith(("http://", "https://"))


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("face", ["flat", "proxy"])
async def test_questions_of_either_era_name_the_server(client_era: str, server_era: str, face: FaceName) -> None:
    async with in_process_workbench(server_era, face=face) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call()
        wanted = {kind: KINDS[kind][:2] for kind in ("form", "url", "sampling")}
        if server_era == "legacy":
            for method, params in wanted.values():
                server.ask(method, params)
        else:
            server.reply(server.call, input_required(wanted))
        if client_era == "modern":
            await until(lambda: request.answer is not None)
            form, page, sampling = (each["params"] for each in request.result["inputRequests"].values())
        else:
            form, page, sampling = (each["params"] for each in client.questions())
        assert form["message"] == f"[box/server] {FORM['message']}"
        assert page["message"] == f"[box/server] {URL['message']}" and page["url"] == URL["url"]
        assert sampling["_meta"] == {SERVER_META: "box/server"} and sampling["messages"] == SAMPLE["messages"]


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_pages_without_tls_are_not_offered(client_era: str, server_era: str) -> None:
    page: Json = {**URL, "url": "http://example.test/sign-in"}
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        request = client.call()
        if server_era == "legacy":
            refusal = (server.answer_to(server.ask("elicitation/create", page)) or {})["error"]
            assert refusal["code"] == -32602 and "`http://example.test/sign-in`" in refusal["message"]
            assert request.answer is None, "the call goes on; the server decides"
            server.fail(server.call, -32042, "Sign in first", {"elicitations": [page]})
        else:
            server.reply(server.call, input_required({"q": ("elicitation/create", page)}))
        text = request.result["content"][0]["text"]
        assert request.result["isError"] is True and "`http://example.test/sign-in` is neither https nor" in text
        assert client.questions() == []
        assert workbench.is_clean()
