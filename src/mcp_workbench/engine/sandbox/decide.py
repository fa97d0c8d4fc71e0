"""From the settings and a server's command line to its `Sandbox`. Pure but for looking at paths, which is given.

Owns what each profile means. What the user named is meant: a path in `args` or `env` is granted, unless it is so wide
that it would give away what the profile is there to keep.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mcp_workbench.engine.config.sandbox_settings import Network, SandboxConfig
from mcp_workbench.engine.sandbox.carve_outs import CarveOuts, carve_outs
from mcp_workbench.engine.sandbox.sandbox import PROXY_PORT, FoundPath, Machine, Sandbox

SEALED_MEMORY: Final = 1 << 30
SEALED_PROCESSES: Final = 64
# Lists of folders that programs are loaded from: they are read, and nothing else.
_SEARCH_PATHS: Final = frozenset(
    "PATH PYTHONPATH PYTHONHOME NODE_PATH LD_LIBRARY_PATH CLASSPATH JAVA_HOME VIRTUAL_ENV GEM_PATH PERL5LIB "
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE".split()
)
# Where the user's own files and the desktop's sockets are: nothing of it is readable, so programs should not try.
_OF_THE_USER: Final = (
    *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
)
# What lets package runners do without the network, where they have what they need.
_OFFLINE_VARIABLES: Final = {"npm_config_offline": "true", "UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
NPM_REGISTRY: Final = ".".join(("registry", "npmjs", "org"))


_FROM_SERVER: Final = "leads through a link that the server could have made"


class ServerProgram(NamedTuple):
    """A server's program, with all references resolved."""

    args: Sequence[str]
    # What its entry sets, and all that it gets.
    own_environment: Mapping[str, str]
    environment: Mapping[str, str]
    # The folder it would start in, and whether the user named it.
    folder: str | None
    is_folder_named: bool
    # Folders that it consists of (`program_files`).
    files: Sequence[str]
    # The script that its interpreter runs, which is not a file that it works on.
    script: str | None
    # Of its private home: the same as long as it is the same server of the same user.
    home_name: str
    # Where it is, with links.
    path: str | None = None
    # The file that it is configured in.
    configuration: str | None = None
    # As written: for an image, where it is not looked for here.
    command: str = ""


class _Grants:
    """Collects what is granted, and why something is not."""

    def __init__(self, machine: Machine, writable: Iterable[str]) -> None:
        """`writable`: what is asked for to write, so that links in it are the server's."""
        self._machine = machine
        places = map(machine.look, writable)
        self._writable = [one.path for one in places if one is not None and not self.too_wide(one.path, write=True)]
        self.read: dict[str, None] = {}
        self.write: dict[str, None] = {}
        self.skipped: dict[str, None] = {}
        self.links: dict[str, str] = {}

    def add(self, path: str, *, write: bool, is_asked: bool = True) -> str | None:
        """Grant what is at this path. Returns its path without links if it was granted."""
        place = self._machine.look(path)
        if place is None:
            if is_asked:
                self.skipped[f"`{path}` does not exist"] = None
            return None
        wide = self.is_from_server(place) or self.too_wide(place.path, write=write)
        if wide is not None:
            if is_asked:
                self.skipped[f"`{path}` {wide}"] = None
            return None
        self.grant(place, write=write)
        return place.path

    def grant(self, place: FoundPath, *, write: bool) -> None:
        (self.write if write else self.read)[place.path] = None
        self.links |= place.links

    def socket(self, path: str) -> str | None:
        """A Unix socket that was named, without links."""
        place = self._machine.look(path)
        if place is None or self.is_from_server(place):
            self.skipped[f"`{path}` {'does not exist' if place is None else _FROM_SERVER}"] = None
            return None
        self.links |= place.links
        return place.path

    def is_from_server(self, place: FoundPath) -> str | None:
        """Why a path is not followed: a link on its way is in a folder that the server writes. With it, the server
        would choose what it is granted at its next start."""
        is_inside = any(
            folder == each or folder.startswith(each + "/") for folder in place.links_in for each in self._writable
        )
        return _FROM_SERVER if is_inside else None

    def too_wide(self, path: str, *, write: bool) -> str | None:
        if path == "/":
            return "is everything"
        home = self._machine.home
        for folder, what in (*self._machine.protected, (home, "your home folder")):
            if folder.startswith(path + "/") or (folder == path and folder != "/"):
                return f"is or contains {what if folder == home else f'`{folder}`, {what}'}"
            if folder != home and path.startswith(folder + "/") and write:
                return f"is in `{folder}`, {what}"
        return None


