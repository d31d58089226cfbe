"""Stand-ins for vLLM's process groups: a rank's place among others, without a process to talk to.

Building a model asks its groups for sizes and places only. So a plan for several GPUs needs no GPU and no other
process: the groups are simply said to be that large.
"""

from vllm.config import VllmConfig
from vllm.distributed import parallel_state


class PlannedGroup:
    """The part of vLLM's GroupCoordinator that has no communication in it, seen from its first rank."""

    device_group = cpu_group = device_communicator = mq_broadcaster = None
    rank = rank_in_group = local_rank = first_rank = 0
    is_first_rank = True

    def __init__(self, size: int) -> None:
        self.world_size = size
        self.ranks = list(range(size))
        self.last_rank = size - 1
        self.is_last_rank = size == 1


def take_first_rank(config: VllmConfig) -> None:
    """Make this process the first rank of the groups that `config` asks for, as far as model building can tell."""
    tensor_parallel = config.parallel_config.tensor_parallel_size
    sizes = dict.fromkeys(("_PP", "_DCP", "_PCP", "_DP", "_EPLB"), 1)
    sizes |= dict.fromkeys(("_WORLD", "_INNER_DP_WORLD", "_TP", "_ETP", "_EP"), tensor_parallel)
    for name, size in sizes.items():
        if hasattr(parallel_state, name):
            setattr(parallel_state, name, PlannedGroup(size))
