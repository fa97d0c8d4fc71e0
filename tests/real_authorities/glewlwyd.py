"""Debian's `glewlwyd`: an identity provider in C, with a database of its own. Set up through its administration.

Owns its files and how it is started; two users, `alice` and `bob`, and one client, `team`.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

PROGRAM = shutil.which("glewlwyd")
TABLES = Path("/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3")
WORKBENCH_START_TIMEOUT = 20.0
SECRET = "secret-of-the-client"
# It writes the scopes of a token where others write for whom it is.
AUDIENCE = "mcp openid"
MODULES = "/usr/lib/glewlwyd"
# A property of users that it does not have by itself: which group they are in.
ROLE = "role"


class Glewlwyd:
    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.issuer = f"{self.origin}/api/oidc"
        self._open = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar())).open

    def token_of(self, user: str) -> str:
        """An access token of this user."""
        form = {"grant_type": "password", "username": user, "password": f"password-of-{user}", "scope": AUDIENCE}
        pair = base64.b64encode(f"team:{SECRET}".encode()).decode()
        headers = {"authorization": f"Basic {pair}", "content-type": "application/x-www-form-urlencoded"}
        request = urllib.request.Request(f"{self.issuer}/token", urlencode(form).encode(), headers)
        with self._open(request, timeout=WORKBENCH_START_TIMEOUT) as answer:
            return str(json.loads(answer.read())["access_token"])

    def administer(self, path: str, value: Any) -> None:
        body = json.dumps(value).encode()
        request = urllib.request.Request(f"{self.origin}/api/{path}", body, {"content-type": "application/json"})
        with self._open(request, timeout=WORKBENCH_START_TIMEOUT):
            pass

    def wait_until_it_answers(self) -> None:
        until = time.monotonic() + WORKBENCH_START_TIMEOUT
        while True:
            try:
                self.administer("auth/", {"username": "admin", "password": "password"})
                return
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def set_up(self) -> None:
        key = rsa.generate_private_key(65537, 2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        flows = ("code", "token", "id-token", "none", "password", "client", "refresh", "device")
        parameters = {
            "iss": self.issuer,
            "jwt-type": "rsa",
            "jwt-key-size": "256",
            "key": private.decode(),
            "cert": public.decode(),
            "jwks-show": True,
            "jwks-x5c": [],
            "access-token-duration": 3600,
            "refresh-token-duration": 86400,
            "code-duration": 600,
            **{f"auth-type-{flow}-enabled": flow in ("password", "refresh", "id-token", "code") for flow in flows},
            "refresh-token-rolling": True,
            "allow-non-oidc": True,
            "subject-type": "public",
            "scope": [],
            "additional-parameters": [{"user-parameter": ROLE, "token-parameter": "groups"}],
            "claims": [],
            "allowed-scope": ["openid"],
            "service-documentation": "",
            "op-policy-uri": "",
            "op-tos-uri": "",
            "address-claim": {"type": "no"},
            "name-claim": "no",
            "name-claim-scope": [],
            "email-claim": "no",
            "email-claim-scope": [],
            "scope-claim": "no",
            "scope-claim-scope": [],
            "pkce-allowed": True,
            "introspection-revocation-allowed": True,
            "introspection-revocation-auth-scope": [],
            "introspection-revocation-allow-target-client": True,
        }
        plugin = {"module": "oidc", "name": "oidc", "display_name": "OIDC", "parameters": parameters, "enabled": True}
        self.administer("mod/plugin/", plugin)
        scope = {"name": "mcp", "display_name": "mcp", "description": "MCP", "password_required": True, "scheme": {}}
        self.administer("scope/", scope)
        for user, role in (("alice", "leads"), ("bob", "members")):
            person = {"username": user, "name": user, "password": f"password-of-{user}", "email": f"{user}@example.com"}
            self.administer("user/", {**person, "enabled": True, "scope": ["mcp", "openid"], ROLE: role})
        client = {
            "client_id": "team",
            "name": "team",
            "enabled": True,
            "confidential": True,
            "client_secret": SECRET,
            "token_endpoint_auth_method": ["client_secret_basic"],
            "scope": ["mcp"],
            "authorization_type": ["password", "refresh_token"],
            "redirect_uri": ["http://127.0.0.1/none"],
        }
        self.administer("client/", client)


@contextmanager
def glewlwyd(folder: Path) -> Iterator[Glewlwyd]:
    """Run it for as long as the context lasts."""
    assert PROGRAM is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    database = sqlite3.connect(folder / "glewlwyd.db")
    database.executescript(TABLES.read_text(encoding="utf-8"))
    held = json.dumps({"multiple": False, "read": True, "write": True})
    database.execute(
        "UPDATE g_user_module_instance SET gumi_parameters = json_set(gumi_parameters, ?, json(?))",
        (f"$.data-format.{ROLE}", held),
    )
    database.commit()
    database.close()
    settings = {
        "bind_address": "127.0.0.1",
        "external_url": f"http://127.0.0.1:{port}",
        "login_url": "login.html",
        "api_prefix": "api",
        "log_mode": "console",
        "log_level": "ERROR",
        "session_key": "SESSION",
        "admin_scope": "g_admin",
        "profile_scope": "g_profile",
        "admin_session_authentication": "cookie",
        "user_module_path": f"{MODULES}/user",
        "client_module_path": f"{MODULES}/client",
        "user_auth_scheme_module_path": f"{MODULES}/scheme",
        "plugin_module_path": f"{MODULES}/plugin",
        "hash_algorithm": "SHA512",
    }
    lines = [f"port={port}", "cookie_secure=0", *(f'{name}="{value}"' for name, value in settings.items())]
    lines.append(f'database={{ type="sqlite3"; path="{folder / "glewlwyd.db"}"; }};')
    (folder / "glewlwyd.conf").write_text("\n".join(lines) + "\n")
    command = [PROGRAM, f"--config-file={folder / 'glewlwyd.conf'}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        provider = Glewlwyd(port)
        provider.wait_until_it_answers()
        provider.set_up()
        yield provider
    finally:
        process.terminate()
        process.wait()
