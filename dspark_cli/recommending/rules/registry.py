"""All rules, in the order in which their choices are shown."""

from collections.abc import Callable, Iterator

from dspark_cli.findings.finding import Finding, NotChecked
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.rules import (
    adaptive_verification,
    batched_tokens,
    block_size,
    cache_groups,
    configuration_file,
    context_parallel,
    context_parallel_interleave,
    draft_attention,
    draft_context,
    draft_kv_dtype,
    draft_sampling,
    draft_tokens,
    drafter_fits,
    graphs,
    hybrid_manager,
    lengths,
    method,
    pipeline_parallel,
    prefix_caching,
    trailing_block,
)
from dspark_cli.recommending.situation import Situation

Rule = Callable[[Situation], Iterator[Choice | Finding | NotChecked]]

RULES: tuple[Rule, ...] = (
    drafter_fits.rule,
    method.rule,
    draft_tokens.rule,
    draft_attention.rule,
    draft_sampling.rule,
    draft_kv_dtype.rule,
    adaptive_verification.rule,
    trailing_block.rule,
    prefix_caching.rule,
    draft_context.rule,
    batched_tokens.rule,
    block_size.rule,
    graphs.rule,
    lengths.rule,
    hybrid_manager.rule,
    context_parallel.rule,
    context_parallel_interleave.rule,
    pipeline_parallel.rule,
    cache_groups.rule,
    configuration_file.rule,
)
