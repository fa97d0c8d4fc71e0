"""`mcp-workbench auth logout SERVER`: delete a sign-in, and have it revoked if possible."""

from __future__ import annotations

from mcp_workbench.cli.commands.login import record_sign_in, server_at_url
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.downstream.sharing import OWN_USER


def run(parsed: Parsed) -> int:
    access, entry = server_at_url(parsed)

    async def sign_out() -> None:
        target = await access.target(entry, parsed.value("as") or OWN_USER)
        record, is_revoked = await access.sign_ins.sign_out(target)
        if record is not None:
            record_sign_in(access, entry, target, "signed out")
        if record is None:
            remark("note", f"you were not signed in to {entry.name}")
        elif is_revoked:
            print(f"signed out of {entry.name}; the server has revoked the token")
        else:
            print(f"signed out of {entry.name}; the token was deleted on this machine")
            remark(
                "note",
                "the server did not revoke it; you can remove the workbench from the server's list of connected apps",
            )

    access.run(sign_out)
    return 0
