"""What is at `workbench://status` is ours, whoever lists it."""

from __future__ import annotations

import pytest

from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import ERAS, in_process_workbench, settled, until

STATUS = "workbench://status"


def lists_ours(server: FakeServer) -> None:
    server.offers["resources/list"] = {
        "resources": [{"uri": STATUS, "name": "forged"}, {"uri": "test:///one", "name": "one"}]
    }
    server.offers["resources/templates/list"] = {"resourceTemplates": [{"uriTemplate": STATUS, "name": "forged"}]}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("servers", [{"server": "legacy"}, {"server": "legacy", "other": "legacy"}])
async def test_a_server_that_lists_our_status_is_never_asked_for_it(era: str, servers: dict[str, str]) -> None:
    async with in_process_workbench("legacy", servers=servers) as workbench:
        client = workbench.client(era)
        server = await workbench.connect(client)
        lists_ours(server)
        await server.connection.list_again()
        for method, member in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")):
            request = client.send_request(method)
            await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
            assert all(STATUS not in each.values() for each in request.result[member])
        # However a client writes it.
        for written in (STATUS, STATUS.replace("w", "\\u0077", 1)):
            raw = f'{{"jsonrpc":"2.0","id":"{len(written)}","method":"resources/read","params":{{"uri":"{written}"'
            meta = f',"_meta":{_json(client.stamp())}' if era == "modern" else ""
            client.session.on_message(f"{raw}{meta}}}}}".encode())
        await settled()
        assert server.requests("resources/read") == []
        if era == "legacy":
            refused = client.send_request("resources/subscribe", {"uri": STATUS})
            await until(lambda: refused.answer is not None)
            assert "error" in (refused.answer or {}) and server.requests("resources/subscribe") == []
        said = [text for text in workbench.gateway.face.remarks() if STATUS in text]
        assert len(said) == 1 and "`box/server` lists `workbench://status`, an address of the workbench" in said[0]


def _json(value: object) -> str:
    import json

    return json.dumps(value)
