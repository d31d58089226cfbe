"""Triton kernels of the draft step: block-table shift and gather, draft masking, slot tags; and a model of ordering."""
