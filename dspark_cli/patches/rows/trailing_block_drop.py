"""A prefix hit that keeps its last block, where the drafter does not need it computed again."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="trailing_block_drop",
    title="the trailing block of a prefix hit can be kept (`disable_eagle_block_drop`)",
    symbols=(
        Symbol("config/speculative.py", "SpeculativeConfig.use_eagle"),
        Symbol("config/speculative.py", "SpeculativeConfig.disable_eagle_block_drop"),
        Symbol("config/speculative.py", "SpeculativeConfig.needs_eagle_block_drop"),
        Symbol("config/speculative.py", "SpeculativeConfig.use_eagle_block_drop"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            "config/speculative.py: SpeculativeConfig has no such option, and use_eagle() counts dflash and dspark:"
            " every hit gives up its last block. Scheduler, planner and connectors each ask use_eagle() of their own",
            {"0.26.0": "76bdf4526ab92d83"},
        ),
        Reading(
            Status.NATIVE,
            "config/speculative.py: SpeculativeConfig.use_eagle_block_drop is use_eagle() and not"
            " disable_eagle_block_drop",
            {"0.30.0": "d05f61c672be75cd"},
        ),
        Reading(
            Status.NATIVE,
            "config/speculative.py: SpeculativeConfig.needs_eagle_block_drop is false for dflash and dspark, whose"
            " draft KV at a position comes from the target there alone: no block is dropped, whatever the option"
            " says",
            {"0.33.0": "b640eb546c874726"},
        ),
    ),
    references=("vllm-project/vllm#53388",),
    warned_by="inspect-cache: trailing-block-drop",
)
