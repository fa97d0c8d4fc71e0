"""The environment of this process as the system shows it (`/proc/PID/environ`, `ps e`), and erasing secrets from it.

Every process of the same user can read it, servers included. Python works on a copy (`os.environ`), so erased values
are still known to us. Not covered are the memory of this process, and the environment of the process that started us.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any


def erase(names: Collection[str]) -> None:
    """Overwrite the values of these variables where the system shows them. Best effort."""
    if not names or sys.platform == "win32":
        return
    # Imported here to keep it off the start-up path.
    import ctypes
    import os

    wanted = {os.fsencode(name) for name in names}
    try:
        block = _block(ctypes)
        index = 0
        while address := block[index]:
            name, _, value = ctypes.string_at(address).partition(b"=")
            if name in wanted:
                ctypes.memset(address + len(name) + 1, 0, len(value))
            index += 1
    except (AttributeError, ValueError, OSError):
        return


def _block(ctypes: Any) -> Any:
    """The array of pointers to `NAME=value`, terminated by a null pointer."""
    library = ctypes.CDLL(None)
    pointers = ctypes.POINTER(ctypes.c_void_p)
    if sys.platform == "darwin":
        library._NSGetEnviron.restype = ctypes.POINTER(pointers)
        return library._NSGetEnviron().contents
    return pointers.in_dll(library, "environ")
