"""What a checkpoint's files ask for, what a caller may change, and that nothing is ignored in silence."""

import json

import numpy as np
import pytest
import tokenizers
from transformers import GenerationConfig

from sbjax.generation_config import GenerationDefaults, UnsupportedSampling, resolve
from sbjax.generation_fields import OBEYED, REFUSED, WITHOUT_EFFECT
from sbjax.text import Tokenizer

QWEN = {
    "bos_token_id": 0,
    "pad_token_id": 0,
    "do_sample": True,
    "eos_token_id": [3, 1],
    "repetition_penalty": 1.1,
    "temperature": 0.7,
    "top_p": 0.8,
    "top_k": 20,
    "transformers_version": "4.37.0",
}


def write(folder, **files):
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def settings(folder, **overrides):
    return resolve(GenerationDefaults.from_folder(folder), overrides)


@pytest.fixture
def tokenizer(tmp_path):
    words = {"a": 0, "b": 1, "c": 2, "</s>": 3, "<end>": 4}
    trained = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    trained.save(str(tmp_path / "tokenizer.json"))
    return Tokenizer.from_folder(write(tmp_path, tokenizer_config={"eos_token": "<end>"}))


def test_every_field_of_transformers_is_classified_once():
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert len(fields) > 60
    assert fields <= OBEYED | REFUSED.keys() | WITHOUT_EFFECT.keys()
    assert not OBEYED & REFUSED.keys()
    assert not OBEYED & WITHOUT_EFFECT.keys()
    assert not REFUSED.keys() & WITHOUT_EFFECT.keys()


def test_transformers_own_defaults_are_accepted(tmp_path):
    write(tmp_path, generation_config=GenerationConfig().to_dict())
    assert settings(tmp_path) == resolve(GenerationDefaults())
    defaults = GenerationConfig._get_default_generation_params()
    assert not [name for name in defaults.keys() & REFUSED.keys() if not REFUSED[name].is_off(defaults[name])]


def test_sampling_of_the_file_is_taken(tmp_path):
    write(
        tmp_path,
        generation_config=QWEN | {"repetition_penalty": 1.0, "max_new_tokens": 9, "stop_strings": "END"},
    )
    got = settings(tmp_path)
    assert (got.temperature, got.top_k, got.top_p) == (0.7, 20, 0.8)
    assert (got.stop_ids, got.stop_strings, got.max_new_tokens) == ((3, 1), ("END",), 9)
    got = settings(
        tmp_path, temperature=0.2, top_k=5, top_p=0.5, max_new_tokens=1, stop_strings=["x"], eos_token_id=2
    )
    assert (got.temperature, got.top_k, got.top_p) == (0.2, 5, 0.5)
    assert (got.stop_ids, got.stop_strings, got.max_new_tokens) == ((2,), ("x",), 1)
    assert settings(tmp_path, eos_token_id=[], stop_strings=()).stop_ids == ()


def test_without_do_sample_decoding_is_greedy_unless_the_caller_samples(tmp_path):
    write(tmp_path, generation_config={"temperature": 0.9, "top_p": 0.6})
    assert settings(tmp_path).temperature == 0.0
    assert settings(tmp_path, do_sample=True).temperature == 0.9
    assert settings(tmp_path, temperature=0.5).temperature == 0.5
    assert settings(tmp_path, temperature=0.5).top_p == 0.6
    write(tmp_path, generation_config={"do_sample": True})
    # transformers would fall back to top_k = 50; only what the file says counts here.
    assert (settings(tmp_path).temperature, settings(tmp_path).top_k) == (1.0, 0)
    assert settings(tmp_path, do_sample=False).temperature == 0.0
    assert settings(tmp_path, temperature=None).temperature == 1.0


def test_settings_per_row_pass_through(tmp_path):
    temperature = np.array([0.0, 0.7])
    assert settings(tmp_path, temperature=temperature).temperature is temperature


@pytest.mark.parametrize(("sample", "temperature"), [(False, 0.5), (True, 0.0), (False, [0.0, 1.0])])
def test_contradictions_are_refused(tmp_path, sample, temperature):
    with pytest.raises(ValueError, match=f"do_sample={sample} contradicts temperature"):
        settings(tmp_path, do_sample=sample, temperature=temperature)


def test_qwens_repetition_penalty_is_refused_unless_overridden(tmp_path):
    write(tmp_path, generation_config=QWEN)
    for overrides in ({}, {"temperature": 0.0}):
        with pytest.raises(
            UnsupportedSampling, match=r"asks for repetition_penalty=1\.1.*pass repetition_penalty=1\.0"
        ):
            settings(tmp_path, **overrides)
    assert settings(tmp_path, repetition_penalty=1.0).top_k == 20
    assert settings(tmp_path, repetition_penalty=None).top_k == 20
    with pytest.raises(UnsupportedSampling, match=r"repetition_penalty=1\.2 is not implemented"):
        settings(tmp_path, repetition_penalty=1.2)


