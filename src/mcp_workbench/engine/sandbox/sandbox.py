"""What a server gets, as one value, and the interface of what enforces it.

Every decision is in the value when a backend sees it. Knows neither how it is decided (`decide`) nor any backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from mcp_workbench.engine.config.sandbox_settings import Network, Profile
from mcp_workbench.engine.sandbox.container_engine import ContainerEngine
from mcp_workbench.engine.transport.confinement import Launch


class Sandbox(NamedTuple):
    """What a server gets. All paths are absolute and without links, as they were when it was decided."""

    profile: Profile
    # Whether files and the network are limited at all.
    limits_files: bool = False
    read: tuple[str, ...] = ()
    # Also read.
    write: tuple[str, ...] = ()
    # Inside of those, what should stay read-only, and what of it has to be created first.
    read_only: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    network: Network = "all"
    unix_sockets: tuple[str, ...] = ()
    # Links on the way to what is granted, each with where it leads: part of the names that the server is given.
    links: tuple[tuple[str, str], ...] = ()
    # Bytes, seconds of processor time, and tasks beyond those that the user runs already; None: no limit.
    memory: int | None = None
    cpu_seconds: int | None = None
    processes: int | None = None
    # Its private home and temporary folder, which are created when it starts; None: those of the user.
    home: str | None = None
    temporary: str | None = None
    # Its environment, and the folder it starts in.
    environment: Mapping[str, str] = {}
    folder: str | None = None
    # What was asked for and not granted, in words.
    skipped: tuple[str, ...] = ()
    is_best_effort: bool = False
    # Whether the user wrote it. What every server gets must not cost anything.
    is_asked: bool = True
    # The backend that was asked for, or `auto`.
    backend: str = "auto"
    # The image that it runs in, and what is run there; empty: what the image runs by itself.
    image: str | None = None
    command: str = ""


class FoundPath(NamedTuple):
    """What is at a path."""

    # Without links.
    path: str
    is_folder: bool
    # The folders of the links on the way to it that this user can replace.
    links_in: tuple[str, ...] = ()
    # All links on the way to it, each with where it leads.
    links: tuple[tuple[str, str], ...] = ()


class Machine(NamedTuple):
    """What a decision depends on besides the configuration."""

    # The user's.
    home: str
    # Where private homes are.
    homes: str
    # Folders that are never granted to write, nor anything that contains them, each with what it is.
    protected: tuple[tuple[str, str], ...]
    # What is at a path; None: nothing.
    look: Callable[[str], FoundPath | None]
    # The system's folders that every program reads, and devices that every program writes.
    system: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    # The folders directly in a folder that are repositories.
    repositories: Callable[[str], Sequence[str]] = lambda folder: ()


class Capabilities(NamedTuple):
    """What this machine can enforce."""

    landlock_abi: int = 0
    has_filters: bool = False
    has_seatbelt: bool = False
    # What is in the way of `bwrap`; None: nothing. Asked only if it is needed, because it has to be tried.
    why_no_bwrap: Callable[[], str | None] = lambda: "bwrap is not installed"
    # What `podman` or `docker` can do. Asked only for a server with an image.
    engine: Callable[[str], ContainerEngine] = lambda name: ContainerEngine(name, trouble=f"{name} is not installed")


# The port of the proxy in a network that has nothing else in it.
PROXY_PORT: Final = 3128


class RefusedHost(NamedTuple):
    """Why a host could not be reached."""

    reason: str
    # What to add to `network` to allow it; empty if nothing would.
    entry: str = ""


# Told of the host and port that a server is to be refused. True: somebody has allowed it meanwhile.
OnRefused = Callable[[str, int, RefusedHost], bool]


class Backend(Protocol):
    """Enforces sandboxes in one way."""

    name: str

    def trouble(self, machine: Capabilities) -> str | None:
        """What keeps it from being used here at all."""

    def missing(self, sandbox: Sandbox, machine: Capabilities) -> list[str]:
        """What of the sandbox it cannot enforce here, each as what follows "this machine"."""

    def keeps_read_only(self) -> bool:
        """Whether `read_only` is in force."""

    def launch(self, sandbox: Sandbox, refused: OnRefused) -> Launch:
        """How to start a server in it. May create what it needs; the sandbox is enforceable, or is best effort."""
