"""JupyterHub settings for a class: what each learner's server is, may use and finds.

For The Littlest JupyterHub copy this file to /opt/tljh/config/jupyterhub_config.d/; for any other, jupyterhub_config.py beside it loads it.
README.md says what has to lie where. A variable of the hub's environment changes what is in capitals here.
"""

import os
import subprocess
from pathlib import Path

c = get_config()  # noqa: F821 - JupyterHub's

ROOT = Path(os.environ.get("GEMM_LADDER_ROOT", "/opt/gemm-ladder"))
COURSE = ROOT / "env/bin/course"  # in the environment that all learners share and none can write to
CACHE = ROOT / "shared/cache"  # compiled kernels and machine code of the course, filled once
GPU = Path(os.environ.get("GEMM_LADDER_GPU_FOLDER", ROOT / "gpu"))  # the folder of `course gpu serve`, if there is one
GPU_URL = os.environ.get("GEMM_LADDER_GPU_URL", "unix:/run/gemm-ladder/gpu.sock")

c.Spawner.cmd = [str(COURSE), "lab", "--hub"]  # copies the lessons into the learner's home, or brings them up to date, then serves
c.Spawner.args = [
    "--MappingKernelManager.cull_idle_timeout=7200",  # seconds; a kernel whose page is open stays
    "--MappingKernelManager.cull_interval=300",
]
c.Spawner.start_timeout = 120  # seconds: thirty learners press the button in the same minute
c.Spawner.http_timeout = 120
c.Spawner.mem_limit = "2G"  # of all kernels and the server of one learner; README.md says what a lesson takes
c.Spawner.mem_guarantee = "512M"
c.Spawner.cpu_limit = 2.0  # so that one endless kernel leaves the others theirs
c.Spawner.environment = {
    "GEMM_LADDER_SHARED_CACHE": str(CACHE),
    "GEMM_LADDER_PROCESSES": "1",  # a check of a large kernel would have a second one, of 250 MB
    "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2",  # NumPy would start a thread per core for every learner
}  # fmt: skip


def name_the_gpu(spawner) -> None:
    """Give a learner's server the address of the shared GPU and a token of the learner's own."""
    if not (GPU / "secret").exists():
        return
    command = [str(COURSE), "gpu", "token", spawner.user.name, "--folder", str(GPU)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    named = {
        "GEMM_LADDER_GPU": GPU_URL, "GEMM_LADDER_GPU_TOKEN": made.stdout.strip(),
        "GEMM_LADDER_GPU_CERTIFICATE": str(ROOT / "shared/certificate.pem"),  # a copy that learners can read; a socket needs none
    }  # fmt: skip
    spawner.environment = {**spawner.environment, **named}


c.Spawner.pre_spawn_hook = name_the_gpu
