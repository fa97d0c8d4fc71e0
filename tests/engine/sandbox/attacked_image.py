"""An image made of this machine's own Python, without a registry, in a storage of its own, and what it takes to run it.

Needs root, so that Podman sees control groups as it expects them whatever is mounted here.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from mcp_workbench.engine.sandbox import machine
from tests.engine.sandbox.attack_runner import PYTHON

IMAGE = "localhost/mcp-workbench-attacked:1"
UNIFIED = "/sys/fs/cgroup/unified"
LEFT_OUT = re.compile(r"/(__pycache__|test|idlelib|tkinter|lib2to3|ensurepip|pydoc_data|config-)")
_CLONE_NEWNS = 0x20000
_MS_PRIVATE_RECURSIVE = 1 << 18 | 0x4000
_MNT_DETACH = 2
# Not every root may raise limits, as Podman does by default.
_WITH_LIMITS = """#!/bin/sh
[ "$1" = run ] || exec {program} "$@"
shift
exec {program} run --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$@"
"""


class AttackedImage:
    def __init__(self, folder: Path) -> None:
        """`folder` is empty."""
        self._folder = folder
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
        )
        program = folder / "bin" / "podman"
        program.parent.mkdir()
        program.write_text(_WITH_LIMITS.format(program=shutil.which("podman")))
        program.chmod(0o755)
        self._environment = {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def import_it(self) -> None:
        archive = self._folder / "image.tar"
        _write_image(archive)
        subprocess.run(
            ["podman", "import", "--quiet", str(archive), IMAGE],
            env=os.environ | self._environment,
            check=True,
            capture_output=True,
        )

    def prepare(self) -> None:
        """Make this process one that can run it: its own mounts, without the second hierarchy of control groups, which
        crun cannot do with."""
        os.environ.update(self._environment)
        # What was found with another PATH.
        machine._engines.clear()
        library = ctypes.CDLL(None, use_errno=True)
        if os.path.ismount(UNIFIED):
            if library.unshare(_CLONE_NEWNS) or library.mount(b"none", b"/", None, _MS_PRIVATE_RECURSIVE, None):
                raise OSError(ctypes.get_errno(), "no own mounts")
            library.umount2(UNIFIED.encode(), _MNT_DETACH)

    def trouble(self, *options: str) -> str | None:
        """What keeps it from running with these options. To be called in a process that was prepared."""
        done = subprocess.run(["podman", "run", "--rm", *options, IMAGE, PYTHON, "-c", ""], capture_output=True)
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return None if done.returncode == 0 else said[-1] if said else f"exit status {done.returncode}"


def _write_image(path: Path) -> None:
    script = "import sysconfig; print(sysconfig.get_path('stdlib')); print(sysconfig.get_config_var('DESTSHARED'))"
    library, extensions = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True).stdout.split()
    programs = [PYTHON, "/bin/sleep"]
    files = dict.fromkeys(programs)
    for each in (*programs, *map(str, Path(extensions).glob("*.so"))):
        said = subprocess.run(["ldd", each], capture_output=True, text=True).stdout
        files |= dict.fromkeys(re.findall(r"(/\S+) \(0x", said))
    with tarfile.open(path, "w") as archive:
        for each in files:
            archive.add(os.path.realpath(each), each.lstrip("/"))
        archive.add(library, library.lstrip("/"), filter=lambda entry: None if LEFT_OUT.search(entry.name) else entry)
        for name in ("tmp", "proc", "dev", "sys", "etc", "run", "var"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
