"""How a worker is connected to: plainly, or encrypted and sure of who it is."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from gateway.config import ConfigError, TlsConfig

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class Encryption:
    """Certificates, read once. server_name: what workers' certificates say, if not the address."""

    credentials: grpc.ChannelCredentials
    server_name: str | None


def encryption_of(tls: TlsConfig | None) -> Encryption | None:
    """What the settings name; None for plain links. Raises ConfigError."""
    if tls is None:
        return None
    _refuse_unusable(tls)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read("link.tls.ca", tls.ca),
        private_key=_read("link.tls.key", tls.key),
        certificate_chain=_read("link.tls.cert", tls.cert),
    )
    return Encryption(credentials, tls.server_name)


def channel_to(address: str, encryption: Encryption | None) -> grpc.aio.Channel:
    """A channel of its own, which connects when it is first used."""
    if encryption is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    options: list[tuple[str, int | str]] = [*_OPTIONS]
    if encryption.server_name is not None:
        options.append(("grpc.ssl_target_name_override", encryption.server_name))
    return grpc.aio.secure_channel(address, encryption.credentials, options=options)


def _refuse_unusable(tls: TlsConfig) -> None:
    """gRPC takes any file, and then no link ever stands. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=tls.ca)
    except ssl.SSLError as error:
        raise ConfigError(f"link.tls.ca is {tls.ca!r}: not a certificate in PEM") from error
    except OSError as error:
        raise ConfigError(f"link.tls.ca is {tls.ca!r}: {error.strerror}") from error
    if tls.cert is None or tls.key is None:
        return
    for field, path in (("cert", tls.cert), ("key", tls.key)):
        _read(f"link.tls.{field}", path)
    try:
        context.load_cert_chain(tls.cert, tls.key, password=lambda: b"")
    except ssl.SSLError as error:
        raise ConfigError(
            f"link.tls.cert and key are {tls.cert!r} and {tls.key!r}: "
            "not a certificate and its key, without a password, in PEM"
        ) from error


def _read(field: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{field} is {path!r}: {error.strerror}") from error
