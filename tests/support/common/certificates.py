"""A certificate of this machine for tests, and files with it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """Files with a certificate that vouches for itself, and with its key."""

    certificate: Path
    key: Path

    def contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return what a server needs to show it, and what a client needs to believe it."""
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(self.certificate, self.key)
        return own, ssl.create_default_context(cafile=str(self.certificate))


def certificate(folder: Path, *, name: str = "localhost", days: tuple[int, int] = (-1, 1)) -> Certificate:
    """Return a certificate for a host, good between two days, counted from today."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    addresses = [x509.IPAddress(ip_address("127.0.0.1"))] if name == "localhost" else []
    first, last = (datetime.now(UTC) + timedelta(days=day) for day in days)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(last)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name), *addresses]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    found = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    found.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    found.key.write_bytes(private.private_bytes(serialization.Encoding.PEM, form, plain))
    found.key.chmod(0o600)
    return found
