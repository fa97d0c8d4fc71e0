"""Terminating TLS ourselves: the certificate shown to clients, reloaded when it has been renewed.

Each handshake reads the context, so a reloaded certificate takes effect with the next connection; open connections
continue. A renewed certificate that cannot be used leaves the previous one in use.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mcp_workbench.errors import ConfigError

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)


class TlsCertificate:
    """A certificate and its key in files, and the SSL context that uses them."""

    def __init__(self, certificate: str, key: str, client_ca: str | None = None) -> None:
        """Raises `ConfigError`."""
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self.context = self._read()

    @property
    def files(self) -> tuple[str, ...]:
        return (self._certificate, self._key, *([self._client_ca] if self._client_ca else []))

    def reload(self) -> None:
        """Load the files again after they have changed."""
        try:
            # Into a separate context first: a certificate that does not match its key would leave ours half loaded.
            self._read()
            self.context.load_cert_chain(self._certificate, self._key, password=_no_password)
            if self._client_ca is not None:
                self.context.load_verify_locations(self._client_ca)
        except (ConfigError, OSError) as error:
            log.error("the renewed certificate cannot be used, and the previous one stays in use: %s", error)
            return
        log.info("reloaded the certificate in `%s`", self._certificate)

    def _read(self) -> ssl.SSLContext:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
            raise ConfigError(
                f"the certificate `{self._certificate}` and its key `{self._key}` cannot be used: {reason}",
                hint="both are PEM, the key without a passphrase, and belong together",
            ) from None
        if self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
            except OSError as error:
                reason = error.strerror or getattr(error, "reason", None) or str(error)
                raise ConfigError(
                    f"`{self._client_ca}` cannot be used to check certificates of clients: {reason}",
                    hint="it must be the PEM certificate of the authority that signed them",
                ) from None
            # Clients other than the proxy may connect with tokens; but a certificate that is shown must be valid.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def _no_password() -> bytes:
    # Otherwise OpenSSL would ask for one on the terminal.
    return b""
