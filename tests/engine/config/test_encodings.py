"""A secret is found however it is written, in one pass over the text."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.config.encodings import SecretFinder
from mcp_workbench.engine.config.redact import MASK, Redactor

SECRETS = st.text(min_size=4, max_size=60).filter(lambda text: not set(text) & set("\ud800\udfff*"))
AROUND = st.binary(max_size=7)


def base64_core(secret: bytes, before: bytes) -> str:
    """The letters of the whole that no other bytes have a share in."""
    text = base64.b64encode(before + secret).decode()
    first = -(-len(before) * 8 // 6)
    return text[first : (len(before) + len(secret)) * 8 // 6]


@pytest.mark.requirement("secrets.redaction")
@given(SECRETS, AROUND, AROUND)
def test_no_encoded_form_of_a_secret_survives(secret: str, before: bytes, after: bytes) -> None:
    redactor = Redactor([secret])
    data = secret.encode(errors="surrogatepass")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        shown = redactor.text("got " + encode(before + data + after).decode() + " back")
        core = base64_core(data, before).translate({} if encode is base64.b64encode else {43: "-", 47: "_"})
        assert core not in shown and MASK in shown
    for text in (quote(secret, safe="", errors="surrogatepass"), quote_plus(secret, errors="surrogatepass")):
        for written in (text, text.replace("%2F", "%2f"), text.lower() if secret == secret.lower() else text):
            assert MASK in redactor.text(f"GET /?key={written}&a=b")
    assert MASK in redactor.text(quote(secret, errors="surrogatepass"))
    assert secret not in redactor.text(f"a {secret} b").replace(MASK, "")


@pytest.mark.parametrize("text", ["p@ss w/rd", "a+b=c&d", "käse/brot", "100%sure", "%25%2F", "back\\slash", '"quoted"'])
def test_any_mixture_of_encoded_and_plain_characters_is_found(text: str) -> None:
    redactor = Redactor([text])
    js = quote(text, safe="!'()*~")
    for written in (text, quote(text), quote(text, safe=""), quote_plus(text), js, quote(text, safe="@:/=&+")):
        assert redactor.text(f"<{written}>") == f"<{MASK}>", written
    for in_json in (json.dumps({"a": text}, ensure_ascii=False), json.dumps({"a": text})):
        assert redactor.text(in_json) == f'{{"a": "{MASK}"}}'
    assert redactor.text(f"<{text}>".replace("/", "\\/")) == f"<{MASK}>"


def test_the_credentials_of_a_client_are_found() -> None:
    pair = f"{quote_plus('my-client')}:{quote_plus('s3cr3t/with+signs')}".encode()
    shown = Redactor(["s3cr3t/with+signs"]).text("Authorization: Basic " + base64.b64encode(pair).decode())
    assert base64.b64encode(pair).decode()[16:] not in shown and shown.endswith(MASK)


def test_the_padding_and_the_last_bits_go_too() -> None:
    for secret in ("hunter2", "hunter22", "hunter222"):
        assert Redactor([secret]).text(base64.b64encode(secret.encode()).decode() + ".") == f"{MASK}."


def test_short_values_are_hidden_only_when_they_are_secrets() -> None:
    assert Redactor(["abc"]).text("abc and YWJj") == f"{MASK} and {MASK}"
    assert Redactor([]).text("YWJj") == "YWJj"


def test_secrets_that_come_later_are_hidden_too() -> None:
    redactor = Redactor(["first-one"])
    assert redactor.text("first-one second-one") == f"{MASK} second-one"
    redactor.add(["second-one"])
    assert redactor.text("first-one second-one") == f"{MASK} {MASK}"


def test_a_place_is_looked_up_once_however_many_secrets_there_are() -> None:
    """Work on the path of every log line does not grow with the number of secrets."""

    class Counting(dict[str, object]):
        lookups = 0

        def __contains__(self, key: object) -> bool:
            Counting.lookups += 1
            return super().__contains__(key)

    text = "an ordinary line of a log, with nothing in it to hide" * 10
    counts = []
    for number in (1, 300):
        finder = SecretFinder([f"token-{index:04}-/{index * 7919}" for index in range(number)])
        finder._by_head = Counting(finder._by_head)  # type: ignore[assignment]
        Counting.lookups = 0
        assert finder.replaced(text, MASK) == text
        counts.append(Counting.lookups)
    assert counts[0] == counts[1] <= len(text)


def test_a_secret_that_is_not_unicode_is_hidden_as_any_other() -> None:
    redactor = Redactor(['caf\udce9"x'])
    assert redactor.text('a caf\udce9"x and caf\udce9\\"x') == f"a {MASK} and {MASK}"