def decide(settings: SandboxConfig | None, program: ServerProgram, machine: Machine) -> Sandbox:
    """Return what a server gets. None: `guard`, as far as this machine can enforce it."""
    if settings is None:
        return Sandbox(
            "guard", environment=program.environment, folder=program.folder, is_best_effort=True, is_asked=False
        )
    basic = Sandbox(
        settings.profile,
        environment=program.environment,
        folder=program.folder,
        memory=settings.memory,
        cpu_seconds=settings.cpu_seconds,
        processes=settings.processes,
        is_best_effort=settings.best_effort,
        backend=settings.backend,
    )
    return basic if settings.profile in ("off", "guard") else _contained(settings, program, machine, basic)


def network_of(settings: SandboxConfig) -> Network:
    """What a profile that limits the network means, unless it is set."""
    if settings.network is not None:
        return settings.network
    return "none" if settings.profile == "sealed" else "all"


def _contained(settings: SandboxConfig, program: ServerProgram, machine: Machine, basic: Sandbox) -> Sandbox:
    is_sealed = settings.profile == "sealed"
    is_folder_written = program.is_folder_named and not is_sealed
    folders = (program.folder,) if program.folder is not None and is_folder_written else ()
    grants = _Grants(machine, (*settings.write, *folders, *_folders_named(program, machine)))
    has_image = settings.image is not None
    if not has_image:
        for path in (*machine.system, *program.files):
            grants.add(path, write=False, is_asked=False)
        for path in machine.devices:
            grants.add(path, write=True, is_asked=False)
    for path in settings.read:
        _granted_as_asked(grants, machine, path)
    for path in settings.write:
        grants.add(path, write=True)
    _grant_named(grants, machine, program, has_image=has_image)
    sockets = [grants.socket(path) for path in settings.unix_sockets]
    if program.path is not None and (place := machine.look(program.path)) is not None:
        grants.links |= place.links
    # An image has a folder of its own that it starts in.
    folder = program.folder if program.is_folder_named or not has_image else None
    if folder is not None:
        granted = grants.add(folder, write=is_folder_written, is_asked=program.is_folder_named)
        folder = folder if granted is not None else None
    network = network_of(settings)
    home = os.path.join(machine.homes, program.home_name) if settings.home == "private" else None
    temporary = os.path.join(machine.homes, program.home_name, "tmp")
    private = home or temporary
    kept = _kept_read_only(settings, program, machine, grants)
    return basic._replace(
        limits_files=True,
        read_only=kept.read_only,
        created=kept.created,
        read=tuple(grants.read),
        write=(private, *grants.write),
        network=network,
        unix_sockets=tuple(filter(None, sockets)),
        memory=settings.memory or (SEALED_MEMORY if is_sealed else None),
        processes=settings.processes or (SEALED_PROCESSES if is_sealed else None),
        home=home,
        temporary=temporary,
        environment=_with_proxy(
            _environment(program, home, temporary, is_offline=is_sealed and settings.network is None), network
        ),
        # Package runners look for a project in the folder they start in, and fail if they cannot read it.
        folder=folder or (None if has_image else private),
        image=settings.image,
        command=program.command if has_image else "",
        skipped=tuple(grants.skipped),
        links=tuple(grants.links.items()),
    )


def _kept_read_only(settings: SandboxConfig, program: ServerProgram, machine: Machine, grants: _Grants) -> CarveOuts:
    named = [place.path for place in map(machine.look, settings.write) if place is not None]
    places = [path for path in grants.write if path not in machine.devices]
    roots = [path for path in places if not any(path.startswith(other + "/") for other in places)]
    own = []
    if program.configuration and (place := machine.look(program.configuration)) is not None:
        own = [place.path, os.path.join(os.path.dirname(place.path), "workbench.lock")]
    # A folder that is granted as a whole does not name what is in it.
    return carve_outs(machine, roots, [path for path in named if path not in roots], own)


def _granted_as_asked(grants: _Grants, machine: Machine, path: str) -> None:
    """What the user lists under `read` is granted, however wide."""
    place = machine.look(path)
    if place is None:
        grants.skipped[f"`{path}` does not exist"] = None
    elif (reason := grants.is_from_server(place)) is not None:
        grants.skipped[f"`{path}` {reason}"] = None
    else:
        grants.grant(place, write=False)


def _folders_named(program: ServerProgram, machine: Machine) -> list[str]:
    """The folders that `args` and `env` name, and those of the files that they name."""
    values = [value for name, value in program.own_environment.items() if name not in _SEARCH_PATHS]
    found = [(path, machine.look(path)) for path in _paths_in((*program.args, *values))]
    return [path if place is not None and place.is_folder else os.path.dirname(path) for path, place in found]


