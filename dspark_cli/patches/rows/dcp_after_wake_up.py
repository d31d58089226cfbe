"""Per-group context parallel constants after sleep and wake-up."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="dcp_after_wake_up",
    title="per-group context parallel constants survive sleep and wake-up",
    symbols=(
        Symbol("v1/worker/gpu_worker.py", "Worker.initialize_from_config"),
        Symbol("v1/worker/gpu_worker.py", "Worker.wake_up"),
        Symbol("v1/worker/gpu/model_runner.py", "GPUModelRunner.post_kv_cache_wake_up"),
        Symbol("v1/worker/gpu/block_table.py", "BlockTables.init_block_table_layout_tensors"),
        Symbol("device_allocator/sleep_mode_backend.py", "CuMemBackend.suspend"),
        Symbol("device_allocator/cumem.py", "CuMemAllocator.wake_up"),
    ),
    readings=(
        Reading(
            Status.NOT_NEEDED,
            "v1/worker/gpu/model_runner.py: GPUModelRunner.post_kv_cache_wake_up rebuilds the layout tensors of the"
            " block tables; rank, size and interleave are Python numbers, and no group has its own",
            {"0.26.0": "e62ac8ae09c69040", "0.27.0": "2de651c3fb49b482", "0.28.0": "4461c6b2a2110f09"},
        ),
        Reading(
            Status.NOT_NEEDED,
            "v1/worker/gpu_worker.py: Worker.initialize_from_config allocates only the caches in the pool that sleep"
            " discards (kv_cache_allocation_context); block tables and dcp_sharded lie outside it",
            {"0.29.0": "b59695e4358454fd", "0.30.0": "7efa5c87e805327a", "0.31.0": "2ccccc0c60e495da"},
        ),
        Reading(
            Status.NATIVE,
            "v1/worker/gpu_worker.py: block tables lie in the pool tagged runtime, which CuMemBackend.suspend copies"
            " to the host at every level and CuMemAllocator.wake_up brings back whatever tags it is asked for",
            {"0.32.0": "682eb0c7531bf015", "0.33.0": "e8ba7870d2b70d99"},
        ),
    ),
    references=("local-inference-lab/vllm#529",),
    warned_by="inspect-cache: dcp-sleep",
)
