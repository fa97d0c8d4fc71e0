"""The values of `sandbox`: the name of a profile, or an object with what differs from it. Loaded only for a file that
has one.

Owns what can be written, and which folders no server may be given to write. Knows nothing about how it is enforced
(`engine.sandbox`).
"""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from mcp_workbench.engine.config.kinds import Boolean, Kind, Schema, Text, Texts, Whole, one_of
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import Declared, setting
from mcp_workbench.engine.portable_os import user_id

Profile = Literal["off", "guard", "contained", "sealed"]
# Hosts as written: exact, or `*.` in front, with a port or without.
Network = Literal["all", "none"] | tuple[str, ...]
PROFILES: Final[tuple[Profile, ...]] = ("off", "guard", "contained", "sealed")
ENGINES: Final = ("podman", "docker")
BACKEND_NAMES: Final = ("auto", "landlock", "bwrap", "seatbelt", *ENGINES)

_SIZE_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Less than this and no interpreter starts.
_MIN_MEMORY_BYTES: Final = 16 << 20
_MAX_MEMORY_BYTES: Final = 1 << 50


class Folders(Texts):
    """Files and folders: absolute, below `~`, or relative to the folder of this file. Globs are refused, because what
    is granted is a folder with everything in it. With `is_written`, so is what nobody but the user may write."""

    __slots__ = ("_is_written",)

    def __init__(self, what: str, *, is_written: bool = False) -> None:
        super().__init__(what)
        self._is_written = is_written

    def item(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().item(value, path, reader)
        if text is None:
            return None
        if "*" in text or "?" in text:
            reader.problem(path, f"found the glob {quote(text)}", "the path of a file or folder", hint=_NO_GLOBS)
            return None
        if text == "~" or text.startswith("~/"):
            text = os.path.join(reader.home(), text[2:])
        full = os.path.normpath(os.path.join(reader.folder, text))
        if self._is_written and (reason := unwritable(full, reader.home())) is not None:
            reader.problem(path, f"{quote(full)} {reason}", "a folder of this server alone", hint=_NARROWER)
            return None
        return full

    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "pattern": r"^[^*?]*\S[^*?]*$"}}


_NO_GLOBS: Final = "name the folder: a grant covers everything in it"
_NARROWER: Final = "name the folders that the server needs to write, one by one"


def unwritable(path: str, home: str) -> str | None:
    """Why no server may write this path, or None. By name: links are resolved when a server starts."""
    if path == "/":
        return "is everything"
    for folder, what in protected_folders(home):
        if path == folder or path.startswith(folder + "/"):
            return f"is {what}"
        if folder.startswith(path + "/"):
            return f"contains {quote(folder)}, {what}"
    return None


def protected_folders(home: str) -> list[tuple[str, str]]:
    """Folders that nobody but the user and the workbench may write, each with what it is."""
    from platformdirs import user_config_dir, user_data_dir

    from mcp_workbench.engine.config.state_folder import state_path

    found: list[tuple[str, str]] = [(os.path.join(home, ".ssh"), "where your SSH keys are")]
    state = state_path("")
    if state is not None:
        found.append((os.path.normpath(state), "where the workbench keeps its state"))
        found.append((user_data_dir("mcp-workbench", appauthor=False), "where the workbench keeps its sign-ins"))
        found.append((user_config_dir("mcp-workbench", appauthor=False), "where your configuration is"))
    # All of it: the sockets of the desktop, of agents with keys and of the session's bus are there too.
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user_id()}"
    found.append((os.path.normpath(runtime), "where the workbench has its sockets"))
    return found


class _Hosts(Texts):
    """Hosts that can be reached, each with a port or without."""

    __slots__ = ()

    def item(self, value: object, path: Path, reader: Reader) -> str | None:
        from mcp_workbench.engine.config.host_names import BadHost, parse_host

        text = super().item(value, path, reader)
        if text is None:
            return None
        try:
            parse_host(text)
        except BadHost as error:
            reader.wrong(text, path, str(error))
            return None
        return text


class NetworkKind(Kind):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> Any:
        if isinstance(value, list):
            hosts: tuple[str, ...] | None = _Hosts("a list of hosts").read(value, path, reader)
            return hosts
        text = reader.expanded(value, path) if isinstance(value, str) else ""
        if text is None or text in ("all", "none"):
            return text
        reader.wrong(value, path, '`all`, `none`, or a list of hosts such as `["api.github.com"]`')
        return None

    def schema(self) -> Schema:
        return {"anyOf": [{"enum": ["all", "none"]}, {"type": "array", "items": {"type": "string", "pattern": r"\S"}}]}


