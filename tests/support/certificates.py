"""Certificates of the tests' own: an authority, and what it issues for this machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Certificate authority. It writes each certificate and key into one PEM file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self._folder, self._key, self._name = (
            folder / f"{name}.pem",
            folder,
            ec.generate_private_key(ec.SECP256R1()),
            _name(name),
        )
        certificate = self._signed(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, password: str | None = None, expired: bool = False) -> Path:
        """Issue a certificate for this machine, as server or client. Its time is over if *expired* is set."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        built = self._signed(_name(name), key, expired=expired).add_extension(here, critical=False)
        certificate = built.sign(self._key, hashes.SHA256())
        sealed = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file = self._folder / f"{name}.pem"
        file.write_bytes(key.private_bytes(pem, form, sealed) + certificate.public_bytes(pem))
        return file

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC) - timedelta(days=2 if expired else 0)
        built = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        built = built.serial_number(x509.random_serial_number())
        return built.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))


def _name(text: str) -> x509.Name:
    """Server and client have different organizations: else mongod treats the client as a member of the set."""
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"of {text}"), x509.NameAttribute(NameOID.COMMON_NAME, text)]
    )
