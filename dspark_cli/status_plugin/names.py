"""The names by which vLLM, its engine cores and the clients of a server find the plugin."""

import os

PLUGIN = "dspark_status"
"""Of both entry points. vLLM loads the endpoint only where VLLM_PLUGINS names it."""
ROUTE = "/dspark/status"
METRICS_ROUTE = "/dspark/metrics"
WORKERS_METHOD = "dspark_ask_workers"
ENGINE_METHOD = "dspark_describe_engine"


def asked_for() -> bool:
    """Whether VLLM_PLUGINS names the plugin.

    That variable is the switch because it reaches every process: vLLM copies its own variables to workers under Ray.
    """
    return PLUGIN in os.environ.get("VLLM_PLUGINS", "").split(",")
