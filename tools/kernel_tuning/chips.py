"""What the cost model knows of a chip. Imports nothing heavy: the command line lists these names."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """A TPU, as far as the cost model looks at it.

    Attributes:
      kind: jax's ``Device.device_kind``.
      topology: the smallest that libtpu compiles for.
      bandwidth: bytes a second of the memory; of one core where a chip has two.
      operations: bfloat16 operations a second, likewise.
      clock: cycles a second.
      cores: that share the parallel axes of a grid.
    """

    kind: str
    topology: str
    bandwidth: float
    operations: float
    clock: float
    cores: int = 1


# Bandwidth and operations: Cloud TPU's documentation of each version. Clock: operations over what the matrix
# units do in a cycle, two operations in each cell of 4 units of 128 x 128 a core (v6e: 2 units of 256 x 256,
# and that twice a cycle).
CHIPS = {
    "v5e": Chip("TPU v5 lite", "v5e:2x2", 819e9, 197e12, 1.5e9),
    "v5p": Chip("TPU v5", "v5p:2x2x1", 2765e9 / 2, 459e12 / 2, 1.75e9, cores=2),
    "v6e": Chip("TPU v6 lite", "v6e:2x2", 1640e9, 918e12, 1.75e9),
}

HERE = "here"
