"""macOS: a profile for `sandbox-exec`. Written from Apple's own profiles, and not tried on a Mac yet.

It cannot limit memory per server beyond what the shell can, nor tell hosts apart.
"""

from __future__ import annotations

from mcp_workbench.engine.sandbox.resource_limits import limiting
from mcp_workbench.engine.sandbox.sandbox import Capabilities, OnRefused, Sandbox
from mcp_workbench.engine.sandbox.thread_backend import make_private_folders
from mcp_workbench.engine.transport.confinement import UNCONFINED, Launch

SANDBOX_EXEC = "/usr/bin/sandbox-exec"


class SeatbeltBackend:
    name = "seatbelt"

    def trouble(self, machine: Capabilities) -> str | None:
        return None

    def missing(self, sandbox: Sandbox, machine: Capabilities) -> list[str]:
        if sandbox.profile == "off":
            return []
        if not machine.has_seatbelt:
            return ["has no sandbox that the workbench can use"]
        return ["cannot limit its network to hosts"] if isinstance(sandbox.network, tuple) else []

    def keeps_read_only(self) -> bool:
        return True

    def launch(self, sandbox: Sandbox, refused: OnRefused) -> Launch:
        make_private_folders(sandbox)
        if sandbox.profile == "off":
            return Launch(UNCONFINED)
        return Launch(UNCONFINED, (SANDBOX_EXEC, "-p", profile_text(sandbox), *limiting(sandbox)))


def profile_text(sandbox: Sandbox) -> str:
    """The sandbox in the language of `sandbox-exec`. Later rules win."""
    rules = [
        "(version 1)",
        "(allow default)",
        "(deny process-info* (target others))",
        "(deny signal (target others))",
        "(allow signal (target children))",
        "(deny mach-priv* system-privilege)",
    ]
    if sandbox.limits_files:
        read = (*sandbox.read, *sandbox.write)
        rules += [
            "(deny file-read* file-write*)",
            # Names along the way to what is granted.
            "(allow file-read-metadata)",
            '(allow file-read* (literal "/"))',
            *(f"(allow file-read* (subpath {_quoted(path)}))" for path in read),
            *(f"(allow file-write* (subpath {_quoted(path)}))" for path in sandbox.write),
            *(f"(deny file-write* (subpath {_quoted(path)}))" for path in sandbox.read_only),
            '(allow file-read* file-write* (subpath "/dev"))',
            "(deny network* (remote unix-socket))",
            *(f"(allow network-outbound (literal {_quoted(path)}))" for path in sandbox.unix_sockets),
        ]
        if sandbox.network == "none":
            rules.append("(deny network* (remote ip) (local ip))")
    return "\n".join(rules)


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
