"""Stand-ins for vLLM's process groups: a rank's place among others, without a process to talk to.

Building a model asks its groups for sizes and places only. So a plan for several GPUs needs no GPU and no other
process: the groups are simply said to be that large.
"""

from vllm.config import VllmConfig
from vllm.distributed import parallel_state


class PlannedGroup:
    """The part of vLLM's GroupCoordinator that has no communication in it, seen from the rank `place`."""

    device_communicator = mq_broadcaster = None
    local_rank = first_rank = 0

    def __init__(self, size: int, place: int = 0) -> None:
        self.world_size = size
        self.rank = self.rank_in_group = place
        self.ranks = list(range(size))
        self.last_rank = size - 1
        self.is_first_rank = place == 0
        self.is_last_rank = place == size - 1
        self.device_group = self.cpu_group = _ProcessGroup(size, place)


class _ProcessGroup:
    """The two questions that model code asks of torch's process group."""

    def __init__(self, size: int, place: int) -> None:
        self._size, self._place = size, place

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._place


def take_place(config: VllmConfig, stage: int = 0) -> None:
    """Make this process the first rank of pipeline stage `stage` of the groups that `config` asks for."""
    parallel = config.parallel_config
    tensor = parallel.tensor_parallel_size
    groups = dict.fromkeys(("_DP", "_EPLB"), PlannedGroup(1))
    groups |= dict.fromkeys(("_WORLD", "_INNER_DP_WORLD"), PlannedGroup(parallel.world_size))
    groups |= dict.fromkeys(("_TP", "_ETP", "_EP"), PlannedGroup(tensor))
    groups["_PP"] = PlannedGroup(parallel.pipeline_parallel_size, stage)
    groups["_DCP"] = PlannedGroup(parallel.decode_context_parallel_size)
    groups["_PCP"] = PlannedGroup(getattr(parallel, "prefill_context_parallel_size", 1))
    for name, group in groups.items():
        if hasattr(parallel_state, name):
            setattr(parallel_state, name, group)
