"""All patches, in the order in which they are shown."""

from dspark_cli.patches.patch import Patch
from dspark_cli.patches.rows import (
    aligned_draft_specs,
    dcp_after_wake_up,
    dcp_metadata,
    dcp_sizing,
    dcp_slot_mapping,
    dcp_specs,
    draft_context_v1,
    draft_context_v2,
    draft_groups_apart,
    dspark_target_metadata,
    eager_non_causal_flashinfer,
    explicit_depth_zero,
    graph_outputs_alive,
    inert_padding,
    non_causal_on_sm100,
    one_width_draft_graphs,
    race_free_shift,
    rank_equal_seeds,
    rank_equal_slots,
    refuse_backend_without_dcp,
    refuse_mixed_specs_without_hma,
    skipped_drafter,
    sums_without_pynccl,
    trailing_block_drop,
    unaligned_restores,
    unwrap_uniform_specs,
    zero_width_graphs,
)

PATCHES: tuple[Patch, ...] = (
    # The context that the drafter reads.
    draft_context_v2.PATCH,
    draft_context_v1.PATCH,
    unaligned_restores.PATCH,
    skipped_drafter.PATCH,
    race_free_shift.PATCH,
    trailing_block_drop.PATCH,
    # The draft step: attention, CUDA graphs, depth.
    dspark_target_metadata.PATCH,
    non_causal_on_sm100.PATCH,
    eager_non_causal_flashinfer.PATCH,
    graph_outputs_alive.PATCH,
    inert_padding.PATCH,
    one_width_draft_graphs.PATCH,
    zero_width_graphs.PATCH,
    explicit_depth_zero.PATCH,
    # Tensor-parallel ranks that must agree.
    rank_equal_seeds.PATCH,
    rank_equal_slots.PATCH,
    # The shape of the draft cache.
    draft_groups_apart.PATCH,
    aligned_draft_specs.PATCH,
    unwrap_uniform_specs.PATCH,
    # The draft cache under decode context parallelism.
    dcp_specs.PATCH,
    dcp_sizing.PATCH,
    dcp_slot_mapping.PATCH,
    dcp_metadata.PATCH,
    dcp_after_wake_up.PATCH,
    sums_without_pynccl.PATCH,
    refuse_backend_without_dcp.PATCH,
    refuse_mixed_specs_without_hma.PATCH,
)
