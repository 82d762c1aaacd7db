"""Where the service of a shared GPU is, as the notebook's environment or a file of its user says.

Environment: GEMM_LADDER_GPU (https://host:port, or unix:/path of a socket), GEMM_LADDER_GPU_TOKEN, GEMM_LADDER_GPU_CERTIFICATE (the
path of the service's certificate). Or `shared_gpu.toml` in the data folder, with url, token and certificate.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from helpers.errors import CourseError
from helpers.files import read_whole
from helpers.paths import data_folder
from helpers.run.gpu import OFF_SWITCH

VARIABLES = {"url": "GEMM_LADDER_GPU", "token": "GEMM_LADDER_GPU_TOKEN", "certificate": "GEMM_LADDER_GPU_CERTIFICATE"}
FILE = "shared_gpu.toml"


@dataclass(frozen=True)
class ServiceAddress:
    """url: "https://host:port" or "unix:/path". token: says whose kernels these are. certificate: of the service, a path or ""."""

    url: str
    token: str
    certificate: str = ""


def configured() -> bool:
    """Whether a service is named, and the GPU is not switched off. It may still not be there."""
    return not os.environ.get(OFF_SWITCH) and bool(os.environ.get(VARIABLES["url"]) or (data_folder() / FILE).is_file())


def named() -> ServiceAddress:
    """The service that is named. Raises CourseError with what to write where something is missing."""
    given = {name: os.environ.get(variable, "") for name, variable in VARIABLES.items()}
    where = "The environment"
    if not given["url"]:
        path = data_folder() / FILE
        if not path.exists():
            raise CourseError(
                f"No shared GPU is named here: neither by {', '.join(VARIABLES.values())} in the environment, nor in {path}. "
                "Whoever runs one has what belongs there."
            )
        given, where = given | _read(path), str(path)
    address = ServiceAddress(given["url"], given["token"], given["certificate"])
    if not address.url.startswith(("https://", "unix:/")):
        raise CourseError(f"{where} names {address.url!r} as the shared GPU: it is https://host:port or unix:/path of its socket.")
    if not address.token:
        raise CourseError(f"{where} names a shared GPU and no token: ask whoever runs it, who has `course gpu token YOUR_NAME`.")
    if address.url.startswith("https://") and not Path(address.certificate).is_file():
        raise CourseError(
            f"{where} names {address.certificate!r} as the certificate of the shared GPU, and there is no such file: it is the "
            "certificate.pem that `course gpu serve` wrote."
        )
    return address


def _read(path: Path) -> dict[str, str]:
    """What the file says. Raises CourseError."""
    try:
        found = tomllib.loads(read_whole(path).decode())
    except (OSError, ValueError) as error:
        raise CourseError(f"{path}, which names the shared GPU, cannot be read: {str(error).splitlines()[0]}.") from None
    strange = [name for name, value in found.items() if name not in VARIABLES or not isinstance(value, str)]
    if strange or "url" not in found:
        raise CourseError(
            f'{path} says {", ".join(strange) or "nothing of a url"}: it has three lines, url = "…", token = "…", certificate = "…".'
        )
    return found
