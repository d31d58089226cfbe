"""Compile the in-place kernels for Hopper, which needs no GPU, and print each basic block's loads, stores and barriers.

One JSON list a line: [kernel, launch, [block, ...]] with a block as a string of L (global load), S (global store) and
B (barrier) in program order. Run in a process of its own, without Triton's interpreter.
"""

import json
import re
from collections.abc import Mapping

import triton
from dspark_kernels.block_table_shift import shift_kernel
from dspark_kernels.draft_masking import mask_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER = GPUTarget("cuda", 90, 32)
LAUNCHES = [  # chunk, warps, prefetch, early
    (128, 1, False, False),
    (1024, 4, False, False),
    (1024, 4, False, True),
    (1024, 4, True, False),
    (2048, 8, True, False),
    (8192, 32, False, False),
]
POINTERS = {"*i32": ["table", "shift_blocks", "needed_blocks", "request_slots", "widths", "virtual_block_sizes"]}
POINTERS["*i32"] += ["seq_lens", "masked_seq_lens", "hidden_tokens"]
POINTERS["*i64"] = ["addresses", "row_strides"]
TYPES = {name: kind for kind, names in POINTERS.items() for name in names}
TYPES |= {
    "row_stride": "i64",
    "table_stride": "i64",
    "max_blocks": "i32",
    "table_width": "i32",
    "query_len": "i32",
    "max_requests": "i32",
}
MARKS = {"ld.global": "L", "st.global": "S", "bar.sync": "B"}


def blocks_of(kernel: object, constants: Mapping[str, object], warps: int) -> list[str]:
    arguments = kernel.arg_names  # type: ignore[attr-defined]
    signature = {name: "constexpr" if name in constants else TYPES[name] for name in arguments}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    ptx = triton.compile(source, target=HOPPER, options={"num_warps": warps}).asm["ptx"]
    basic_blocks = re.split(r"^\$L\S+:|^\s*(?:@\S+ )?bra\S* ", ptx, flags=re.MULTILINE)
    marks = ["".join(MARKS[found] for found in re.findall("|".join(MARKS), block)) for block in basic_blocks]
    return [block for block in marks if block]


def main() -> None:
    for chunk, warps, prefetch, early in LAUNCHES:
        walk = {"chunk": chunk, "prefetch": prefetch, "early": early}
        for ordered in (True, False):
            name = "shift" if ordered else "unguarded shift"
            print(json.dumps([name, str(walk), blocks_of(shift_kernel, {**walk, "ordered": ordered}, warps)]))
        masking = {**walk, "query_lens": None, "alignment": 16, "groups": 1, "groups_a_program": 1}
        print(json.dumps(["masking", str(walk), blocks_of(mask_kernel, masking, warps)]))


if __name__ == "__main__":
    main()
