"""The tool that trains the default pair, on tiny models."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import train_pair
from pair_training import corpus, objectives, packing, vocabulary
from pair_training.architecture import Architecture, forward_logits, grow, shallow
from pair_training.schedule import Schedule, Stage
from pair_training.training import Interrupted, Trainer
from rich.console import Console

import sbjax
from sbjax.cache import KVCache
from sbjax.checkpoints import load

pytestmark = pytest.mark.usefixtures("quick_compile")

TINY = Architecture(width=16, layers=2, heads=2, kv_heads=1, mlp_width=24)
VOCABULARY, LENGTH = 270, 32


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> pathlib.Path:
    """A folder of 40 small Python files; some of them are held out."""
    folder = tmp_path_factory.mktemp("sources")
    for i in range(40):
        lines = [f"def function_{i}_{j}(value):\n    return value + {i * j}\n" for j in range(20)]
        (folder / f"module_{i}.py").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def documents(sources) -> corpus.Corpus:
    return corpus.read_corpus(sources)


@pytest.fixture(scope="module")
def tokens(documents):
    """Training and held-out documents as ids."""
    tokenizer = vocabulary.train_tokenizer(documents.training, VOCABULARY)
    encode = vocabulary.encode_documents
    return encode(tokenizer, documents.training), encode(tokenizer, documents.held_out)


def trainer(tokens, folder: pathlib.Path, **changes) -> Trainer:
    """A training of 12 steps that grows from one layer to two."""
    schedule = Schedule(12, 60.0, 64, 1e-2, (Stage(1, 16, 0.5), Stage(2, 32, 0.5)), seed=3)
    settings = {
        "name": "tiny",
        "architecture": TINY,
        "vocab_size": VOCABULARY,
        "max_length": LENGTH,
        "objective": objectives.next_token,
        "initial": None,
        "teacher": None,
        "stream": packing.TokenStream.of(tokens[0], seed=3),
        "held_out": tokens[1],
        "schedule": schedule,
        "folder": folder,
        "checkpoint_minutes": 60.0,
        "console": Console(quiet=True),
    }
    return Trainer(**(settings | changes))


def test_corpus_is_split_by_path_without_copies_and_without_tests(tmp_path, sources, documents):
    for path in sources.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "zz_copy.py").write_bytes((sources / "module_1.py").read_bytes())
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_module.py").write_text("assert True\n")
    assert corpus.read_corpus(tmp_path) == documents
    assert len(documents.training) + len(documents.held_out) == 40
    assert not set(documents.training) & set(documents.held_out)


def test_corpus_without_a_held_out_file_is_refused(tmp_path):
    (tmp_path / "only.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="held out"):
        corpus.read_corpus(tmp_path)


def test_tokenizer_keeps_any_text_and_single_digits(documents):
    tokenizer = vocabulary.train_tokenizer(documents.training, VOCABULARY)
    text = "def f(x):\n\treturn 1234  # \u00fc\u6f22\U0001f600\x00"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert all(len(token) == 1 for token in tokenizer.encode("1234").tokens)
    assert tokenizer.get_vocab_size() == VOCABULARY


def test_tokenizer_that_the_text_cannot_fill_is_refused():
    with pytest.raises(ValueError, match="vocab_size 5000"):
        vocabulary.train_tokenizer(["a b c"], 5000)


def test_an_epoch_has_every_window_once():
    stream = packing.TokenStream(np.arange(1000, dtype=np.int32), seed=1)
    rows = stream.batch(0, 98, 10)
    assert rows.shape == (98, 11)
    inputs = rows[:, :-1].ravel()
    assert len(set(inputs.tolist())) == inputs.size
    np.testing.assert_array_equal(stream.batch(40, 5, 10), rows[40:45])
    assert not np.array_equal(stream.batch(98, 98, 10), rows)


def test_logits_without_a_cache_are_those_with_one():
    model = TINY.model(VOCABULARY, LENGTH)
    params = model.init(0)
    text = jax.random.randint(jax.random.key(0), (2, 19), 0, VOCABULARY)
    positions = jnp.broadcast_to(jnp.arange(19, dtype=jnp.int32), text.shape)

    @jax.jit
    def both(params):
        cached = model.forward(params, text, positions, KVCache.create(model.cache_spec, 2, 24))
        return forward_logits(model, params, text), model.logits(params, cached.hidden)

    np.testing.assert_allclose(*both(params), atol=1e-5, rtol=1e-5)


def test_growing_changes_nothing_until_it_is_trained():
    small, large = (dataclasses.replace(TINY, layers=n).model(VOCABULARY, LENGTH) for n in (1, 2))
    params = small.init(1)
    grown = grow(params, 2, keep=True)
    assert jax.tree.map(jnp.shape, grown) == jax.tree.map(jnp.shape, large.init(0))
    text = jnp.arange(13, dtype=jnp.int32)[None]
    before = jax.jit(objectives.next_token(small))(params, text, None)
    after, gradients = jax.jit(jax.value_and_grad(objectives.next_token(large)))(grown, text, None)
    np.testing.assert_allclose(after, before, rtol=1e-6)
    assert all(np.any(layer["mlp"]["down_proj"]["weight"]) for layer in gradients["layers"].values())


@pytest.mark.parametrize(("few", "many"), [(1, 4), (2, 5), (2, 16), (3, 3)])
def test_shallow_undoes_growing(few, many):
    params = dataclasses.replace(TINY, layers=few).model(VOCABULARY, LENGTH).init(2)
    grown = grow(params, many, keep=True)
    assert len(grown["layers"]) == many
    same = jax.tree.map(np.array_equal, shallow(grown, few), params)
    assert all(jax.tree.leaves(same))


def test_interrupted_training_ends_where_an_uninterrupted_one_does(tokens, tmp_path):
    whole, report = trainer(tokens, tmp_path / "whole").run()
    first, last = report["losses"][0], report["losses"][-1]
    assert (first["step"], last["step"], report["steps"]) == (12, 12, 12)
    for steps, step in ((4, 4), (5, 9)):  # before the growth and after it
        answers = iter([False] * (steps - 1) + [True])
        stopping = trainer(tokens, tmp_path / "parts", should_stop=lambda answers=answers: next(answers))
        with pytest.raises(Interrupted, match=f"after step {step}; run again"):
            stopping.run()
    parts, resumed = trainer(tokens, tmp_path / "parts").run()
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, whole, parts)))
    assert len(resumed["losses"]) == 3
    assert resumed["losses"][0]["held_out"] > resumed["losses"][-1]["held_out"]
    assert last["held_out"] < np.log(VOCABULARY) - 0.5


def test_training_that_diverges_says_so(tokens, tmp_path):
    broken = TINY.model(VOCABULARY, LENGTH).init(0)
    broken = jax.tree.map(lambda leaf: leaf * jnp.float32(np.nan), shallow(broken, 1))
    with pytest.raises(FloatingPointError, match="learning rate"):
        trainer(tokens, tmp_path, initial=broken).run()


def arguments(sources: pathlib.Path, folder: pathlib.Path, *more: str) -> list[str]:
    settings = {
        "--out": folder / "out",
        "--work": folder / "work",
        "--source": sources,
        "--vocab-size": VOCABULARY,
        "--max-length": LENGTH,
        "--tokens-per-step": 64,
        "--evaluation-rows": 4,
        "--width": 16,
        "--heads": 2,
        "--mlp-width": 24,
        "--target-layers": 2,
        "--target-steps": 12,
        "--target-rate": 1e-2,
        "--target-stages": "2x32:1",
        "--draft-layers": 1,
        "--draft-steps": 6,
        "--draft-stages": "1x32:1",
    }
    return [*(str(part) for item in settings.items() for part in item), *more]


@pytest.fixture(scope="module")
def pair(sources, tmp_path_factory) -> pathlib.Path:
    """A folder in which the whole tool has run."""
    folder = tmp_path_factory.mktemp("pair")
    assert train_pair.main(arguments(sources, folder)) == 0
    return folder


def test_report_says_what_the_pair_is_worth(pair):
    report = json.loads((pair / "out" / "report.json").read_text())
    assert report["held_out"]["target"]["loss"] < np.log(VOCABULARY) - 0.5
    assert 0 < report["held_out"]["greedy_agreement"] <= report["held_out"]["overlap"] + 1
    assert report["training"]["target"]["steps"] == 12
    assert report["step_ms"]["target"] > 0
    assert report["bytes"]["target"] > report["bytes"]["draft"] > 0


def test_written_models_are_what_transformers_reads(pair):
    import torch
    import transformers

    for name in ("target", "draft"):
        checkpoint = load(pair / "out" / name, dtype="float32")
        oracle = transformers.AutoModelForCausalLM.from_pretrained(pair / "out" / name, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(pair / "out" / name)
        ids = tokenizer("def function_1(value):\n    return 12")["input_ids"]
        with torch.no_grad():
            expected = oracle(torch.tensor([ids])).logits.numpy()
        logits = forward_logits(checkpoint.model, checkpoint.params, jnp.asarray([ids], jnp.int32))
        np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_second_run_of_other_settings_is_refused(sources, pair, capsys):
    with pytest.raises(SystemExit):
        train_pair.main(arguments(sources, pair, "--target-steps", "13"))
    assert "other settings of target" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--target-stages", "2x30:1"), "do not divide"),
        (("--target-stages", "1x32:1"), "ends with 1 layers"),
        (("--target-stages", "2x32:0.5"), "add up to 1"),
        (("--target-stages", "2-32"), "LAYERSxLENGTH:SHARE"),
        (("--target-stages", "2x64:1"), "longer than --max-length"),
        (("--draft-layers", "3", "--draft-stages", "3x32:1"), "may not be more than"),
        (("--heads", "3"), "heads must divide width"),
        (("--mlp-width", "0"), "must be positive"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_written(
    sources, tmp_path, capsys, more, message
):
    with pytest.raises(SystemExit):
        train_pair.main(arguments(sources, tmp_path, *more))
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_shipped_pair_is_small_and_shares_one_tokenizer():
    folder = pathlib.Path(sbjax.__file__).parent / "default_pair"
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 24_000_000
    target, draft = (load(folder / name) for name in ("target", "draft"))
    assert target.model.vocab_size == draft.model.vocab_size
    texts = [(folder / name / "tokenizer.json").read_bytes() for name in ("target", "draft")]
    assert texts[0] == texts[1]
