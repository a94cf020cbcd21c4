"""The adopt kernel writes what its specification writes, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import tpu, tuning
from kernels_pallas.adopt import adopt, mosaic_tpu, reference

pytestmark = pytest.mark.usefixtures("quick_compile")


def case(seed, tokens, width, slots, dtype):
    """Rows that begin a tile, end one, cross two, end the buffer, and lie past it; NaN in the old cache."""
    random = np.random.default_rng(seed)

    def draw(*shape):
        return jnp.asarray(random.normal(size=shape), dtype)

    start = np.array([0, 7, 8, slots - 1, slots - tokens + 1, slots + 30, 121], np.int32)
    old = [draw(len(start), 2, slots, width).at[:, :, 5].set(jnp.nan) for _ in range(2)]
    new = [draw(len(start), 2, tokens, width) for _ in range(2)]
    return *old, *new, jnp.asarray(start)


@pytest.mark.parametrize(("tokens", "width"), [(1, 128), (17, 128), (1, 64), (17, 80)])
@pytest.mark.parametrize(
    ("dtype", "interpret"),
    [(jnp.float32, True), (jnp.bfloat16, True), (jnp.float32, tpu.simulated())],
    ids=["float32", "bfloat16", "float32 simulated"],
)
def test_the_kernel_equals_the_reference(tokens, width, dtype, interpret):
    arguments = case(tokens + width, tokens, width, 256, dtype)
    found = mosaic_tpu.adopt(*arguments, interpret=interpret)
    for wanted, buffer in zip(reference.adopt(*arguments), found, strict=True):
        np.testing.assert_array_equal(wanted.astype(jnp.float32), buffer.astype(jnp.float32))


@pytest.mark.parametrize(
    ("tokens", "width", "slots", "said"), [(65, 128, 256, "65 tokens"), (1, 64, 192, "192 slots")]
)
def test_what_the_kernel_cannot_do_is_refused_and_left_to_the_reference(tokens, width, slots, said):
    arguments = case(0, tokens, width, slots, jnp.float32)
    with pytest.raises(ValueError, match=f"adopt for tpu does not apply: {said}"):
        adopt(*arguments, implementation="tpu")
    found = adopt(*arguments)
    np.testing.assert_array_equal(found[0], reference.adopt(*arguments)[0])


def test_it_is_lowered_into_one_kernel_that_writes_in_place():
    run = jax.jit(adopt, donate_argnums=(0, 1))
    with tuning.for_device("TPU v5 lite"):
        text = run.trace(*case(0, 3, 128, 256, jnp.float32)).lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("tpu_custom_call") == 1
    assert text.count("output_operand_alias<") == 2
