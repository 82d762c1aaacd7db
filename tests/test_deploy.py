"""The hub's settings, read as JupyterHub reads them, without one: every name is one that JupyterHub 6.1 or its systemd spawner knows."""

import os

from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from helpers.run.shared_gpu import service_address
from tests import ROOT

KNOWN = {
    "JupyterHub": {"spawner_class", "load_roles", "services"},
    "Spawner": {
        "cmd", "args", "start_timeout", "http_timeout", "mem_limit", "mem_guarantee", "cpu_limit", "environment", "pre_spawn_hook",
    },
    "SystemdSpawner": {"isolate_tmp", "disable_user_sudo"},
    "Authenticator": {"allow_existing_users"},
    "LocalAuthenticator": {"create_system_users"},
}  # fmt: skip


def test_the_guide_names_what_names_the_shared_gpu():
    said = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{variable}`" in said for variable in service_address.VARIABLES.values()) and service_address.FILE in said


def test_the_settings_have_names_that_the_hub_knows():
    settings: Config = PyFileConfigLoader("jupyterhub_config.py", path=str(ROOT / "deploy")).load_config()
    assert {name: set(section) for name, section in settings.items()} == KNOWN
    spawner = settings.Spawner
    assert spawner.mem_limit == "2G" and spawner.cpu_limit == 2.0
    assert spawner.cmd[1:] == ["lab", "--hub"] and os.path.isabs(spawner.cmd[0])
    assert set(settings.JupyterHub.load_roles[0]) == {"name", "scopes", "services"}
    assert settings.JupyterHub.load_roles[0]["services"] == [settings.JupyterHub.services[0]["name"]]
