"""Attention of new tokens, or of branches, over a shared prefix."""

from kernels_pallas.branch_attention.reference import attention

__all__ = ["attention"]
