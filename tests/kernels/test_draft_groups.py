"""What draft groups can hide together."""

import pytest
import torch
from dspark_kernels.draft_groups import DraftBlockTables, DraftGroup, hidden_alignment
from hypothesis import given, settings
from hypothesis import strategies as st

groups_of_any_size = st.builds(
    DraftGroup,
    block_size=st.sampled_from([8, 16, 24, 32, 48]),
    cp_size=st.integers(1, 4),
    cp_interleave=st.sampled_from([1, 2, 8]),
)


@pytest.mark.parametrize(
    ("groups", "alignment"),
    [
        ([DraftGroup(16)], 16),
        ([DraftGroup(16), DraftGroup(16)], 16),
        ([DraftGroup(16), DraftGroup(48), DraftGroup(32)], 96),
        ([DraftGroup(2304), DraftGroup(256)], 2304),
        ([DraftGroup(16, cp_size=4, cp_interleave=8)], 64),
        ([DraftGroup(16, cp_size=4), DraftGroup(48)], 192),
    ],
)
def test_the_alignment_is_the_least_common_multiple_of_virtual_blocks(groups: list[DraftGroup], alignment: int) -> None:
    assert hidden_alignment(groups) == alignment


@settings(derandomize=True)
@given(groups=st.lists(groups_of_any_size, min_size=1, max_size=4), multiple=st.integers(1, 3))
def test_an_aligned_hidden_length_takes_the_same_tokens_from_every_rank(
    groups: list[DraftGroup], multiple: int
) -> None:
    hidden = multiple * hidden_alignment(groups)

    for group in groups:
        owners = [position // group.cp_interleave % group.cp_size for position in range(hidden)]
        tokens_of_rank = [owners.count(rank) for rank in range(group.cp_size)]
        assert tokens_of_rank == [hidden // group.cp_size] * group.cp_size
        assert tokens_of_rank[0] % group.block_size == 0


@pytest.mark.parametrize(
    "fields", [{"block_size": 0}, {"block_size": 16, "cp_size": 0}, {"block_size": 16, "sliding_window": -1}]
)
def test_a_group_of_impossible_sizes_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="sizes must be positive"):
        DraftGroup(**fields)


def test_an_interleave_that_splits_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="must divide the block size"):
        DraftGroup(16, cp_size=2, cp_interleave=12)


def test_a_drafter_without_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        hidden_alignment([])


def test_tables_that_do_not_fit_the_groups_are_refused() -> None:
    table = torch.zeros(2, 8, dtype=torch.int32)

    with pytest.raises(ValueError, match="as many block tables"):
        DraftBlockTables([DraftGroup(16), DraftGroup(16)], [table])
    with pytest.raises(ValueError, match="share the memory"):
        DraftBlockTables([DraftGroup(16), DraftGroup(16)], [table, table])
    with pytest.raises(ValueError, match="int32 matrix"):
        DraftBlockTables([DraftGroup(16)], [table.long()])
    with pytest.raises(ValueError, match="one tensor a draft group"):
        DraftBlockTables([], [])
    with pytest.raises(ValueError, match="several devices"):
        DraftBlockTables([DraftGroup(16), DraftGroup(16)], [table, torch.zeros(2, 8, dtype=torch.int32, device="meta")])
