"""The members of `cluster`: where several instances leave state for each other. Loaded only for a file that has it."""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import urlsplit

from mcp_workbench.engine.config.kinds import Text, one_of
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import REQUIRED, Declared, setting

# Those with an `s` at the end are encrypted.
STATE_SCHEMES: Final = ("valkey", "valkeys", "redis", "rediss", "unix")
# Not the server itself, but Sentinels that know which one it is.
SENTINEL_SCHEMES: Final = tuple(f"{scheme}+sentinel" for scheme in STATE_SCHEMES[:4])
# Nodes of a Valkey Cluster, one of which has all keys.
CLUSTER_SCHEMES: Final = tuple(f"{scheme}+cluster" for scheme in STATE_SCHEMES[:4])
WhenAway = Literal["local", "refuse"]
_INSTANCE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class _StateAddress(Text):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is None:
            return None
        parts = urlsplit(text)
        if parts.scheme in SENTINEL_SCHEMES:
            if not parts.hostname or not parts.path.strip("/"):
                reader.wrong(value, path, "an address such as `valkey+sentinel://one:26379,two:26379/mymaster/0`")
                return None
        elif parts.scheme in CLUSTER_SCHEMES:
            if not parts.hostname or parts.path.strip("/") not in ("", "0"):
                reader.wrong(value, path, "an address such as `valkey+cluster://one:6379,two:6379`")
                return None
        elif parts.scheme not in STATE_SCHEMES or not (parts.path if parts.scheme == "unix" else parts.hostname):
            reader.wrong(value, path, "an address such as `valkeys://user@host:6379/0`")
            return None
        if parts.password is not None:
            reader.problem(path, "found a password in the address", "it in `password`, by reference")
            return None
        return text


class _ClusterName(Text):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is not None and not _INSTANCE_NAME.fullmatch(text):
            reader.wrong(value, path, "a name of letters, digits, `.`, `_` and `-`")
            return None
        return text


class KeyFileConfig(Declared, frozen=True, kw_only=True):
    """Where the key is."""

    file: str = setting(
        Text(),
        "The file with the key, which `mcp-workbench team cluster key` makes and all instances have. A relative path "
        "starts at the folder of this file.",
        REQUIRED,
    )


class ClusterConfig(Declared, frozen=True, kw_only=True, rename="camel"):
    """Several equal instances, which leave state for each other."""

    state: str = setting(
        _StateAddress(),
        "The Valkey (7.2 or later) or Redis (7 or later) that keeps what must outlive an instance: "
        "`valkeys://user@host:6379/0`, without TLS `valkey://`, or `unix:///path`; with Sentinels "
        "`valkeys+sentinel://user@one:26379,two:26379/service/0`, of a Valkey Cluster some nodes "
        "`valkeys+cluster://user@one:6379,two:6379`. It sees encrypted values alone.",
        REQUIRED,
    )
    key: KeyFileConfig = setting(
        Members(KeyFileConfig, 'an object such as `{"file": "cluster.key"}`'),
        "The key with which values there are encrypted and authenticated, the same for all instances.",
        REQUIRED,
    )
    password: str | None = setting(
        Text(), "The password of the user at the state server. Never printed.", is_secret=True, fetches=True
    )
    name: str = setting(_ClusterName(), "The name of the cluster, if several use one state server.", "mcp-workbench")
    when_away: WhenAway = setting(
        one_of("local", "refuse"),
        "What happens to calls with a limit or an approval while the state server is away: each instance counts and "
        "decides alone (`local`), or they are refused (`refuse`). All other calls go on.",
        "local",
    )


CLUSTER: Final = Members(ClusterConfig, "an object with `state` and `key`")
