"""The door behind certificates that openssl makes on the spot."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.worker.chain import expected
from tests.worker.door import Client, Worker
from worker.config import ConfigError, WorkerConfig, load
from worker.tls import credentials


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_key(folder: Path, name: str) -> None:
    openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")


def make_authority(folder: Path, name: str) -> None:
    make_key(folder, name)
    subject = ["-subj", f"/CN={name}", "-days", "2", "-key", f"{name}.key", "-out", f"{name}.pem"]
    openssl(folder, "req", "-x509", "-new", *subject)


def make_certificate(folder: Path, name: str, authority: str) -> None:
    make_key(folder, name)
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    request = ["-subj", f"/CN={name}", "-key", f"{name}.key", "-out", f"{name}.csr"]
    openssl(folder, "req", "-new", *request)
    signer = ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial"]
    signed = ["-days", "2", "-extfile", "names", "-in", f"{name}.csr", "-out", f"{name}.pem"]
    openssl(folder, "x509", "-req", *signer, *signed)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a worker and a gateway, and a stranger's that another authority signed."""
    folder = tmp_path_factory.mktemp("papers")
    for authority in ("ours", "theirs"):
        make_authority(folder, authority)
    for name, authority in (("worker", "ours"), ("gateway", "ours"), ("stranger", "theirs")):
        make_certificate(folder, name, authority)
    return folder


def settings(papers: Path, **more: str) -> WorkerConfig:
    files = {"tls_cert": "worker.pem", "tls_key": "worker.key"} | more
    return load(None, {name: str(papers / file) for name, file in files.items()})


@dataclass
class SecureDoor:
    """A worker that asks gateways for a certificate of our authority."""

    papers: Path
    port: int

    def channel(self, who: str | None) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(
            f"127.0.0.1:{self.port}",
            grpc.ssl_channel_credentials(
                (self.papers / "ours.pem").read_bytes(),
                (self.papers / f"{who}.key").read_bytes() if who else None,
                (self.papers / f"{who}.pem").read_bytes() if who else None,
            ),
        )


@pytest.fixture(params=["ours.pem", None], ids=["mutual", "one-sided"])
async def door(
    request: pytest.FixtureRequest, papers: Path, smollm2_folder: Path
) -> AsyncIterator[SecureDoor]:
    worker = Worker(smollm2_folder)
    asked = {"tls_client_ca": request.param} if request.param else {}
    shown = credentials(settings(papers, **asked))
    assert shown is not None
    port = worker.server.add_secure_port("127.0.0.1:0", shown)
    worker.engine.start(lambda: None)
    await worker.server.start()
    yield SecureDoor(papers, port)
    await worker.server.stop(grace=0)
    worker.engine.stop()


async def linked(channel: grpc.aio.Channel) -> None:
    client = Client(channel)
    await client.greet()
    await client.submit(1, [1, 2, 3])
    await client.until(1)
    assert client.tokens[1, 0] == expected([1, 2, 3], 6)
    await client.leave()


@pytest.mark.parametrize("door", ["ours.pem", None], indirect=True)
async def test_a_gateway_with_a_certificate_of_ours_is_served(door: SecureDoor) -> None:
    await linked(door.channel("gateway"))


@pytest.mark.parametrize("door", ["ours.pem"], indirect=True)
@pytest.mark.parametrize("who", [None, "stranger"])
async def test_a_gateway_without_one_or_with_another_authoritys_is_refused(
    door: SecureDoor, who: str | None
) -> None:
    client = Client(door.channel(who))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.greet()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await client.channel.close(None)


@pytest.mark.parametrize("door", ["ours.pem"], indirect=True)
async def test_a_gateway_that_does_not_encrypt_is_refused(door: SecureDoor) -> None:
    client = Client(grpc.aio.insecure_channel(f"127.0.0.1:{door.port}"))
    with pytest.raises(grpc.aio.AioRpcError):
        await client.greet()
    await client.channel.close(None)


@pytest.mark.parametrize("door", [None], indirect=True)
async def test_without_a_client_authority_any_gateway_is_served_encrypted(
    door: SecureDoor,
) -> None:
    await linked(door.channel(None))


def test_without_certificates_the_link_is_in_the_clear() -> None:
    assert credentials(load(None, {})) is None


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"tls_cert": "absent.pem"}, r"^tls_cert is '.*absent.pem': it can't be read \(No such"),
        ({"tls_key": "absent.key"}, r"^tls_key is '.*absent.key': it can't be read \(No such"),
        ({"tls_client_ca": "absent"}, r"^tls_client_ca is '.*absent': it can't be read \(No such"),
        ({"tls_key": "gateway.key"}, r"^tls_cert is .*and its key.*KEY_VALUES_MISMATCH"),
        ({"tls_cert": "worker.key"}, r"^tls_cert is .*worker.key' and tls_key .*in PEM"),
        ({"tls_key": "locked.key"}, r"^tls_cert is .*locked.key': .*without a password"),
        ({"tls_client_ca": "names"}, r"^tls_client_ca is .*names': certificates in PEM"),
    ],
)
def test_a_file_that_does_not_serve_is_named(
    papers: Path, files: dict[str, str], says: str
) -> None:
    locked = ["-aes256", "-passout", "pass:secret", "-out", "locked.key"]
    openssl(papers, "ec", "-in", "worker.key", *locked)
    with pytest.raises(ConfigError, match=says):
        credentials(settings(papers, **files))
