"""The GPU kernels lowered for Hopper without a GPU: layouts, tiles and copies are checked by the lowering."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from kernels_pallas.adopt import mosaic_gpu as gpu_adopt
from kernels_pallas.adopt import reference as plain_adopt
from kernels_pallas.branch_attention import mosaic_gpu as gpu_attention
from kernels_pallas.branch_attention import reference as plain_attention
from kernels_pallas.verify import mosaic_gpu as gpu_verify

KERNEL = "@mosaic_gpu"
shape = jax.ShapeDtypeStruct


def _lowered(function, *args, platform="cuda") -> str:
    return jax.jit(function).trace(*args).lower(lowering_platforms=(platform,)).as_text()


def _attention_shapes(width, dtype=jnp.bfloat16, *, slots=256, tokens=3, start=True):
    places = shape((2, tokens), jnp.int32)
    prefix, new = shape((2, 2, slots, width), dtype), shape((2, 2, 5, width), dtype)
    query, visible = shape((2, tokens, 4, width), dtype), shape((2, tokens, 5), jnp.bool_)
    return query, prefix, prefix, places if start else None, places, new, new, visible


@pytest.mark.parametrize("width", [16, 64, 80, 96, 112, 128, 256])
def test_attention_of_every_width(width):
    run = functools.partial(gpu_attention.attention, scale=0.1)
    assert _lowered(run, *_attention_shapes(width)).count(KERNEL) == 1


@pytest.mark.parametrize(
    ("tokens", "dtype", "softcap", "blocks"),
    [
        (1, jnp.float16, None, None),
        (70, jnp.bfloat16, 30.0, gpu_attention.Blocks(slots=128, splits=1, stages=3)),
    ],
)
def test_attention_of_other_settings(tokens, dtype, softcap, blocks):
    run = functools.partial(gpu_attention.attention, scale=0.1, softcap=softcap, blocks=blocks)
    assert _lowered(run, *_attention_shapes(64, dtype, tokens=tokens, start=False)).count(KERNEL) == 1


def test_attention_is_chosen_by_platform():
    def run(*args):
        plain, kernel = (functools.partial(x.attention, scale=0.1) for x in (plain_attention, gpu_attention))
        return lax.platform_dependent(*args, default=plain, cuda=kernel)

    args = _attention_shapes(64)
    assert KERNEL in _lowered(run, *args)
    assert KERNEL not in _lowered(run, *args, platform="cpu")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": jnp.float32}, "float32"),
        ({"width": 72}, "72"),
        ({"width": 192}, "192"),
        ({"slots": 100}, "100 prefix slots"),
    ],
)
def test_attention_refuses(changes, reason):
    args = _attention_shapes(**{"width": 64, **changes})
    assert reason in gpu_attention.refusal(args[0], args[1], args[5])
    with pytest.raises(ValueError, match=reason):
        jax.eval_shape(functools.partial(gpu_attention.attention, scale=0.1), *args)
    args = _attention_shapes(64)
    assert gpu_attention.refusal(args[0], args[1], args[5]) is None
    mixed = shape(args[1].shape, jnp.float16)
    assert "one dtype" in gpu_attention.refusal(args[0], mixed, args[5])


def _verify_shapes(columns):
    logits, keys = shape((2, 3, columns), jnp.float32), shape((2, 3, 2), jnp.uint32)
    return logits, keys, shape((2,), jnp.float32), shape((2,), jnp.int32), shape((2,), jnp.float32)


@pytest.mark.parametrize("columns", [1024, 32000, 37984, 151936])
def test_picks_of_common_vocabularies(columns):
    text = _lowered(functools.partial(gpu_verify.picks, log_probs=True), *_verify_shapes(columns))
    assert text.count(KERNEL) == 1


def test_picks_with_noise_and_padded_columns():
    def run(noise, *args):
        return gpu_verify.picks(*args, noise=noise, vocab_size=2000)

    args = _verify_shapes(2048)
    assert _lowered(run, args[0], *args).count(KERNEL) == 1


def test_picks_refuse():
    assert gpu_verify.refusal(_verify_shapes(32000)[0]) is None
    for columns in (50257, 512):
        assert str(columns) in gpu_verify.refusal(_verify_shapes(columns)[0])
    with pytest.raises(ValueError, match="512"):
        jax.eval_shape(gpu_verify.picks, *_verify_shapes(512))
    assert "bfloat16" in gpu_verify.refusal(shape((2, 3, 32000), jnp.bfloat16))
    assert "vocab_size" in gpu_verify.refusal(_verify_shapes(32000)[0], vocab_size=32001)


def _adopt_shapes(heads, width, dtype=jnp.bfloat16):
    old, new = shape((2, heads, 64, width), dtype), shape((2, heads, 3, width), dtype)
    return old, old, new, new, shape((2,), jnp.int32)


@pytest.mark.parametrize(("heads", "width"), [(8, 128), (4, 80), (1, 64), (1, 256)])
def test_adopt_writes_in_place(heads, width):
    text = _lowered(gpu_adopt.adopt, *_adopt_shapes(heads, width))
    assert text.count(KERNEL) == 1
    assert text.count("#stablehlo.output_operand_alias<") == 2


def test_adopt_is_chosen_by_platform():
    def run(*args):
        return lax.platform_dependent(*args, default=plain_adopt.adopt, cuda=gpu_adopt.adopt)

    args = _adopt_shapes(2, 64)
    assert KERNEL in _lowered(run, *args)
    assert KERNEL not in _lowered(run, *args, platform="cpu")


def test_adopt_refuses():
    assert gpu_adopt.refusal(*_adopt_shapes(2, 64)) is None
    for heads, width in ((1, 80), (2, 12), (1, 512)):
        assert str(width) in gpu_adopt.refusal(*_adopt_shapes(heads, width))
    old, _, new, _, start = _adopt_shapes(2, 64)
    mixed = shape(new.shape, jnp.float32)
    with pytest.raises(ValueError, match="float32"):
        jax.eval_shape(gpu_adopt.adopt, old, old, mixed, mixed, start)
