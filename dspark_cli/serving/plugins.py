"""VLLM_PLUGINS for a server with plugins of ours.

vLLM loads every plugin it finds while that variable is unset, except endpoint plugins; once set, only those it names,
of every kind. So naming ours alone would switch off the user's others, and a user's list without ours switches them
off.
"""

import importlib.metadata
import os
from collections.abc import Iterable, Sequence

from dspark_cli.errors import NotFit
from dspark_cli.sources.vllm_install import VllmInstall
from dspark_cli.status_plugin.names import PLUGIN

VARIABLE = "VLLM_PLUGINS"
GROUPS = "vllm."
ENDPOINTS = "vllm.endpoint_plugins"
GENERAL = "vllm.general_plugins"
DRAFT_CONTEXT = "dspark_draft_context"
PATCHES = "dspark_patches"

Installed = Iterable[tuple[str, str]]
"""Entry points as (group, name)."""


def plugin_environment(install: VllmInstall, general: Sequence[str], status: bool) -> dict[str, str]:
    """The variable with which a server of `install` loads our plugins; nothing where it would load them anyway.

    general: names of ours that need no more than to be loaded. status: whether the status plugin is wanted too.

    Raises:
        NotFit: a plugin is not installed, this vLLM has none of its kind, or another one would come on with it.
    """
    installed = installed_plugins()
    for name in general:
        _require((GENERAL, name), installed)
    given = status_environment(install)[VARIABLE] if status else os.environ.get(VARIABLE)
    return {} if given is None or not (general or status) else {VARIABLE: plugins_with(given, general)}


def plugins_with(given: str, names: Sequence[str]) -> str:
    """The variable's value with `names` among those that it names."""
    there = [name for name in given.split(",") if name]
    return ",".join([*there, *(name for name in names if name not in there)])


def status_environment(install: VllmInstall) -> dict[str, str]:
    """The variable that switches the status plugin on in a server of `install`.

    Raises:
        NotFit: this vLLM has no endpoint plugins, the plugin is not installed, or another one would come on with it.
    """
    if not (install.location / "plugins" / "endpoint_plugins").is_dir():
        raise NotFit(f"vLLM {install.version} has no endpoint plugins, which --status needs", "leave --status out")
    return {VARIABLE: plugins_with_status(os.environ.get(VARIABLE), installed_plugins())}


def installed_plugins() -> list[tuple[str, str]]:
    """The entry points of vLLM's plugin groups that are installed for this interpreter.

    Of all copies of a distribution, for the server may see another one first than this process, which may have the
    current folder on its path.
    """
    plugins = (plugin for distribution in importlib.metadata.distributions() for plugin in distribution.entry_points)
    return sorted({(plugin.group, plugin.name) for plugin in plugins if plugin.group.startswith(GROUPS)})


def plugins_with_status(given: str | None, installed: Installed) -> str:
    """VLLM_PLUGINS with the status plugin and all that was on before.

    `given` is the variable's value, None where it is unset; then every installed plugin was on except endpoints.

    Raises:
        NotFit: the plugin is not installed, or an endpoint that was off has the name of a plugin that must stay on.
    """
    plugins = list(installed)
    endpoints = {name for group, name in plugins if group == ENDPOINTS}
    _require((ENDPOINTS, PLUGIN), plugins)
    if given is not None:
        kept = [name for name in given.split(",") if name]
    else:
        kept = sorted({name for group, name in plugins if group != ENDPOINTS} - {PLUGIN})
        if also := sorted(endpoints.intersection(kept)):
            raise NotFit(
                f"--status would switch on the endpoint of {', '.join(also)} too, for another plugin has the same name",
                f"say which plugins to load: {VARIABLE}=NAME,NAME dspark-tool serve ... --status",
            )
    return ",".join([*(name for name in kept if name != PLUGIN), PLUGIN])


def _require(plugin: tuple[str, str], installed: Sequence[tuple[str, str]]) -> None:
    if plugin not in installed:
        raise NotFit(
            f"the plugin {plugin[1]} is not installed for this Python", "install dspark-tool again: pip install ."
        )
