"""Demo server `clock`: the time in any zone, conversion between zones, and a wait that shows progress and cancellation.

Run as `python -m mcp_workbench.cli.demo.clock [--with-crash]`; with the flag, a tool more crashes on request, to show
recovery. `datetime` and `zoneinfo` are imported when first needed.
"""

from __future__ import annotations

import os
import sys

from mcp_workbench.cli.demo.stdio_server import Server, ToolError, object_schema, usage_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from mcp_workbench.cli.demo.stdio_server import Json, Outcome, Request

CLOCK_USAGE = "usage: python -m mcp_workbench.cli.demo.clock [--with-crash]"
CRASH_STATUS = 70
MAX_DEMO_WAIT = 300
# Often enough to show progress, without flooding the client.
WAIT_STEPS = 10

ZONE = {"type": "string", "minLength": 1, "description": "IANA name such as Europe/Vienna"}
MOMENT = object_schema(
    {
        "time": {"type": "string", "format": "date-time"},
        "zone": {"type": "string"},
        "weekday": {"type": "string"},
        "utc_offset_hours": {"type": "number"},
    }
)
CONVERSION = object_schema({"from": MOMENT, "to": MOMENT, "difference_hours": {"type": "number"}})
WAITED = object_schema({"seconds": {"type": "number"}})

server = Server("clock", "Demo clock", "Tells the time anywhere, converts between zones, and waits.")


def zone_named(name: str) -> tzinfo:
    import zoneinfo
    from datetime import UTC

    if name == "UTC":
        # Available even without a time zone database.
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        import difflib

        known = zoneinfo.available_timezones()
        if not known:
            raise ToolError("this machine has no time zone database; install the package `tzdata`") from None
        # The demo servers import nothing of the workbench, not even its own `nearest`.
        nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(nearest)}?" if nearest else "use an IANA name such as Europe/Vienna"
        raise ToolError(f"unknown time zone `{name}`; {hint}") from None


def offset_hours(moment: datetime) -> float:
    offset = moment.utcoffset()
    return 0.0 if offset is None else offset.total_seconds() / 3600


def described(moment: datetime, zone: str) -> Json:
    return {
        "time": moment.isoformat(timespec="seconds"),
        "zone": zone,
        "weekday": moment.strftime("%A"),
        "utc_offset_hours": offset_hours(moment),
    }


@server.tool("The current date and time in a zone (UTC if none is named).", {"zone": ZONE}, output=MOMENT)
def now(request: Request, zone: str = "UTC") -> Outcome:
    from datetime import datetime

    moment = described(datetime.now(zone_named(zone)), zone)
    return f"{moment['weekday']}, {moment['time']} ({zone})", moment


@server.tool(
    "Convert a local time from one zone to another.",
    {
        "time": {"type": "string", "minLength": 1, "description": "ISO 8601, or HH:MM for today"},
        "from_zone": ZONE,
        "to_zone": ZONE,
    },
    required=("time", "from_zone", "to_zone"),
    output=CONVERSION,
)
def convert_time(request: Request, time: str, from_zone: str, to_zone: str) -> Outcome:
    from datetime import datetime

    source, target = zone_named(from_zone), zone_named(to_zone)
    text = time if "-" in time else f"{datetime.now(source).date().isoformat()}T{time}"
    try:
        # An offset in the text would repeat or contradict `from_zone`, which takes precedence.
        local = datetime.fromisoformat(text).replace(tzinfo=source)
        converted = local.astimezone(target)
    except (ValueError, OverflowError):
        raise ToolError(f"cannot read the time `{time}`; write 2025-03-01T09:30 or 09:30") from None
    difference = offset_hours(converted) - offset_hours(local)
    result: Json = {
        "from": described(local, from_zone),
        "to": described(converted, to_zone),
        "difference_hours": difference,
    }
    return f"{result['from']['time']} ({from_zone}) is {result['to']['time']} ({to_zone})", result


@server.tool(
    f"Wait for some seconds (at most {MAX_DEMO_WAIT}), reporting progress; can be cancelled.",
    {"seconds": {"type": "number", "minimum": 0, "maximum": MAX_DEMO_WAIT}},
    required=("seconds",),
    output=WAITED,
    # In the background, or no other call could be answered, and no cancellation read.
    background=True,
)
def wait(request: Request, seconds: float) -> Outcome:
    request.log("info", f"waiting for {seconds} s")
    for step in range(1, WAIT_STEPS + 1):
        request.pause(seconds / WAIT_STEPS)
        request.progress(step, WAIT_STEPS, f"{seconds * step / WAIT_STEPS:g} of {seconds:g} s")
    return f"Waited {seconds:g} s.", {"seconds": seconds}


def add_crash() -> None:
    @server.tool("End this server at once, in the middle of the call: shows how a crash is handled.", {})
    def crash(request: Request) -> Outcome:
        print("clock: crashing because it was asked to", file=sys.stderr, flush=True)
        # At once, as a crash is: no cleanup, no answer, buffers lost.
        os._exit(CRASH_STATUS)


if __name__ == "__main__":
    if sys.argv[1:] == ["--with-crash"]:
        add_crash()
    elif sys.argv[1:]:
        usage_error(CLOCK_USAGE)
    server.run()
