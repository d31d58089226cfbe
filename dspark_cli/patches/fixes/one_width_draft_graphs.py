"""Let vLLM capture the draft step's CUDA graphs for the one width that a DFlash or DSpark drafter runs.

With a schedule of depths, vLLM plans graphs of one width a depth for target and drafter alike. These drafters always
draft the full depth and vLLM cuts their drafts afterwards. So the other widths cost memory and start-up time, hide the
graphs that fit (vLLM looks only at the next larger graph, of whatever width), and a depth of 0 may have width 0.
"""

import copy
from typing import Any


def apply() -> None:
    """Plan the drafter's graphs as if the depth never changed; target graphs are planned as before."""
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager
    from vllm.v1.worker.gpu.spec_decode.dflash.cudagraph import DFlashCudaGraphManager

    if "_init_candidates" in vars(DFlashCudaGraphManager):
        return

    def plan_one_width(manager: Any) -> None:
        vllm_config = manager.vllm_config
        manager.vllm_config = _with_one_depth(vllm_config)
        try:
            CudaGraphManager._init_candidates(manager)
        finally:
            manager.vllm_config = vllm_config

    DFlashCudaGraphManager._init_candidates = plan_one_width


def _with_one_depth(vllm_config: Any) -> Any:
    """A copy whose schedule of depths is gone: shallow, since vLLM only reads it here."""
    one_depth = copy.copy(vllm_config)
    one_depth.speculative_config = copy.copy(vllm_config.speculative_config)
    one_depth.speculative_config.num_speculative_tokens_per_batch_size = None
    return one_depth
