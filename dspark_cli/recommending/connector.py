"""Whether a KV connector makes vLLM switch its hybrid KV cache manager off, as its sources say."""

import ast
import json
import re
from typing import Any

from dspark_cli.patches.patch import Symbol
from dspark_cli.patches.source_tree import SourceTree, UnreadableSource

FACTORY = "distributed/kv_transfer/kv_connector/factory.py"
BASE, HYBRID_BASE = "KVConnectorBase_V1", "SupportsHMA"
REGISTERED = re.compile(r'register_connector\(\s*"(?P<name>\w+)",\s*"vllm\.(?P<module>[\w.]+)",\s*"(?P<cls>\w+)"')


def without_hybrid_manager(tree: SourceTree, kv_transfer_config: str | None) -> str | None:
    """The connector that does not support several KV cache groups, where one is configured.

    None too where the sources of `tree` do not tell: a connector of another package, or one that is put together when
    it is imported. `kv_transfer_config` is the JSON of the option.
    """
    for name in _named(kv_transfer_config):
        try:
            if _supports_hybrid(tree, name) is False:
                return name
        except UnreadableSource:
            return None
    return None


def _named(text: str | None) -> list[str]:
    """The connector, or those that a MultiConnector has."""
    try:
        config: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return []
    if not isinstance(config, dict) or config.get("kv_connector_module_path"):
        return []
    extra = config.get("kv_connector_extra_config")
    children = extra.get("connectors") if isinstance(extra, dict) else None
    found = children if config.get("kv_connector") == "MultiConnector" and isinstance(children, list) else [config]
    names = [each.get("kv_connector") for each in found if isinstance(each, dict)]
    return [name for name in names if isinstance(name, str)]


def _supports_hybrid(tree: SourceTree, name: str) -> bool | None:
    factory = tree.text(Symbol(FACTORY, "")) or ""
    found = next((each for each in REGISTERED.finditer(factory) if each["name"] == name), None)
    if found is None:
        return None
    source = tree.text(Symbol(found["module"].replace(".", "/") + ".py", found["cls"]))
    if source is None:
        return None
    definition = ast.parse(source).body[0]
    bases = [ast.unparse(base) for base in definition.bases] if isinstance(definition, ast.ClassDef) else []
    if HYBRID_BASE in bases:
        return True
    return False if bases == [BASE] else None
