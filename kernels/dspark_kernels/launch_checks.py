"""Cheap checks before a launch: shapes, dtypes, devices and strides; never a value, so never a device sync."""

from collections.abc import Sequence

import torch

INDEX_DTYPES = (torch.int32, torch.int64)


def require_table(name: str, table: torch.Tensor) -> None:
    """Raise ValueError unless `table` is an int32 matrix of contiguous rows that do not overlap."""
    if table.dtype != torch.int32 or table.dim() != 2:
        raise ValueError(f"{name} must be an int32 matrix, got {table.dtype} with shape {tuple(table.shape)}")
    if table.shape[1] > 1 and table.stride(1) != 1:
        raise ValueError(f"{name} must be contiguous in its last dimension, got strides {table.stride()}")
    if table.shape[0] > 1 and table.stride(0) < table.shape[1]:
        raise ValueError(f"rows of {name} overlap: stride {table.stride(0)} for {table.shape[1]} entries")


def require_vector(
    name: str,
    vector: torch.Tensor,
    *,
    like: torch.Tensor,
    at_least: int = 0,
    dtypes: Sequence[torch.dtype] = (torch.int32,),
) -> None:
    """Raise ValueError unless `vector` is contiguous, on `like`'s device, of one of `dtypes`, and long enough."""
    if vector.dtype not in dtypes or vector.dim() != 1:
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(f"{name} must be a vector of {wanted}, got {vector.dtype} with shape {tuple(vector.shape)}")
    if vector.shape[0] > 1 and vector.stride(0) != 1:
        raise ValueError(f"{name} must be contiguous, got stride {vector.stride(0)}")
    if vector.shape[0] < at_least:
        raise ValueError(f"{name} must have at least {at_least} entries, got {vector.shape[0]}")
    if vector.device != like.device:
        raise ValueError(f"{name} is on {vector.device}, but {like.device} is needed")


def require_power_of_two(name: str, value: int) -> None:
    """Raise ValueError unless `value` is a positive power of two (Triton's block shapes and warp counts are)."""
    if value < 1 or value & (value - 1):
        raise ValueError(f"{name} must be a power of two, got {value}")
