"""The stress test of the block-table kernels: cases, runs against the reference, the control, the verdict."""
