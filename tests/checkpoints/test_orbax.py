import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from sbjax.checkpoints import CheckpointError, orbax
from sbjax.checkpoints.atomic_folder import atomic_folder
from sbjax.checkpoints.orbax import Pending

FLOAT = np.dtype(np.float32)


@pytest.fixture
def arrays():
    return {
        ("a", "x"): np.arange(6, dtype=np.float32).reshape(2, 3),
        ("a", "y"): np.arange(4).astype(jnp.bfloat16),
        ("b",): np.float16([[1.5]]),
    }


def pending(arrays):
    return [Pending(path, array.shape, array.dtype) for path, array in arrays.items()]


def test_batches_in_any_order_make_one_checkpoint(arrays, tmp_path):
    batches = [{path: arrays[path]} for path in reversed(arrays)]
    orbax.write(tmp_path / "params", pending(arrays), iter(batches))
    assert batches == [{}, {}, {}]  # emptied as they were written
    for path, found in orbax.read(tmp_path / "params", pending(arrays)).items():
        assert (found.dtype, found.tobytes()) == (arrays[path].dtype, arrays[path].tobytes())


def test_any_orbax_reads_it(arrays, tmp_path):
    orbax.write(tmp_path / "params", pending(arrays), iter([dict(arrays)]))
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(tmp_path / "params")
    np.testing.assert_array_equal(tree["a"]["x"], arrays["a", "x"])
    assert sorted(tree) == ["a", "b"]


def test_some_parameters_are_read_without_the_others(arrays, tmp_path):
    orbax.write(tmp_path / "params", pending(arrays), iter([dict(arrays)]))
    found = orbax.read(tmp_path / "params", [Pending(("a", "y"), (4,), FLOAT)])
    assert list(found) == [("a", "y")]
    np.testing.assert_array_equal(found["a", "y"], np.arange(4, dtype=np.float32))


def test_other_parameters_than_stored_are_refused(arrays, tmp_path):
    orbax.write(tmp_path / "params", pending(arrays), iter([dict(arrays)]))
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    abstract = {"a": {"x": jax.ShapeDtypeStruct((2, 3), FLOAT, sharding=place)}}
    with pytest.raises(CheckpointError, match="params: damaged or incomplete"):
        orbax.restore(tmp_path / "params", abstract)


def test_stream_that_ends_too_early_is_an_error(arrays, tmp_path):
    with pytest.raises(ValueError, match=r"the stream ended without \[\('b',\)\]"):
        orbax.write(
            tmp_path / "params", pending(arrays), iter([{p: arrays[p] for p in arrays if p != ("b",)}])
        )
    assert not (tmp_path / "params").exists()


def test_nothing_is_written_after_an_interrupt(tmp_path):
    """Without waiting for the threads that write, they would make the removed folder anew."""
    leaves = [Pending((str(i),), (1024, 1024), FLOAT) for i in range(50)]

    def interrupt_when_data_arrives():
        while not any(path.stat().st_size for path in tmp_path.rglob("d/*")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    def stream():
        batch = {leaf.path: np.ones(leaf.shape, FLOAT) for leaf in leaves}
        threading.Thread(target=interrupt_when_data_arrives).start()
        yield batch
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "out", overwrite=False, needed=0) as work:
        orbax.write(work / "params", leaves, stream())
    time.sleep(1)
    assert not list(tmp_path.iterdir())
