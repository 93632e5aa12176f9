"""Who may listen and who may connect: the certificates of the door, read once at the start."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from worker.config import ConfigError, WorkerConfig


def credentials(config: WorkerConfig) -> grpc.ServerCredentials | None:
    """Returns what the door shows, and whom it asks to show something; None: all is in the clear.

    With tls_client_ca a gateway must bring a certificate that this authority signed. Raises
    ConfigError for a file that can't be read, is no certificate, or a key of another one.
    """
    if config.tls_cert is None or config.tls_key is None:
        return None
    cert, key = _read("tls_cert", config.tls_cert), _read("tls_key", config.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key with a password can't be opened without asking somebody.
        context.load_cert_chain(config.tls_cert, config.tls_key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"tls_cert is {config.tls_cert!r} and tls_key {config.tls_key!r}: a certificate chain "
            f"and its key, in PEM and without a password ({error})."
        ) from error
    if config.tls_client_ca is None:
        return grpc.ssl_server_credentials([(key, cert)])
    authority = _read("tls_client_ca", config.tls_client_ca)
    try:
        context.load_verify_locations(config.tls_client_ca)
    except ssl.SSLError as error:
        raise ConfigError(
            f"tls_client_ca is {config.tls_client_ca!r}: certificates in PEM ({error})."
        ) from error
    return grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=authority, require_client_auth=True
    )


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} is {path!r}: it can't be read ({error.strerror}).") from error
