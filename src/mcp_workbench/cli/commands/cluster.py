"""`mcp-workbench team cluster`: the instances of a cluster and their state server; the key that they share."""

from __future__ import annotations

import os
import time

from msgspec import to_builtins

from mcp_workbench.cli.error_output import FAILED_STATUS, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import Part, stdout
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cluster.examination import ClusterReport, InstanceFacts
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.errors import ConfigError


def run(parsed: Parsed) -> int:
    if parsed.positional(0) == "key":
        from mcp_workbench.cluster.seal import new_key

        # Alone on stdout, so that it can be redirected into a file.
        print(new_key())
        remark("note", "give this key to all instances, in a file that only they can read")
        return 0
    config = configuration(parsed)
    redactor = log_for(parsed, config)
    if config.cluster is None:
        raise ConfigError(f"`{config.path}` has no `cluster`", hint="mcp-workbench help scaling says how to set one up")
    report = examined(config, redactor)
    screen = stdout()
    if parsed.has("json"):
        screen.json(to_builtins(report))
    else:
        _show(report)
        screen.flush()
        for text, hint in report.problems:
            remark("warning", text, hint)
    return FAILED_STATUS if report.problems else 0


def examined(config: WorkbenchConfig, redactor: Redactor) -> ClusterReport:
    """Look at the cluster of a configuration. Raises `ConfigError`."""
    from mcp_workbench.app.http_callers import fetch_password
    from mcp_workbench.cluster.examination import examine

    assert config.cluster is not None
    password = fetch_password(config, redactor, lambda text: remark("warning", text))
    return run_loop(examine(config.cluster, os.path.dirname(config.path), password))


def _show(report: ClusterReport) -> None:
    screen = stdout()
    if report.server is not None:
        latency = f"{1000 * (report.latency_seconds or 0):.1f} ms"
        used = f"{(report.used_bytes or 0) / 1024 / 1024:.1f} MiB"
        screen.line(f"state: {report.server} at {report.state}, {latency}, {used}")
    if not report.instances:
        screen.line("no instance is running")
        return
    rows: list[list[Part]] = [_row(each) for each in report.instances]
    screen.table(["instance", "host", "version", "users", "sessions", "calls", "up"], rows)


def _row(each: InstanceFacts) -> list[Part]:
    up = max(0, int(time.time() - each.started_at))
    shown = f"{up // 3600}:{up // 60 % 60:02}:{up % 60:02}"
    return [
        (each.address or each.instance, "name"),
        each.host,
        each.version,
        str(each.users),
        str(each.sessions),
        str(each.calls),
        shown,
    ]
