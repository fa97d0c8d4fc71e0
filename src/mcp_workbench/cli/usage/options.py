"""Options that several commands have."""

from __future__ import annotations

from typing import Final

from mcp_workbench.cli.flags import Flag

CONFIG: Final = Flag("config", "FILE", "the configuration file")
DEBUG: Final = Flag("debug", None, "log to stderr, including servers' stderr")
NO_CACHE_FLAG: Final = Flag("no-cache", None, "neither use nor update the cache of what servers offer")
PRIVATE: Final = Flag("private", None, "start servers for this command, even if a shared workbench is running")
JSON_FLAG: Final = Flag("json", None, "print JSON")
HEADER_FLAG: Final = Flag("header", "NAME=VALUE", "a header for a server given by URL; may be repeated", repeats=True)
RAW_FLAG: Final = Flag("raw", None, "print the whole result as JSON")
OUTPUT: Final = Flag("output", "FILE", "save image, audio or other data to this file, or the text if there is none")
AS: Final = Flag("as", "PRINCIPAL", "for another user of serve --http: the name of a key, or issuer#subject")
CONNECT: Final = Flag("connect", None, "start the servers that have not been listed yet")
