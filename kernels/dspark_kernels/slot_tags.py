"""Slot tags: which slots of a draft group's KV cache hold valid context, and of whom.

Every slot has an int32 tag made of the (token id, position) whose context KV was stored there; 0 is "not valid". A slot
is valid for a request at position p when its tag is that of the request's own token at p. Tags are written where
context KV is written, cleared where a draft query overwrites a slot, and compared when a request is admitted with
restored tokens. The tag says nothing of the tokens before p: a slot left by another request with the same token at the
same position passes.

Order. Where a slot is both a context and a query slot of one step, its KV is the query's, which is written later. So
`store_context_tags` comes first and `clear_query_tags` second, each a launch of its own: programs of one launch are not
ordered.

Context parallelism. Under it a rank's slot mapping is PAD for the tokens of other ranks, and a rank could judge its own
slots only. Tag *virtual slots* instead: virtual block size = block_size * cp_size, slot = block id * virtual block size
+ offset in the virtual block, a tag tensor of blocks * virtual block size. Every rank then sees every token's tag and
all ranks get the same hidden length without talking to each other.
"""

import torch
import triton
import triton.language as tl

from dspark_kernels.draft_groups import DraftBlockTables, GroupTensors
from dspark_kernels.launch_checks import INDEX_DTYPES, require_table, require_vector

TOKENS_A_PROGRAM = 1024
TAG_WARPS = 4
CHECK_WARPS = 8


@triton.jit  # type: ignore[untyped-decorator]
def mix32(word: tl.tensor) -> tl.tensor:
    """MurmurHash3's finalizer: a bijection of 32-bit words in which every input bit moves every output bit."""
    word = (word ^ (word >> 16)) * 0x85EBCA6B
    word = (word ^ (word >> 13)) * 0xC2B2AE35
    return word ^ (word >> 16)


@triton.jit  # type: ignore[untyped-decorator]
def slot_tag(token: tl.tensor, position: tl.tensor) -> tl.tensor:
    """tag = mix(token ^ mix(position + 0x9E3779B9)) as int32, and 1 where that is 0.

    At one position two tokens never share a tag, nor do two positions of one token (but for the 0 that becomes 1);
    different tokens at different positions do with a chance of 2^-32.
    """
    where = mix32(position.to(tl.uint32) + 0x9E3779B9)
    tag = mix32(token.to(tl.uint32) ^ where).to(tl.int32, bitcast=True)
    return tl.where(tag == 0, 1, tag)


# Not specialized on alignment: tags are scattered, so wide loads would only be reshuffled through shared memory.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["count", "num_slots"],
    do_not_specialize_on_alignment=["tags", "slot_mapping", "token_ids", "positions"],
)
def store_tags_kernel(
    tags: tl.tensor,
    num_slots: tl.tensor,
    slot_mapping: tl.tensor,
    token_ids: tl.tensor,
    positions: tl.tensor,
    count: tl.tensor,
    block: tl.constexpr,
) -> None:
    """tags[slot_mapping[i]] = slot_tag(token_ids[i], positions[i]) for slots in range. Grid: (ceil(count / block),)."""
    token = tl.program_id(0) * block + tl.arange(0, block)
    live = token < count
    slot = tl.load(slot_mapping + token, mask=live, other=-1).to(tl.int64)
    tag = slot_tag(tl.load(token_ids + token, mask=live, other=0), tl.load(positions + token, mask=live, other=0))
    tl.store(tags + slot, tag, mask=(slot >= 0) & (slot < num_slots))


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["count", "num_slots"], do_not_specialize_on_alignment=["tags", "slot_mapping"]
)
def clear_tags_kernel(
    tags: tl.tensor, num_slots: tl.tensor, slot_mapping: tl.tensor, count: tl.tensor, block: tl.constexpr
) -> None:
    """tags[slot_mapping[i]] = 0 for slots in range. Grid: (ceil(count / block),)."""
    token = tl.program_id(0) * block + tl.arange(0, block)
    slot = tl.load(slot_mapping + token, mask=token < count, other=-1).to(tl.int64)
    tl.store(tags + slot, tl.zeros_like(slot).to(tl.int32), mask=(slot >= 0) & (slot < num_slots))


