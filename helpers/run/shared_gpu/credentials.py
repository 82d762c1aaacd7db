"""What tells the service of a shared GPU from others, and one learner from another: a certificate and tokens.

A token is the learner's name and its signature by the service's secret, so that nothing has to be entered anywhere when a learner
joins. A new secret makes all tokens void.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from helpers.errors import CourseError
from helpers.paths import data_folder

CERTIFICATE, PRIVATE, SECRET = "certificate.pem", "private.pem", "secret"
_DAYS = 365  # that a certificate is good for
_NAME = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]{0,63}")


def usual_folder() -> Path:
    """Where the service of this user has its secret, certificate and log, unless another folder is named."""
    return data_folder() / "shared-gpu"


def token(secret: bytes, learner: str) -> str:
    """The token of a learner. Raises CourseError for a name that is none."""
    if not _NAME.fullmatch(learner):
        raise CourseError(f"{learner!r} is no learner's name: it has up to 64 letters, digits and . _ @ + -, and no dot in front.")
    return f"{learner}:{hmac.new(secret, learner.encode(), hashlib.sha256).hexdigest()}"


def learner(secret: bytes, given: str) -> str | None:
    """Whose token it is; None if it is nobody's."""
    name, colon, _ = given.rpartition(":")
    if not colon or not _NAME.fullmatch(name):
        return None
    return name if hmac.compare_digest(token(secret, name).encode(), given.encode("utf-8", "replace")) else None


def made_secret(folder: Path) -> bytes:
    """The secret of a service that has been started. Raises CourseError where there is none: a token of a new one would be nobody's."""
    try:
        there = (folder / SECRET).exists()
    except OSError as error:
        raise CourseError(
            f"The secret of the shared GPU, {folder / SECRET}, cannot be read: {error.strerror}. Make tokens as the service's user."
        ) from None
    if not there:
        raise CourseError(
            f"There is no secret in {folder}, so no service knows a token made there. Name the folder of the service with --folder, or "
            "start `course gpu serve` there first."
        )
    return secret(folder)


def secret(folder: Path) -> bytes:
    """The service's secret, made if there is none. Raises CourseError if it cannot be read or made."""
    path = folder / SECRET
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _private(path, secrets.token_hex(32).encode())
        return path.read_bytes().strip()
    except OSError as error:
        raise CourseError(f"The secret of the shared GPU, {path}, cannot be used: {error.strerror}.") from None


def certificate(folder: Path, hosts: Sequence[str]) -> tuple[Path, Path]:
    """The service's certificate and its private key, made for `hosts` if there is none. Raises CourseError if it has expired."""
    from cryptography import x509  # here: only a service has it

    path, key = folder / CERTIFICATE, folder / PRIVATE
    if not path.exists() or not key.exists():
        key.unlink(missing_ok=True)
        made, private = self_signed(hosts, datetime.datetime.now(datetime.UTC), _DAYS)
        _private(key, private)
        path.write_bytes(made)
        path.chmod(0o644)
    try:
        end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except ValueError:
        raise CourseError(f"{path} is no certificate. Delete it and {key}: a new one is made.") from None
    if end < datetime.datetime.now(datetime.UTC):
        raise CourseError(f"{path} expired on {end:%Y-%m-%d}. Delete it and start again; learners then need the new certificate.pem.")
    return path, key


def self_signed(hosts: Sequence[str], start: datetime.datetime, days: int) -> tuple[bytes, bytes]:
    """A certificate for these names and addresses, and its private key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "GEMM Ladder shared GPU")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start - datetime.timedelta(minutes=5)).not_valid_after(start + datetime.timedelta(days=days))
    builder = builder.add_extension(x509.SubjectAlternativeName([_general(x509, host) for host in hosts]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption(),
    )  # fmt: skip
    return made.public_bytes(serialization.Encoding.PEM), private


def _general(x509, host: str):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(path: Path, data: bytes) -> None:
    """Write a file that nobody else can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
