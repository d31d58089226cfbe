"""Which KV connectors make vLLM switch its hybrid KV cache manager off, read in the sources of the installed one."""

import json

import pytest

from dspark_cli.patches.source_tree import SourceTree
from dspark_cli.recommending.connector import without_hybrid_manager
from dspark_cli.sources.vllm_install import find_vllm


@pytest.fixture(scope="module")
def tree() -> SourceTree:
    return SourceTree(find_vllm().location)


def config(*connectors: str) -> str:
    children = [{"kv_connector": name, "kv_role": "kv_both"} for name in connectors]
    if len(children) == 1:
        return json.dumps(children[0])
    return json.dumps({"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": children}})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (config("LMCacheConnectorV1"), "LMCacheConnectorV1"),
        (config("ExampleConnector"), "ExampleConnector"),
        (config("OffloadingConnector"), None),
        (config("MooncakeConnector"), None),
        (config("OffloadingConnector", "LMCacheConnectorV1"), "LMCacheConnectorV1"),
        (config("OffloadingConnector", "MooncakeStoreConnector"), None),
    ],
)
def test_a_connector_of_vllm_says_whether_it_supports_several_groups(
    tree: SourceTree, text: str, name: str | None
) -> None:
    assert without_hybrid_manager(tree, text) == name


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "not json",
        "[" * 5000,
        '{"kv_connector": 7}',
        '{"kv_connector": "Elsewhere", "kv_connector_module_path": "a.package"}',
        '{"kv_connector": "LMCacheConnectorV1", "kv_connector_module_path": "a.package"}',
        '{"kv_connector": "NoSuchConnector"}',
        '{"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": 3}}',
    ],
)
def test_nothing_is_said_of_what_the_sources_do_not_tell(tree: SourceTree, text: str | None) -> None:
    assert without_hybrid_manager(tree, text) is None
