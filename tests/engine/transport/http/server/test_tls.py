"""TLS by ourselves: what clients are shown, and that a renewed certificate is used without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mcp_workbench.engine.transport.http.server.authentication import Authentication
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.tls import TlsCertificate
from mcp_workbench.errors import ConfigError
from tests.engine.transport.http.server.echoing import EchoRig, echoing
from tests.engine.transport.http.server.raw_client import RawConnection, modern, modern_headers


def certificate(folder: Path, name: str, files: str = "server") -> tuple[Path, Path]:
    """One that is signed by itself, for 127.0.0.1; its file and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{files}.pem", folder / f"{files}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


class ByCertificate:
    depends_on_peer = True

    def authenticate(self, head: RequestHead) -> Authentication:
        return "/".join(head.peer_names) or "nobody"


async def connect(rig: EchoRig, trusted: Path, own: tuple[Path, Path] | None = None) -> RawConnection:
    context = ssl.create_default_context(cafile=str(trusted))
    if own is not None:
        context.load_cert_chain(*own)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", rig.server.port, ssl=context, server_hostname="localhost", limit=1 << 24
    )
    return RawConnection(reader, writer)


async def connect_and_call(rig: EchoRig, trusted: Path, own: tuple[Path, Path]) -> None:
    connection = await connect(rig, trusted, own)
    try:
        await connection.request(body=modern("echo"), **modern_headers("echo"))
    finally:
        with contextlib.suppress(OSError):
            await closed(connection)


def shown(connection: RawConnection) -> str:
    found = connection.writer.get_extra_info("peercert")
    return str(dict(part[0] for part in found["subject"])["commonName"])


async def closed(connection: RawConnection) -> None:
    connection.writer.close()
    await connection.writer.wait_closed()


@pytest.mark.requirement("team.tls")
async def test_calls_are_served_over_tls_also_large_ones(tmp_path: Path) -> None:
    tls = TlsCertificate(*map(str, certificate(tmp_path, "first")))
    async with echoing(tls=tls.context) as rig:
        assert rig.server.url.startswith("https://")
        connection = await connect(rig, tmp_path / "server.pem")
        for text in ("x", "x" * 3_000_000):
            response = await connection.request(body=modern("echo", {"text": text}), **modern_headers("echo"))
            assert response.json["result"]["echo"]["text"] == text
        await closed(connection)


@pytest.mark.requirement("team.tls")
async def test_a_renewed_certificate_is_shown_to_the_next_client(tmp_path: Path) -> None:
    tls = TlsCertificate(*map(str, certificate(tmp_path, "first")))
    async with echoing(tls=tls.context) as rig:
        before = await connect(rig, tmp_path / "server.pem")
        assert shown(before) == "first"
        certificate(tmp_path, "second")
        tls.reload()
        after = await connect(rig, tmp_path / "server.pem")
        assert shown(after) == "second"
        (tmp_path / "server.key").write_text("half a key")
        tls.reload()
        third = await connect(rig, tmp_path / "server.pem")
        assert shown(third) == "second", "what is in force stays so"
        for connection in (before, after, third):
            response = await connection.request(body=modern("echo"), **modern_headers("echo"))
            assert response.status == 200
            await closed(connection)


@pytest.mark.requirement("team.proxy")
async def test_client_certificate_names_the_peer(tmp_path: Path) -> None:
    own = certificate(tmp_path, "proxy", "client")
    chain, key = map(str, certificate(tmp_path, "first"))
    tls = TlsCertificate(chain, key, str(own[0]))
    async with echoing(tls=tls.context, authenticator=ByCertificate()) as rig:
        for presented, name in ((own, "proxy/localhost"), (None, "nobody")):
            connection = await connect(rig, tmp_path / "server.pem", presented)
            response = await connection.request(body=modern("echo"), **modern_headers("echo"))
            assert response.json["result"]["principal"] == name
            await closed(connection)
        stranger = certificate(tmp_path, "proxy", "stranger")
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await connect_and_call(rig, tmp_path / "server.pem", stranger)


@pytest.mark.parametrize("broken", ["server.pem", "server.key", "client.pem"])
@pytest.mark.parametrize("content", [None, "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_files_that_cannot_be_used_are_reported(tmp_path: Path, broken: str, content: str | None) -> None:
    files = certificate(tmp_path, "first")
    client = certificate(tmp_path, "proxy", "client")[0]
    if content is None:
        (tmp_path / broken).unlink()
    else:
        (tmp_path / broken).write_text(content)
    with pytest.raises(ConfigError, match="cannot be used"):
        TlsCertificate(str(files[0]), str(files[1]), str(client))


def test_a_key_of_another_certificate_and_one_with_a_passphrase_are_reported(tmp_path: Path) -> None:
    first, other = certificate(tmp_path, "first"), certificate(tmp_path, "other", "other")
    with pytest.raises(ConfigError, match="cannot be used"):
        TlsCertificate(str(first[0]), str(other[1]))
    key = serialization.load_pem_private_key(first[1].read_bytes(), None)
    first[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="cannot be used"):
        TlsCertificate(*map(str, first))