@triton.jit(do_not_specialize=["token_stride", "max_tokens", "num_groups"])  # type: ignore[untyped-decorator]
def admission_kernel(
    tag_addresses: tl.tensor,
    tag_counts: tl.tensor,
    table_addresses: tl.tensor,
    table_strides: tl.tensor,
    table_widths: tl.tensor,
    virtual_block_sizes: tl.tensor,
    sliding_windows: tl.tensor,
    num_groups: tl.tensor,
    request_slots: tl.tensor,
    restored_tokens: tl.tensor,
    token_ids: tl.tensor,
    token_stride: tl.tensor,
    max_tokens: tl.tensor,
    hidden_tokens: tl.tensor,
    alignment: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """hidden_tokens[q] = alignment * ceil((L + 1) / alignment): L the last restored position invalid in any group, or
    -1.

    q = request_slots[i], and nothing is written for -1. Position p < C of group g is valid if its slot's tag is
    slot_tag(token_ids[q, p], p); positions before C - window are not looked at where the group has a sliding window.
    Grid: (admitted requests,); each program walks back from C and stops at the first chunk with an invalid slot.
    """
    admitted = tl.program_id(0)
    slot = tl.load(request_slots + admitted).to(tl.int64)
    restored = tl.minimum(tl.load(restored_tokens + admitted), max_tokens)
    restored = tl.where(slot >= 0, restored, 0)
    own_tokens = token_ids + tl.maximum(slot, 0) * token_stride
    lane = tl.arange(0, block)
    past_invalid = tl.zeros((), tl.int32)
    for group in tl.range(0, num_groups, num_stages=1):
        block_size = tl.load(virtual_block_sizes + group)
        window = tl.load(sliding_windows + group)
        width = tl.load(table_widths + group)
        num_slots = tl.load(tag_counts + group)
        tags = tl.load(tag_addresses + group).to(tl.pointer_type(tl.int32))
        row = tl.load(table_addresses + group).to(tl.pointer_type(tl.int32))
        row += tl.maximum(slot, 0) * tl.load(table_strides + group)
        # What an earlier group found invalid hides everything before it: no need to look there.
        first = tl.where(window > 0, tl.maximum(restored - window, past_invalid), past_invalid)
        end = restored
        while end > first:
            position = end - block + lane
            live = position >= first
            entry = position // block_size
            in_row = live & (entry < width)
            block_id = tl.load(row + entry, mask=in_row, other=-1).to(tl.int64)
            tag_slot = block_id * block_size + position % block_size
            tagged = in_row & (tag_slot >= 0) & (tag_slot < num_slots)
            tag = tl.load(tags + tag_slot, mask=tagged, other=0)
            token = tl.load(own_tokens + position, mask=live, other=0)
            invalid = live & (tag != slot_tag(token, position))
            past = tl.max(tl.where(invalid, position + 1, 0), 0)
            past_invalid = tl.maximum(past_invalid, past)
            end = tl.where(past > 0, first, end - block)
    if slot >= 0:
        tl.store(hidden_tokens + slot, (past_invalid + alignment - 1) // alignment * alignment)


def store_context_tags(
    tags: torch.Tensor, slot_mapping: torch.Tensor, token_ids: torch.Tensor, positions: torch.Tensor
) -> None:
    """Tag the slots whose context KV this step stores. Capturable, allocates nothing.

    tags: int32 [slots] of one draft group. slot_mapping: int32 or int64 [tokens]; -1 (PAD) and slots out of range are
    skipped; real slots are distinct. token_ids, positions: int32 or int64 [tokens or more], the token whose KV goes to
    the slot and its absolute position.

    Raises ValueError on wrong dtypes, shapes or devices. Launches nothing for zero tokens.
    """
    count = slot_mapping.shape[0]
    require_vector("tags", tags, like=slot_mapping)
    require_vector("slot_mapping", slot_mapping, like=tags, dtypes=INDEX_DTYPES)
    require_vector("token_ids", token_ids, like=tags, at_least=count, dtypes=INDEX_DTYPES)
    require_vector("positions", positions, like=tags, at_least=count, dtypes=INDEX_DTYPES)
    if count == 0:
        return
    store_tags_kernel[(triton.cdiv(count, TOKENS_A_PROGRAM),)](
        tags,
        tags.shape[0],
        slot_mapping,
        token_ids,
        positions,
        count,
        block=TOKENS_A_PROGRAM,
        num_warps=TAG_WARPS,
    )


def clear_query_tags(tags: torch.Tensor, slot_mapping: torch.Tensor) -> None:
    """Clear the tags of slots that draft query tokens overwrite; after `store_context_tags` of the same step.

    tags: int32 [slots] of one draft group. slot_mapping: int32 or int64 [tokens]; -1 (PAD) and slots out of range are
    skipped. Capturable, allocates nothing. Raises ValueError on wrong dtypes, shapes or devices.
    """
    count = slot_mapping.shape[0]
    require_vector("tags", tags, like=slot_mapping)
    require_vector("slot_mapping", slot_mapping, like=tags, dtypes=INDEX_DTYPES)
    if count == 0:
        return
    clear_tags_kernel[(triton.cdiv(count, TOKENS_A_PROGRAM),)](
        tags, tags.shape[0], slot_mapping, count, block=TOKENS_A_PROGRAM, num_warps=TAG_WARPS
    )


def check_admission(
    tags: GroupTensors,
    tables: DraftBlockTables,
    request_slots: torch.Tensor,
    restored_tokens: torch.Tensor,
    token_ids: torch.Tensor,
    hidden_tokens: torch.Tensor,
) -> None:
    """For each admitted request, find the shortest aligned prefix to hide so that every other restored slot is valid.

    tags: one int32 [slots] a draft group, in the order of `tables`.
    tables: the *persistent* block tables, unshifted, one row a request slot.
    request_slots: int32 or int64 [admitted], distinct; -1 is skipped.
    restored_tokens: int32 [admitted], tokens; how many of each request's first tokens were restored (C).
    token_ids: int32 [max_requests, max_tokens], by request slot; each request's own tokens. C is cut to max_tokens.
    hidden_tokens: int32 [max_requests]; gets the hidden tokens of each admitted request at its slot, others stay.

    The residual partial block. C need not be aligned. A stale slot in the last, partial aligned block gives
    C rounded *up*: the whole block is to be hidden, tokens of it that the target has just computed included. That is
    never wrong, because `mask_draft_context` hides no block in which the query lives: until the query has left that
    block, it cuts the length to C rounded down, and from then on hides the block, without a second check. While the
    query lives there, fewer than `alignment` stale slots stay visible; hidden_tokens > C rounded down is the sign by
    which a caller that knows the cache layout finds the requests whose stale slots to zero once.

    A slot whose block lies outside its table or tag tensor counts as invalid. A group with a sliding window is judged
    on its last `sliding_window` restored positions: no query can see further back, so null blocks there do not matter.
    Asynchronous, capturable, allocates nothing. Raises ValueError on wrong dtypes, shapes or devices; launches nothing
    for zero requests.
    """
    admitted = request_slots.shape[0]
    like = tables.tensors[0]
    require_vector("request_slots", request_slots, like=like, dtypes=INDEX_DTYPES)
    require_vector("restored_tokens", restored_tokens, like=like, at_least=admitted)
    require_table("token_ids", token_ids)
    require_vector("hidden_tokens", hidden_tokens, like=like, at_least=tables.rows)
    if len(tags.tensors) != len(tables.tensors) or any(tensor.dim() != 1 for tensor in tags.tensors):
        raise ValueError(f"{len(tables.tensors)} draft groups need as many tag vectors, got {len(tags.tensors)}")
    if tags.device != like.device or token_ids.device != like.device:
        raise ValueError(f"tags are on {tags.device}, token_ids on {token_ids.device}, block tables on {like.device}")
    if token_ids.shape[0] < tables.rows:
        raise ValueError(f"token_ids has {token_ids.shape[0]} rows, but a block table has {tables.rows}")
    if admitted == 0:
        return
    admission_kernel[(admitted,)](
        tags.addresses,
        tags.lengths,
        tables.addresses,
        tables.row_strides,
        tables.lengths,
        tables.virtual_block_sizes,
        tables.sliding_windows,
        len(tables.tensors),
        request_slots,
        restored_tokens,
        token_ids,
        token_ids.stride(0),
        token_ids.shape[1],
        hidden_tokens,
        alignment=tables.alignment,
        block=TOKENS_A_PROGRAM,
        num_warps=CHECK_WARPS,
    )