class Image(Text):
    """The name of an image. Nothing that the engine's program would take for one of its flags."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is None:
            return None
        if text.startswith("-") or not text.isascii() or not text.isprintable() or " " in text:
            reader.wrong(text, path, "the name of an image, such as `docker.io/library/node:22@sha256:…`")
            return None
        return text


class Bytes(Kind):
    """A size: a number of bytes, or one with a unit."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> int | None:
        size = value
        if isinstance(value, str):
            text = reader.expanded(value, path)
            if text is None:
                return None
            digits = text.strip().rstrip("KMGiB ")
            unit = text.strip()[len(digits) :].strip()
            if digits.isascii() and digits.isdigit() and unit in _SIZE_UNITS:
                size = int(digits) * _SIZE_UNITS[unit]
        if isinstance(size, int) and not isinstance(size, bool) and _MIN_MEMORY_BYTES <= size <= _MAX_MEMORY_BYTES:
            return size
        reader.wrong(value, path, 'a size of at least 16 MiB, such as `"512MiB"` or `"1GiB"`')
        return None

    def schema(self) -> Schema:
        return {
            "anyOf": [
                {"type": "integer", "minimum": _MIN_MEMORY_BYTES, "maximum": _MAX_MEMORY_BYTES},
                {"type": "string", "pattern": r"^\s*[0-9]+\s*([KMG]iB)?\s*$|\$\{.+\}"},
            ]
        }


class SandboxConfig(Declared, frozen=True, kw_only=True):
    """What a server may touch."""

    profile: Profile = setting(
        one_of(*PROFILES),
        "What the others start from: nothing is taken (`off`), no reaching into other programs (`guard`), its own "
        "files only (`contained`), and no network either (`sealed`).",
        "contained",
    )
    read: tuple[str, ...] = setting(
        Folders("a list of files and folders"), "Files and folders that it may read as well.", ()
    )
    write: tuple[str, ...] = setting(
        Folders("a list of files and folders", is_written=True),
        "Files and folders that it may read and write as well. Not `/`, `~/.ssh`, the workbench's own folders or what "
        "contains one of these.",
        (),
    )
    # None: that of the profile.
    network: Network | None = setting(
        NetworkKind(), "`all`, `none`, or the hosts that it may reach. If unset, that of the profile."
    )
    unix_sockets: tuple[str, ...] = setting(
        Folders("a list of sockets"), "Unix sockets that it may connect to, in `contained` and `sealed`.", ()
    )
    memory: int | None = setting(Bytes(), "How much memory each of its processes may use, such as `1GiB`.")
    cpu_seconds: int | None = setting(
        Whole("seconds", 1, 10_000_000), "How many seconds of processor time each of its processes may use."
    )
    processes: int | None = setting(
        Whole("processes", 1, 100_000), "How many processes and threads it may start beyond those that you run already."
    )
    home: Literal["private", "own"] = setting(
        one_of("private", "own"),
        "The home folder that it sees in `contained` and `sealed`: one of its own that lasts (`private`), or yours by "
        "name, which it still cannot read (`own`).",
        "private",
    )
    best_effort: bool = setting(
        Boolean(),
        "`true`: start it even where this machine cannot enforce all of it; `status` says what is missing.",
        False,
    )
    backend: str = setting(
        one_of(*BACKEND_NAMES), "What enforces it. `auto` chooses what this machine has and the profile needs.", "auto"
    )
    image: str | None = setting(
        Image(),
        "The image of a container that `command` is run in, by Podman or Docker; without a `command`, what the image "
        "runs by itself. Best with its digest (`…@sha256:…`), so that it stays the same.",
    )


class _Sandbox(Members[SandboxConfig]):
    def read(self, value: object, path: Path, reader: Reader) -> SandboxConfig | None:
        if isinstance(value, bool):
            return SandboxConfig(profile="contained" if value else "off")
        if isinstance(value, dict):
            return None if is_of_vs_code(value) else super().read(value, path, reader)
        profile = one_of(*PROFILES).read(value, path, reader)
        return None if profile is None else SandboxConfig(profile=profile)

    def made(self, found: dict[str, Any], value: object, path: Path, reader: Reader) -> SandboxConfig | None:
        made = SandboxConfig(**found)
        if made.profile in ("off", "guard"):
            for name in ("read", "write", "network", "unixSockets", "home", "image"):
                if name in found or self.settings[name].field in found:
                    problem = f"{quote(name)} has no meaning in the profile {quote(made.profile)}"
                    hint = "use `contained` or `sealed`: the others limit neither files nor the network"
                    reader.problem((*path, name), problem, hint=hint, at_key=True)
                    return None
        if made.backend != "auto" and (made.image is not None) != (made.backend in ENGINES):
            problem = f"{quote(made.backend)} {'does not run images' if made.image else 'needs an `image`'}"
            reader.problem(
                (*path, "backend"), problem, hint="leave `backend` out, or name `podman` or `docker` for an image"
            )
            return None
        return made

    def schema(self) -> Schema:
        # The last: VS Code's.
        others: Schema = {"type": "object", "required": ["filesystem"]}
        return {"anyOf": [{"enum": list(PROFILES)}, {"type": "boolean"}, super().schema(), others]}


def is_of_vs_code(value: object) -> bool:
    """Whether it is an object with VS Code's own rules. Files of other clients must load."""
    if not isinstance(value, dict):
        return False
    return "filesystem" in value or isinstance(value.get("network"), dict)


SANDBOX: Final = _Sandbox(
    SandboxConfig, 'a profile such as `"contained"`, or an object such as `{"profile": "sealed"}`'
)
