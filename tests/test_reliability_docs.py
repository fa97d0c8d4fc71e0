"""docs/reference/reliability.md says what is so: every limit has its value, every bound on moving messages is there,
every text exists, and every test that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from mcp_workbench.engine.transport.http.server.limits import Limits
from scripts.error_texts import error_texts

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "reference" / "reliability.md"
PACKAGE = ROOT / "src" / "mcp_workbench"

UNITS = {"": 1.0, "s": 1.0, "ms": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "%": 0.01}
LIMIT = re.compile(r"^\| [^|]+ \| ([0-9][0-9,.]*) ?(s|ms|KiB|MiB|%)? \| [^|]+ \| `([\w.]+)` \|$", re.MULTILINE)
FAULT = re.compile(r"^\| (\d+) \| (.+?) \| (.+) \| (.+) \|$", re.MULTILINE)

# Where messages are moved and held: each bound there is one that somebody may run into.
ROOMS = (
    "app.serving",
    "engine.downstream",
    "engine.session",
    "engine.transport",
    "sharing",
    "signin",
    "team.identity",
    "team.lock",
    "team.policy",
)
BOUND = re.compile(r"^(MAX_[A-Z_]+|[A-Z_]+_(?:TIMEOUT|INTERVAL|LIMIT|GRACE))(?:: Final)? = ", re.MULTILINE)
# Bounds of how something is done: nobody can notice them.
INNER = {
    "sharing.front.copying.MAX_UNEXAMINED_PIECES": "when what has passed is looked at",
    "team.identity.identity_assertions.MAX_SIGNING_KEY_BYTES": "whether a file is one of ours",
    "team.policy.approval_socket.LOCAL_ANSWER_TIMEOUT": "of our own command",
    "team.policy.approval_socket.MAX_APPROVAL_REQUEST_BYTES": "of our own command",
    "team.policy.approval_socket.MAX_APPROVAL_REPLY_BYTES": "of our own command",
    "signin.secrets.keychain_names.MAX_KEYCHAIN_RECORD_BYTES": "whether a file is one of ours",
    "team.identity.named_keys.MAX_KEY_RECORD_BYTES": "whether a file is one of ours",
    "signin.token_requests.MAX_TOKEN_LIFETIME": "whether a lifetime is one at all",
    "team.policy.rules_in_force.MAX_DECISIONS": "a memory of what was decided before",
    "team.policy.rules_in_force.MAX_ROLES": "a memory of what was decided before",
    "team.policy.rules_in_force.MAX_REMEMBERED_CHARACTERS": "a memory of what was decided before",
    "engine.session.client_name.MAX_NAME_CHARACTERS": "the length of a quotation",
    "engine.transport.http.server.listening.KEEP_ALIVE_INTERVAL": "of packets that the system sends",
    "engine.session.rounds.FIRST_ROUND_INTERVAL": "a pause; all of them together are bounded",
    "engine.session.rounds.MAX_ROUND_INTERVAL": "a pause; all of them together are bounded",
    "engine.transport.http.client.client_connection.MAX_CACHED_HEADER_LENGTH": "a memory of what was written before",
    "engine.transport.http.server.head_cache.MAX_CACHED_HEAD_BYTES": "a memory of what was taken apart before",
    "engine.transport.processes.MAX_KILLED_GENERATIONS": "more than any server starts",
    "sharing.front.joining._FIRST_CHECK_INTERVAL": "when the end of a process is noticed",
    "sharing.front.joining._MAX_CHECK_INTERVAL": "when the end of a process is noticed",
    "engine.transport.pipes.MAX_WRITTEN_AT_ONCE": "what one iteration of the event loop writes",
    "engine.transport.pipes.MAX_WRITE_BUFFERS": "what one system call takes",
    "engine.transport.http.client.response.MAX_INFLATED_BYTES": "what one read may become; together they are a message",
    "engine.transport.http.client.failures.MAX_QUOTED_ERROR_LENGTH": "the length of a quotation",
    "engine.transport.http.client.response_body.STREAM_END_TIMEOUT": "whether a connection is worth keeping",
    "engine.transport.http.client.http_link.LISTEN_FIRST_TIMEOUT": "the order of two requests",
    "engine.transport.http.server.admission.MAX_KNOWN_HOSTS": "a memory of what was compared before",
    "engine.transport.http.server.head_cache.MAX_CACHED_HEADS": "a memory of what was taken apart before",
    "engine.transport.http.client.call_head_cache.MAX_CALL_HEADS": "a memory of what was written before",
    "engine.downstream.quoted_output.MAX_NOISE_LENGTH": "which lines are left out of a quotation",
    "engine.session.session.MAX_LOGGED_LENGTH": "the length of a quotation",
    "sharing.front.tracking.MAX_DECODED_LINE_BYTES": "how an id is found",
    "sharing.front.tracking.MAX_UNEXAMINED_BYTES": "when what has passed is looked at",
    "engine.transport.http.server.listening.MAX_SOCKET_PATH_BYTES": "what the system allows",
    "engine.transport.http.sse.MAX_RETRY_DIGITS": "a number that is read",
}


class Named(NamedTuple):
    """A limit as the document has it."""

    constant: str
    value: float


@cache
def text() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@cache
def limits() -> tuple[Named, ...]:
    return tuple(
        Named(name, float(number.replace(",", "")) * UNITS[unit]) for number, unit, name in LIMIT.findall(text())
    )


def in_the_code(name: str) -> float:
    """The value of `module.CONSTANT`, or of `module.Class.field` as a new object has it."""
    module, _, constant = name.rpartition(".")
    module, _, owner = module.rpartition(".") if module.rpartition(".")[2][0].isupper() else (module, "", "")
    found = import_module(f"mcp_workbench.{module}")
    if not owner:
        return float(getattr(found, constant))
    struct = getattr(found, owner)
    defaults = dict(zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__), strict=False))
    return float(defaults[constant])


def bounds() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        module = ".".join(parts)
        if any(module == room or module.startswith(f"{room}.") for room in ROOMS):
            yield from (".".join((*parts, name)) for name in BOUND.findall(path.read_text(encoding="utf-8")))


@pytest.mark.requirement("project.documentation")
@pytest.mark.parametrize("limit", limits(), ids=lambda limit: limit.constant)
def test_a_limit_is_as_large_as_it_is_said_to_be(limit: Named) -> None:
    assert in_the_code(limit.constant) == pytest.approx(limit.value)


def test_every_bound_that_somebody_may_run_into_is_reported() -> None:
    told = [limit.constant for limit in limits()]
    assert len(told) == len(set(told)) > 60
    fields = [f"engine.transport.http.server.limits.Limits.{field}" for field in Limits.__struct_fields__]
    missing = [name for name in (*bounds(), *fields) if name not in told and name not in INNER]
    assert not missing, "docs/reference/reliability.md lacks\n" + "\n".join(missing)


def test_the_bounds_that_are_left_out_exist() -> None:
    assert set(INNER) <= set(bounds())


def test_every_row_of_a_table_of_limits_is_understood() -> None:
    chapter = text().partition("## Appendix: the limits")[2].partition("\n## ")[0]
    rows = [line for line in chapter.splitlines() if line.startswith("| ") and not line.startswith("| limit |")]
    assert len(rows) == len(limits())


def test_the_rows_of_faults_are_numbered_without_a_gap() -> None:
    numbers = [int(number) for number, *_ in FAULT.findall(text())]
    assert len(numbers) >= 21 and numbers == list(range(1, len(numbers) + 1))


def test_the_texts_that_one_sees_are_texts_of_ours() -> None:
    quoted = re.findall(r"“([^”]+)”", text())
    ours = error_texts()
    assert len(quoted) > 30
    assert not [each for each in quoted if each not in ours]


def test_every_test_that_is_named_exists_and_every_fault_has_one() -> None:
    links = re.findall(r"\]\((\.\./[^)#]+)\)", text())
    assert not [link for link in links if not (DOCUMENT.parent / link).exists()]
    for number, _, _, tests in FAULT.findall(text()):
        assert "../tests/faults/test_" in tests or "../tests/signin/test_" in tests, f"row {number}"


def test_every_file_of_the_fault_suite_is_named() -> None:
    suite = {path.name for path in (ROOT / "tests" / "faults").glob("test_*.py")}
    assert not {name for name in suite if f"tests/faults/{name}" not in text()}
