"""`mcp-workbench up --print-service`: the shared workbench as a user service of systemd or launchd.

Owns the two texts. Installs nothing: where such files belong, and what else is in them, is up to the user.
"""

from __future__ import annotations

import os
import shlex
import sys
from html import escape
from typing import Final

from mcp_workbench.engine.process_context import runtime_folder
from mcp_workbench.sharing.front.joining import WORKBENCH_END_TIMEOUT, log_path

# How long a service manager waits for the workbench to exit: longer than `down`, which reports that it takes too long.
SERVICE_STOP_TIMEOUT: Final = int(WORKBENCH_END_TIMEOUT) + 5

_UNIT = """\
# Save as ~/.config/systemd/user/mcp-workbench.service, then:
#   systemctl --user daemon-reload
#   systemctl --user enable --now mcp-workbench
[Unit]
Description=MCP Workbench, shared by all MCP clients of this user

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Environment=XDG_RUNTIME_DIR=%t
# Calls have a moment to finish, then servers end, and tokens that are being refreshed are waited for.
TimeoutStopSec={seconds}
# `mcp-workbench up --stop` ends it with status 0, `mcp-workbench up --restart` with another one.
Restart=on-failure

[Install]
WantedBy=default.target
"""

_PLIST = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- Save as ~/Library/LaunchAgents/io.mcp-workbench.shared.plist, then:
     launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/io.mcp-workbench.shared.plist -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>io.mcp-workbench.shared</string>
  <key>ProgramArguments</key>
  <array>
{arguments}
  </array>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ExitTimeOut</key>
  <integer>{seconds}</integer>
  <key>StandardErrorPath</key>
  <string>{log}</string>
</dict>
</plist>
"""


def service_text(platform: str = sys.platform) -> str:
    """Return the text for the service manager of this system."""
    command = [sys.executable, "-m", "mcp_workbench", "up", "--foreground"]
    if platform == "darwin":
        arguments = "\n".join(f"    <string>{escape(word)}</string>" for word in command)
        return _PLIST.format(arguments=arguments, seconds=SERVICE_STOP_TIMEOUT, log=escape(log_path()))
    # systemd interprets `%` and `$` in a command line.
    words = shlex.join(command).replace("%", "%%").replace("$", "$$")
    return _unit_for(words)


def _unit_for(command: str) -> str:
    text = _UNIT.format(command=command, seconds=SERVICE_STOP_TIMEOUT)
    if not os.path.dirname(runtime_folder()).startswith("/run/user/"):
        # Without systemd's runtime folder, front ends look elsewhere, so the service must too.
        text = text.replace("Environment=XDG_RUNTIME_DIR=%t\n", "")
    return text
