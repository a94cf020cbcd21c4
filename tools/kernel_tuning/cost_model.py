"""How long a kernel takes with some blocks, from its compiled program and a chip's constants.

Only what differs between block sizes of one kernel and shape is modelled, so figures are for comparing them.
A compiled program's own cost analysis is of no use here: it repeats the kernel's ``CostEstimate``.
What comes from the compiler is the size of the program, 64 bytes for every instruction bundle on v5e, v5p and
v6e (checked against the bundles in libtpu 0.0.42's schedules). A bundle takes a cycle, and both kernels write
what they do with a block out without a loop. So what a program grows by with a block is what a block takes.
"""

import dataclasses
import math

from kernel_tuning.chips import Chip

BUNDLE_BYTES = 64
STEP_SECONDS = 0.35e-6
"""Of a step of a grid, for its bookkeeping and the start of its copies: some 500 cycles. An assumption."""
LENGTHS = tuple((i + 0.5) / 16 for i in range(4, 16))
"""How full a cache is: evenly from a quarter on, in odd steps, so that no block fits them just so."""
LOOP_CYCLES = 12
"""Of a turn of a walk in ``verify`` beside its work: schedules have 28 for 16 registers, 80 for 64."""
SEARCHES = 2 * 31 + 2
"""Walks of ``verify`` with little work in them: the two bisections, the maximum, the tempering."""
REGISTERS = 4
"""Vector registers of a unit of 512 columns; such a walk does one in a cycle."""


@dataclasses.dataclass(frozen=True)
class Attention:
    """Sizes of a ``branch_attention`` call, as in the table, and of the call that is modelled.

    Attributes:
      queries: of a key/value head, padded.
      width: of a head.
      slots: of the cache.
      itemsize: bytes of a number.
      heads: key/value heads of all rows.
    """

    queries: int
    width: int
    slots: int
    itemsize: int
    heads: int


def attention_seconds(chip: Chip, size: Attention, block: int, cycles_a_slot: float = 0.0) -> float:
    """The mean over ``LENGTHS`` of what a call takes with blocks of ``block`` slots.

    A head's blocks are read one ahead of their use. So while there are blocks, a step takes as long as
    reading the next one or computing with this one, whichever is longer: larger blocks mean fewer steps.
    Against them speaks that the last block is read to its end and that nothing hides the first block of a
    call. Steps behind the text do nothing, and still take their time; only the last of them hides a read,
    of the next head's first block.

    Args:
      chip: its constants.
      size: of the call.
      block: slots, a divisor of ``size.slots``.
      cycles_a_slot: what computing takes; 0 gives a bound from below, by the matrix units' peak.
    """
    steps = size.slots // block
    read = 2 * block * size.width * size.itemsize / chip.bandwidth
    least = 4 * size.queries * size.width / chip.operations
    work = STEP_SECONDS + block * max(cycles_a_slot / chip.clock, least)

    def head(text: float) -> float:
        used = math.ceil(text / block)
        if used == steps:
            return used * max(read, work)
        return (
            (used - 1) * max(read, work) + work + (steps - used - 1) * STEP_SECONDS + max(read, STEP_SECONDS)
        )

    mean = sum(head(share * size.slots) for share in LENGTHS) / len(LENGTHS)
    return read + math.ceil(size.heads / chip.cores) * mean


def verify_seconds(chip: Chip, vocab: int, chunk: int, code_bytes: float = 0.0) -> float:
    """What the searches of one block of lines take that wants top-k and top-p.

    A walk does whole chunks first and what is left unit by unit; every turn of either loop costs
    ``LOOP_CYCLES``. Longer chunks mean fewer turns, and a longer program, which is read once. Greedy picks
    and draws without a cut do not depend on it: their walks have much more work in a turn, or wait for
    memory.

    Args:
      chip: its constants.
      vocab: columns.
      chunk: columns of a turn.
      code_bytes: the size of the program; 0 gives a bound from below.
    """
    units, a_turn = vocab // 512, chunk // 512
    turns = units // a_turn + units % a_turn
    cycles = SEARCHES * (turns * LOOP_CYCLES + units * REGISTERS)
    return cycles / chip.clock + code_bytes / chip.bandwidth