def _grant_named(grants: _Grants, machine: Machine, program: ServerProgram, *, has_image: bool) -> None:
    script = None if program.script is None else machine.look(program.script)
    for path in _paths_in(program.args):
        place = machine.look(path)
        if place is None and has_image:
            # A path in the image.
            continue
        # Its folder is granted as the program's own.
        if place is None or script is None or place.path != script.path:
            _grant_place(grants, machine, path)
    for name, value in program.own_environment.items():
        if name in _SEARCH_PATHS:
            if has_image:
                continue
            for path in value.split(os.pathsep):
                if os.path.isabs(path):
                    grants.add(path, write=False, is_asked=False)
        else:
            for path in _paths_in((value,)):
                if has_image and machine.look(path) is None:
                    continue
                _grant_place(grants, machine, path)


def _grant_place(grants: _Grants, machine: Machine, path: str) -> None:
    """Grant a folder that was named; for a file its folder, because programs write a copy beside it and rename it."""
    place = machine.look(path)
    # Such a path has its folder granted as long as nothing or a file is there.
    followed = place or machine.look(os.path.dirname(path))
    if followed is not None and any(
        not _is_system(folder, machine) and not grants.too_wide(folder, write=True) for folder in followed.links_in
    ):
        grants.skipped[f"`{path}` {_FROM_SERVER}"] = None
        return
    if place is not None and place.is_folder:
        grants.add(path, write=True)
        return
    if place is not None and grants.too_wide(os.path.dirname(place.path), write=True):
        # `~/notes.txt`, or `~/.ssh/key` for a server that signs in with it: the file alone.
        grants.grant(place, write=not grants.too_wide(place.path, write=True))
        return
    folder = machine.look(os.path.dirname(path)) if place is None else machine.look(os.path.dirname(place.path))
    if folder is None:
        grants.skipped[f"`{path}` does not exist"] = None
    elif not _is_system(folder.path, machine):
        grants.add(folder.path, write=True)
        grants.links |= folder.links + (place.links if place is not None else ())


def _is_system(path: str, machine: Machine) -> bool:
    """Whether every program reads it anyway. `/usr/bin/git` in an argument is a program, not a file to work on."""
    return any(path == each or path.startswith(each + "/") for each in machine.system)


def _paths_in(values: Iterable[str]) -> list[str]:
    """The absolute paths among words, alone or after `=`. Addresses are none: `https://…`, `//host`."""
    found = []
    for value in values:
        for text in (value, value.partition("=")[2], _path_of_address(value)):
            if text.startswith("/") and not text.startswith("//") and "\0" not in text:
                found.append(os.path.normpath(text))
                break
    return found


def _path_of_address(value: str) -> str:
    """The absolute path in `file:///path` or `sqlite:////path`; empty if there is none."""
    before, _, rest = value.partition("://")
    scheme = before.rpartition("=")[2]
    if scheme == "file":
        return rest
    # A path after the third slash, which may be relative.
    return rest[1:].partition("?")[0] if scheme.partition("+")[0] in ("sqlite", "duckdb") else ""


def _with_proxy(environment: dict[str, str], network: Network) -> dict[str, str]:
    """What leads programs to the only way out, where there is one, by the names that they look for."""
    if not isinstance(network, tuple):
        return environment
    from mcp_workbench.engine.sandbox.egress_rules import EgressRules

    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    found = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    rules = EgressRules(network)
    if rules.refusal(NPM_REGISTRY, 443) is not None:
        # Else npx asks at every start whether what it has installed is still the newest, and fails. uv has no such
        # setting, but for being offline altogether.
        environment = {"npm_config_prefer_offline": "true", **environment}
    if not rules.names_this_machine:
        # What listens in the sandbox itself is reached directly.
        found["NO_PROXY"] = "localhost,127.0.0.1,::1"
    others = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
    return others | found | {name.lower(): value for name, value in found.items()} | {"NODE_USE_ENV_PROXY": "1"}


def _environment(program: ServerProgram, home: str | None, temporary: str, *, is_offline: bool) -> dict[str, str]:
    given = {name: value for name, value in program.environment.items() if name not in _OF_THE_USER}
    ours = {**dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary), **(_OFFLINE_VARIABLES if is_offline else {})}
    if home is not None:
        # Code in a folder that cannot be written would be compiled at every start.
        ours |= {"HOME": home, "PYTHONPYCACHEPREFIX": os.path.join(home, ".cache", "pycache")}
    return {**given, **ours, **program.own_environment}