# A value that asks for something, for every field that is refused.
ACTIVE = {
    "repetition_penalty": 1.2, "encoder_repetition_penalty": 0.9, "no_repeat_ngram_size": 3,
    "encoder_no_repeat_ngram_size": 2, "presence_penalty": 0.5, "frequency_penalty": -0.5,
    "exponential_decay_length_penalty": [5, 1.1], "min_length": 5, "min_new_tokens": 1,
    "bad_words_ids": [[1]], "sequence_bias": [[[1], 2.0]], "logit_bias": {"1": 5}, "suppress_tokens": [1],
    "begin_suppress_tokens": [1], "forced_bos_token_id": 0, "forced_eos_token_id": 0,
    "forced_decoder_ids": [[1, 2]], "force_words_ids": [[1]], "constraints": ["x"],
    "logits_processor": ["x"], "grammar": "root", "token_healing": True,
    "watermarking_config": {"bias": 2.0}, "guidance_scale": 1.5, "min_p": 0.1, "top_h": 1.0,
    "typical_p": 0.9, "epsilon_cutoff": 0.001, "eta_cutoff": 0.001, "num_beams": 4, "num_beam_groups": 2,
    "diversity_penalty": 0.5, "penalty_alpha": 0.6, "dola_layers": "low",
    "assistant_ensemble_weight": 0.5, "max_time": 3.0, "num_return_sequences": 2,
    "remove_invalid_values": True,
}  # fmt: skip


def test_the_examples_cover_every_refused_field():
    assert ACTIVE.keys() == REFUSED.keys()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_field_is_refused_from_the_file_and_from_the_caller(tmp_path, name):
    value, neutral = ACTIVE[name], REFUSED[name].neutral
    with pytest.raises(UnsupportedSampling, match=f"{name}=.* is not implemented"):
        settings(tmp_path, **{name: value})
    assert settings(tmp_path, **{name: neutral}) == settings(tmp_path, **{name: None}) == settings(tmp_path)
    write(tmp_path, generation_config={name: value, "do_sample": True})
    with pytest.raises(UnsupportedSampling, match=f"asks for {name}=.*pass {name}={neutral!r} to do without"):
        settings(tmp_path)
    assert settings(tmp_path, **{name: neutral}) == resolve(GenerationDefaults(do_sample=True))


def test_filters_of_sampling_do_not_matter_to_greedy_decoding(tmp_path):
    write(tmp_path, generation_config={"do_sample": True, "min_p": 0.1, "typical_p": 0.9})
    assert settings(tmp_path, temperature=0).temperature == 0
    for overrides in ({}, {"temperature": [0.0, 1.0]}):
        with pytest.raises(UnsupportedSampling, match=r"min_p=0\.1.*typical_p=0\.9"):
            settings(tmp_path, **overrides)


def test_unknown_fields_of_a_file_are_refused_until_the_caller_drops_them(tmp_path):
    write(tmp_path, generation_config={"smoothing_factor": 0.2, "_from_model_config": True})
    with pytest.raises(
        UnsupportedSampling, match=r"smoothing_factor=0\.2, which is not known.*smoothing_factor=None"
    ):
        settings(tmp_path)
    assert settings(tmp_path, smoothing_factor=None) == resolve(GenerationDefaults())
    with pytest.raises(TypeError, match="no generation setting 'smoothing_factor'"):
        settings(tmp_path, smoothing_factor=0.3)


def test_wrong_names_of_the_caller_have_clear_errors(tmp_path):
    with pytest.raises(TypeError, match="'temprature'; did you mean temperature"):
        settings(tmp_path, temprature=1.0)
    with pytest.raises(TypeError, match="'zzzz'; there are do_sample, eos_token_id"):
        settings(tmp_path, zzzz=1.0)
    for name in WITHOUT_EFFECT:
        with pytest.raises(TypeError, match=f"{name} has no effect here"):
            settings(tmp_path, **{name: 1})


def test_fields_without_effect_are_accepted_in_a_file(tmp_path):
    write(tmp_path, generation_config=dict.fromkeys(WITHOUT_EFFECT, 1))
    assert settings(tmp_path) == resolve(GenerationDefaults())


def test_stop_ids_are_the_files_and_the_tokenizers(tmp_path, tokenizer):
    def stop_ids():
        return GenerationDefaults.from_folder(tmp_path, tokenizer).stop_ids

    assert stop_ids() == (4,)
    write(tmp_path, config={"eos_token_id": 3})
    assert stop_ids() == (3, 4)
    write(tmp_path, config={"text_config": {"eos_token_id": [2, 4]}})
    assert stop_ids() == (2, 4)
    write(tmp_path, generation_config={"eos_token_id": [1, 3]})
    assert stop_ids() == (1, 3, 4)
    write(tmp_path, generation_config={"temperature": 1.0})
    assert stop_ids() == (2, 4)
    assert GenerationDefaults.from_folder(tmp_path).stop_ids == (2, 4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"eos_token_id": 5}, "token id 5 is outside the vocabulary"),
        ({"eos_token_id": -1}, "eos_token_id has to be a token id"),
        ({"eos_token_id": [1, "2"]}, "eos_token_id has to be a token id"),
        ({"eos_token_id": True}, "eos_token_id has to be a token id"),
        ({"temperature": "0.7"}, "temperature has to be a number, not '0.7'"),
        ({"top_k": 2.5}, "top_k has to be a whole number, not 2.5"),
        ({"stop_strings": [""]}, "empty stop string"),
        ({"stop_strings": 3}, "stop strings have to be a str"),
    ],
)
def test_bad_values_in_a_file_have_clear_errors(tmp_path, tokenizer, config, message):
    write(tmp_path, generation_config=config)
    with pytest.raises(ValueError, match=message):
        GenerationDefaults.from_folder(tmp_path, tokenizer)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"top_k": 2')
    with pytest.raises(ValueError, match=r"generation_config\.json is not valid JSON"):
        GenerationDefaults.from_folder(tmp_path)
