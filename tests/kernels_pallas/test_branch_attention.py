"""The attention kernel gives what its specification gives, whatever lies in dead slots."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import tpu, tuning
from kernels_pallas.branch_attention import attention, folding, mosaic_tpu, reference

pytestmark = pytest.mark.usefixtures("quick_compile")

# Rows, tokens, query heads, key/value heads, head width, slots, own tokens; then what else differs.
SHAPES = [
    ((2, 1, 4, 1, 64, 256, 1), {}),
    ((3, 5, 8, 2, 80, 384, 7), {"window": 90}),
    ((1, 16, 2, 2, 96, 128, 16), {"softcap": 5.0}),
    ((2, 8, 6, 2, 128, 256, 33), {}),
    ((2, 4, 2, 1, 256, 256, 4), {"window": 3, "softcap": 2.0}),
]


def attention_case(seed, b, t, n, m, h, slots, own, dtype=jnp.float32, window=None):
    """Arguments of ``branch_attention.attention``, and the same with NaN before and behind what a row sees.

    Queries see between no slot and all of them; the first own token is seen by every query.
    """
    random = np.random.default_rng(seed)

    def draw(*shape):
        return random.normal(size=shape).astype(np.float32)

    end = random.integers(0, slots + 1, (b, t)).astype(np.int32)
    end[0, 0], end[-1, -1] = 0, slots
    end[b // 2] = end[b // 2].min()  # a row whose last slots are dead for every query
    start = np.zeros_like(end) if window is None else np.maximum(end - window, 0)
    visible = random.random((b, t, own)) < 0.6
    visible[..., 0] = True
    keys, values = draw(b, m, slots, h), draw(b, m, slots, h)
    slot = np.arange(slots)
    dead = (slot < start.min(1)[:, None]) | (slot >= end.max(1)[:, None])
    dead = dead[:, None, :, None]
    arguments = [draw(b, t, n, h), keys, values, start, end, draw(b, m, own, h), draw(b, m, own, h), visible]
    dirty = list(arguments)
    dirty[1:3] = (np.where(dead, np.float32(np.nan), buffer) for buffer in (keys, values))
    return [_arrays(case, dtype) for case in (arguments, dirty)]


def _arrays(case, dtype):
    return [jnp.asarray(x, dtype if x.dtype == np.float32 else None) for x in case]


def settings(shape, options):
    return {"scale": shape[4] ** -0.5, "softcap": options.get("softcap")}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("shape", "options"), SHAPES)
def test_the_kernel_equals_a_float32_reference(shape, options, dtype):
    clean, dirty = attention_case(sum(shape), *shape, dtype, options.get("window"))
    exact = [x.astype(jnp.float32) if x.dtype == dtype else x for x in clean]
    wanted = reference.attention(*exact, **settings(shape, options))
    found = mosaic_tpu.attention(*dirty, **settings(shape, options), interpret=True)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found.astype(jnp.float32), wanted, rtol=0, atol=1e-5 if dtype == jnp.float32 else 1e-2
    )


@pytest.mark.parametrize(("shape", "options"), SHAPES[1:4:2])
def test_a_simulated_tpu_gives_the_same_with_any_block(shape, options):
    clean, dirty = attention_case(1 + sum(shape), *shape, window=options.get("window"))
    wanted = reference.attention(*clean, **settings(shape, options))
    run = functools.partial(mosaic_tpu.attention, *dirty, **settings(shape, options))
    for slots in (128, 512):
        found = run(blocks=mosaic_tpu.Blocks(slots=slots), interpret=tpu.simulated())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("shared", "count"), [(True, 16), (True, 1), (False, 3)])
def test_branches_become_queries_of_one_call(shared, count):
    cases = [attention_case(seed, 2, 3, 4, 2, 16, 128, 5, window=70)[0] for seed in range(count)]
    if shared:
        cases = [[case[0], *cases[0][1:3], *case[3:]] for case in cases]
    axes = (0, None, None, 0, 0, 0, 0, 0) if shared else (0,) * 8
    stacked = [
        x[0] if axis is None else jnp.stack(x) for x, axis in zip(zip(*cases, strict=True), axes, strict=True)
    ]
    calls = []

    def call(*args):
        calls.append(args[0].shape)
        return mosaic_tpu.attention(*args, scale=0.3, interpret=True)

    found = folding.folded(call, axes)(*stacked)
    wanted = [reference.attention(*case, scale=0.3) for case in cases]
    np.testing.assert_allclose(found, jnp.stack(wanted), rtol=0, atol=1e-5)
    assert calls == [(2, 3 * count, 4, 16) if shared else (2 * count, 3, 4, 16)]
    plain = jax.vmap(functools.partial(attention, scale=0.3), axes)(*stacked)
    np.testing.assert_allclose(plain, jnp.stack(wanted), rtol=0, atol=1e-6)


def test_a_prefix_is_lowered_into_one_kernel_for_all_branches():
    case = [jnp.stack([x] * 4) for x in attention_case(0, 2, 1, 4, 2, 128, 256, 3)[0]]
    case[1:3] = case[1][0], case[2][0]
    axes = (0, None, None, 0, 0, 0, 0, 0)
    run = jax.jit(jax.vmap(functools.partial(attention, scale=0.1), axes))
    with tuning.for_device("TPU v5 lite"):
        text = run.trace(*case).lower(lowering_platforms=("tpu",)).as_text()
        assert text.count("tpu_custom_call") == 1
        assert "tpu_custom_call" not in run.lower(*case).as_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"slots": 100}, "100 prefix slots"),
        ({"t": 1100, "n": 1, "m": 1}, "1100 queries"),
        ({"dtype": jnp.float16}, "float16"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused_and_left_to_the_reference(change, said):
    shape = {"b": 1, "t": 2, "n": 2, "m": 1, "h": 8, "slots": 128, "own": 2} | change
    case = attention_case(0, **shape)[0]
    with pytest.raises(ValueError, match=f"branch_attention for tpu does not apply: .*{said}"):
        attention(*case, scale=1.0, implementation="tpu")
    run = jax.jit(functools.partial(attention, scale=1.0))
    with tuning.for_device("TPU v5 lite"):
        assert "tpu_custom_call" not in run.trace(*case).lower(lowering_platforms=("tpu",)).as_text()
    with pytest.raises(ValueError, match="no implementation 'cuda': use reference, tpu"):
        attention(*case, scale=1.0, implementation="cuda")
