"""The names by which vLLM, its workers and the clients of a server find the plugin."""

import os

PLUGIN = "dspark_status"
"""Of both entry points. vLLM loads the endpoint only where VLLM_PLUGINS names it."""
ROUTE = "/dspark/status"
METRICS_ROUTE = "/dspark/metrics"
WORKER_METHOD = "dspark_kv_cache"
WORKER_COUNTERS = "dspark_draft_context"
ENGINE_METHOD = "dspark_acceptance_by_restored"


def asked_for() -> bool:
    """Whether VLLM_PLUGINS names the plugin.

    That variable is the switch because it reaches every process: vLLM copies its own variables to workers under Ray.
    """
    return PLUGIN in os.environ.get("VLLM_PLUGINS", "").split(",")
