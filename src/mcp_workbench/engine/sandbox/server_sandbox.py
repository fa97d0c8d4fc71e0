"""The sandbox of one server of the catalogue: collects what `decide` needs, and starts nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

from mcp_workbench.engine.config.environment import beyond_harmless
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.sandbox.backends import choose
from mcp_workbench.engine.sandbox.decide import ServerProgram, decide
from mcp_workbench.engine.sandbox.machine import capabilities, this_machine
from mcp_workbench.engine.sandbox.sandbox import Machine, OnRefused, Sandbox
from mcp_workbench.engine.transport.child import OURSELVES, find_program
from mcp_workbench.engine.transport.confinement import Launch
from mcp_workbench.errors import DownstreamError, shortage


class Owner(NamedTuple):
    """Whose server it is: what tells its private home from all others."""

    # The configuration file.
    path: str
    toolbox: str
    # Empty for the user of the workbench.
    principal: str = ""


class Enforced(NamedTuple):
    """A sandbox, and what enforces it here."""

    sandbox: Sandbox
    backend: str
    # What this machine cannot enforce of it.
    missing: tuple[str, ...]
    launch: Launch
    # What stays writable inside of granted folders, although other programs run or trust it.
    unprotected: tuple[str, ...] = ()


def sandbox_of(
    config: ServerConfig,
    environment: Mapping[str, str],
    folder: str | None,
    owner: Owner,
    machine: Machine | None = None,
) -> Sandbox:
    """Return what a server gets. `config` has all references resolved; `folder` is its client's. Raises
    `DownstreamError` if its program does not exist."""
    settings = config.sandbox
    started_in = config.cwd or folder
    needs_files = settings is not None and settings.profile in ("contained", "sealed")
    files: list[str] = []
    path = script = None
    if settings is not None and settings.image is not None:
        machine = machine or this_machine(environment.get("HOME") or os.path.expanduser("~"))
        environment = beyond_harmless(environment, config.inherit_env, config.env)
    elif needs_files:
        from mcp_workbench.engine.sandbox.program_files import own_files, program_files, script_of

        assert config.command is not None
        # One that its entry sets is the server's.
        home = None if "HOME" in config.env else environment.get("HOME")
        machine = machine or this_machine(home or os.path.expanduser("~"))
        program = find_program(config.command, environment.get("PATH"), started_in)
        if os.path.basename(program) == OURSELVES:
            # However it was installed, and whatever starts it.
            files = own_files()
        if program != OURSELVES:
            path = program
            files += program_files(program, config.args, environment.get("PATH"), started_in, machine.home)
            script = script_of(program, config.args, started_in)
    described = ServerProgram(
        args=config.args,
        own_environment=config.env,
        environment=environment,
        folder=started_in,
        is_folder_named=config.cwd is not None,
        path=path,
        configuration=owner.path,
        files=files,
        script=script,
        home_name=home_name(config, owner) if needs_files else "",
        command=config.command or "",
    )
    return decide(settings, described, machine or Machine("", "", (), lambda path: None))


def home_name(config: ServerConfig, owner: Owner) -> str:
    """The name of a server's private home. Arguments and variables may change: what it has stored is still its own."""
    parts = (owner.path, owner.toolbox, config.name, config.command or "", owner.principal)
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def private_home(config: ServerConfig, owner: Owner) -> str:
    """The home folder that a server has in `contained` and `sealed`, whether or not it exists yet."""
    return os.path.join(this_machine(os.path.expanduser("~")).homes, home_name(config, owner))


def enforce(sandbox: Sandbox, refused: OnRefused = lambda host, port, refusal: False) -> Enforced:
    """Decide how this machine enforces a sandbox, and create its private folders. Raises `DownstreamError` if it cannot
    be enforced. `refused` is told of hosts that the server may not reach."""
    chosen = choose(sandbox, capabilities())
    try:
        launch = chosen.backend.launch(sandbox, refused)
    except OSError as error:
        if shortage(error) is not None:
            raise
        where = f" (`{error.filename}`)" if isinstance(error.filename, str) else ""
        raise DownstreamError(f"sandbox: it cannot be set up: {error.strerror}{where}") from None
    return Enforced(sandbox, chosen.backend.name, chosen.missing, launch, chosen.unprotected)
