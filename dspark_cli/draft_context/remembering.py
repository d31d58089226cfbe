"""How long rows that left the draft cache are remembered, in cachefuls: times the rows that it holds."""

import logging
import os
from typing import Any

logger = logging.getLogger("vllm.dspark_tool")

VARIABLE = "VLLM_DSPARK_REMEMBERED_CACHEFULS"
"""vLLM hands variables that begin with VLLM_ to its workers, under Ray too."""
IN_THE_CACHE = 1
"""Nothing comes back. Rows that stay where they are, are known with their slots."""
BEHIND_A_CONNECTOR = 15
"""What left the GPU may come back from a larger tier. 128 to 256 bytes a slot; its KV takes a hundred times that."""
MOST = 255


def remembered_cachefuls(config: Any) -> int:
    """At least so many cachefuls of other rows; config: the worker's VllmConfig."""
    asked = os.environ.get(VARIABLE, "").strip()
    if asked.isascii() and asked.isdecimal() and len(asked) <= len(str(MOST)) and 1 <= int(asked) <= MOST:
        return int(asked)
    if asked:
        logger.warning("%s is no number from 1 to %d, and is passed over", VARIABLE, MOST)
    return IN_THE_CACHE if getattr(config, "kv_transfer_config", None) is None else BEHIND_A_CONNECTOR
