"""The estimate of tokens against counts of o200k_base, which were made once (`bench/context/tokenizer.py`)."""

from __future__ import annotations

import json

import pytest

from mcp_workbench.engine.economy.tokens import BYTES_PER_TOKEN, bytes_of_tokens, estimated_tokens

TOLERANCE = 0.15
CITIES = ("Wien", "Graz", "Linz")
ITEMS = [
    {"id": n, "name": f"Item {n}", "price": n * 1.5, "tags": ["new", "sale"], "available": n % 2 == 0}
    for n in range(40)
]
CSV = "id,date,city,amount,currency\n" + "".join(
    f"{1000 + n},2026-{n % 12 + 1:02}-{n % 28 + 1:02},{CITIES[n % 3]},{n * 37.25:.2f},EUR\n" for n in range(60)
)
LOG = "".join(
    f"2026-11-18T{n % 24:02}:{n * 7 % 60:02}:{n * 13 % 60:02}.{n * 31 % 1000:03}Z INFO [worker-{n % 4}] "
    f"GET /api/v1/orders/{10_000 + n * 17} 200 {n * 3 + 5}ms\n"
    for n in range(50)
)
HTML = "".join(
    f'  <li id="row-{n}"><a href="/items/{n}?page=2">Item {n}</a> <span class="price">{n}.99</span></li>\n'
    for n in range(40)
)
ENGLISH = (
    "The workbench keeps what a server answered, so that an agent can read on where it stopped. It never calls the "
    "tool again for that, because a call may have had effects, and nobody wants to pay for an order twice. "
)
GERMAN = (
    "Die Werkbank bewahrt auf, was ein Server geantwortet hat, damit ein Agent dort weiterlesen kann, wo er aufgehört "
    "hat. Sie ruft das Werkzeug dafür nie ein zweites Mal auf, denn ein Aufruf kann Folgen gehabt haben. "
)
CHINESE = (
    "工作台会保存服务器的回答，这样代理就可以从停下的地方继续阅读。"
    "它不会为此再次调用工具，因为一次调用可能已经产生了影响。"
)
KOREAN = (
    "작업대는 서버가 답한 내용을 보관하여 에이전트가 멈춘 곳에서 계속 읽을 수 있게 합니다. "
    "호출이 이미 영향을 미쳤을 수 있으므로 이를 위해 도구를 다시 호출하지 않습니다. "
)
HINDI = (
    "आज मौसम अच्छा है और समुद्र शांत है। जहाज हर सुबह आठ बजे बंदरगाह से निकलते हैं और टिकट घाट पर तथा इंटरनेट पर मिलते हैं। "
    "यात्रियों को एक घंटा पहले आना चाहिए। "
)
MACHINE_WRITTEN = {
    "csv": (CSV, 1122),
    "log": (LOG, 1800),
    "json": (json.dumps(ITEMS), 1441),
    "json in lines": (json.dumps(ITEMS, indent=2), 2002),
    "html": (HTML, 1560),
}
PROSE = {
    "english": (ENGLISH * 8, 377),
    "german": (GERMAN * 8, 401),
    "chinese": (CHINESE * 8, 288),
    "korean": (KOREAN * 8, 386),
}


@pytest.mark.parametrize(
    ("text", "counted"), [*MACHINE_WRITTEN.values(), *PROSE.values()], ids=[*MACHINE_WRITTEN, *PROSE]
)
def test_the_estimate_is_close_to_a_count(text: str, counted: int) -> None:
    assert abs(estimated_tokens(text.encode()) / counted - 1) < TOLERANCE


def test_letters_of_south_asia_are_not_counted_as_chinese_characters() -> None:
    assert estimated_tokens((HINDI * 8).encode()) < 1.4 * 369


@pytest.mark.parametrize(("text", "counted"), MACHINE_WRITTEN.values(), ids=MACHINE_WRITTEN)
def test_so_many_bytes_of_a_text_take_the_budget(text: str, counted: int) -> None:
    """Where four bytes a token would take half as much again."""
    written = text.encode()
    assert counted * BYTES_PER_TOKEN > 1.3 * len(written)
    assert abs(bytes_of_tokens(counted, written) / len(written) - 1) < TOLERANCE + 0.03


def test_a_long_text_is_counted_like_its_parts() -> None:
    long = LOG.encode() * 40
    assert abs(estimated_tokens(long) / (40 * estimated_tokens(LOG.encode())) - 1) < 0.01
