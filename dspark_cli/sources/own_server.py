"""The way to a server that this process started on this host."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_cli.errors import NotFit

if TYPE_CHECKING:
    import httpx

SOCKET_SCHEME = "unix:"


@dataclass(frozen=True)
class OwnServer:
    """`address` is what its log says: a URL, or unix: and a path. `certificate` is the file that it serves with."""

    address: str
    certificate: Path | None = None

    @property
    def url(self) -> str:
        """Where to ask; the host of a socket is of no account."""
        return "http://localhost" if self.socket else self.address

    @property
    def socket(self) -> str | None:
        return self.address.removeprefix(SOCKET_SCHEME) if self.address.startswith(SOCKET_SCHEME) else None

    def client(self, timeout_s: float) -> "httpx.Client":
        """One that goes straight to it: no proxy, no redirect, and no certificate but its own.

        Raises:
            NotFit: its certificate cannot be read.
        """
        import httpx

        transport = httpx.HTTPTransport(uds=self.socket, verify=self._trust(), trust_env=False)
        return httpx.Client(
            timeout=timeout_s, transport=transport, trust_env=False, headers={"Accept-Encoding": "identity"}
        )

    def _trust(self) -> ssl.SSLContext:
        """The name in the certificate is for clients elsewhere; here the very certificate is known."""
        context = ssl.create_default_context()
        if self.certificate is not None:
            try:
                context.load_verify_locations(cafile=self.certificate)
            except (OSError, ssl.SSLError) as error:
                reason = error.strerror or type(error).__name__
                raise NotFit(f"its certificate {self.certificate} cannot be read: {reason}", "check the file") from None
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context
