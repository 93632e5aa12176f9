"""Files that would let no link stand are refused when the gateway starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gateway.config import ConfigError, TlsConfig
from gateway.fleet.channel import encryption_of


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two keys, each with a certificate that signs itself."""
    folder = tmp_path_factory.mktemp("papers")
    for name in ("a", "b"):
        files = ("-keyout", f"{name}.key", "-out", f"{name}.crt")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-subj", f"/CN={name}"]
        curve = ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
        subprocess.run([*command, *curve, *files], cwd=folder, check=True, capture_output=True)
    (folder / "none.crt").write_text("no certificate")
    (folder / "empty.crt").write_text("")
    return folder


def test_a_pair_and_who_signs_are_taken(papers: Path) -> None:
    ca, cert, key = (str(papers / name) for name in ("a.crt", "b.crt", "b.key"))
    assert encryption_of(None) is None
    assert encryption_of(TlsConfig(ca)) is not None
    assert encryption_of(TlsConfig(ca, cert, key, "worker")) is not None


@pytest.mark.parametrize(
    ("ca", "cert", "key", "words"),
    [
        ("none.crt", None, None, ["link.tls.ca", "none.crt", "PEM"]),
        ("empty.crt", None, None, ["link.tls.ca", "empty.crt", "PEM"]),
        ("a.key", None, None, ["link.tls.ca", "a.key", "PEM"]),
        ("away.crt", None, None, ["link.tls.ca", "away.crt", "No such file"]),
        ("a.crt", "a.crt", "b.key", ["link.tls.cert", "a.crt", "b.key"]),
        ("a.crt", "none.crt", "b.key", ["link.tls.cert", "none.crt"]),
        ("a.crt", "a.crt", "away.key", ["link.tls.key", "away.key", "No such file"]),
    ],
)
def test_what_is_no_certificate_is_told_by_its_field(
    papers: Path, ca: str, cert: str | None, key: str | None, words: list[str]
) -> None:
    files = [None if name is None else str(papers / name) for name in (ca, cert, key)]
    with pytest.raises(ConfigError) as caught:
        encryption_of(TlsConfig(*files))  # type: ignore[arg-type]
    assert all(word in str(caught.value) for word in words), str(caught.value)
