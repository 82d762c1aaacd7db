"""A whole JupyterHub for a class on one machine, where The Littlest JupyterHub is not used: `jupyterhub -f deploy/jupyterhub_config.py`.

Learners are users of the machine and log in with their passwords (PAM). With systemd each learner's server is a unit of its own, which
keeps the limits of memory and time; without it nothing does.
"""

import sys
from pathlib import Path

c = get_config()  # noqa: F821 - JupyterHub's

c.JupyterHub.spawner_class = "systemd" if Path("/run/systemd/system").is_dir() else "localprocess"
c.SystemdSpawner.isolate_tmp = True
c.SystemdSpawner.disable_user_sudo = True
c.Authenticator.allow_existing_users = True
c.LocalAuthenticator.create_system_users = False

# Servers that nobody has looked at for an hour are ended; what was typed is saved, and the next login starts a new one.
c.JupyterHub.load_roles = [
    {"name": "culler", "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"], "services": ["culler"]}
]
c.JupyterHub.services = [{"name": "culler", "command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=3600"]}]

load_subconfig(str(Path(__file__).with_name("gemm_ladder.py")))  # noqa: F821 - traitlets'
