"""Chat templates: the same ids as transformers', and errors for what cannot be rendered."""

import datetime
import json
import shutil

import pytest
from transformers import AutoTokenizer

from sbjax.text import Tokenizer

SYSTEM = {"role": "system", "content": "  Be brief. "}
USER = {"role": "user", "content": "How much is 2 < 3?\n<|im_end|> \U0001f600 "}
ASSISTANT = {"role": "assistant", "content": 'True & "yes"'}
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "a <b> \u00fc", "parameters": {"x": 1}},
}
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2.5, None, "\u00e9"]}}}
WITH_CALL = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "3"},
    {"role": "tool", "content": "4"},
]


def assert_equal(folder, messages, **options):
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for add in (True, False):
        ids = ours.chat(messages, add_generation_prompt=add, **options)
        expected = theirs.apply_chat_template(
            messages, add_generation_prompt=add, return_dict=False, **options
        )
        assert ids == expected
        assert ids


@pytest.mark.parametrize(
    "messages",
    [[USER], [SYSTEM, USER], [USER, ASSISTANT, USER], WITH_CALL],
    ids=["one", "system", "turns", "call"],
)
@pytest.mark.parametrize("options", [{}, {"tools": [TOOL]}, {"enable_thinking": False}], ids=str)
def test_qwen_equals_transformers(qwen_folder, messages, options):
    assert_equal(qwen_folder, messages, **options)


def test_llama3_equals_transformers(llama3_folder):
    date = {"date_string": "1 Jan 2025"}
    assert_equal(llama3_folder, [SYSTEM, USER, ASSISTANT, USER], **date)
    assert_equal(llama3_folder, [USER], tools=[TOOL], tools_in_user_message=False, **date)
    assert_equal(llama3_folder, [USER, {"role": "stop", "content": "now"}, USER], **date)
    tokenizer = Tokenizer.from_folder(llama3_folder)
    ids = tokenizer.chat([USER], **date)
    assert ids.count(tokenizer.bos_id) == 1, (
        "the template writes the bos token, encoding must not add another"
    )
    assert datetime.datetime.now().strftime("%Y") in tokenizer.decode(tokenizer.chat([USER]))


def test_gemma_equals_transformers(gemma_folder):
    assert_equal(gemma_folder, [USER, ASSISTANT, USER])
    assert_equal(gemma_folder, [{"role": "user", "content": [{"type": "text", "text": "a part"}]}])


def test_a_template_can_refuse_a_conversation(gemma_folder):
    tokenizer = Tokenizer.from_folder(gemma_folder)
    with pytest.raises(ValueError, match="refuses this conversation: System role not supported"):
        tokenizer.chat([SYSTEM, USER])
    with pytest.raises(ValueError, match="roles must alternate"):
        tokenizer.chat([USER, USER])


def test_variables_that_a_template_does_not_use_are_refused(gemma_folder, qwen_folder):
    gemma, qwen = Tokenizer.from_folder(gemma_folder), Tokenizer.from_folder(qwen_folder)
    with pytest.raises(ValueError, match=r"does not use tools; it uses role$"):
        gemma.chat([USER], tools=[TOOL])
    with pytest.raises(ValueError, match="does not use thinking; it uses enable_thinking, tools"):
        qwen.chat([USER], thinking=True)


@pytest.mark.parametrize(
    ("messages", "error", "message"),
    [
        ([], ValueError, "there are no messages"),
        ("hello", TypeError, "list of dicts"),
        (USER, TypeError, "list of dicts"),
        ([USER, "hello"], TypeError, "message 1 is a str"),
        ([{"content": "x"}], ValueError, "message 0 has no role"),
        (
            [USER, {"role": "assistant"}],
            ValueError,
            r"message 1 \(assistant\) has neither content nor tool_calls",
        ),
        ([{"role": "user", "content": 3}], TypeError, "content of message 0 is a int"),
        ([{"role": "user", "content": "x", "extra": object()}], TypeError, "messages has to be plain data"),
    ],
)
def test_bad_messages_have_clear_errors(qwen_folder, messages, error, message):
    with pytest.raises(error, match=message):
        Tokenizer.from_folder(qwen_folder).chat(messages)


def with_template(source, target, template):
    shutil.copytree(source, target)
    (target / "chat_template.jinja").unlink()
    config = json.loads((target / "tokenizer_config.json").read_text()) | {"chat_template": template}
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    return target


def test_named_templates(qwen_folder, tmp_path):
    sources = {
        "default": "D{{ messages|length }}",
        "tool_use": "T{{ tools|tojson }}",
        "rag": "R{{ documents|tojson }}",
    }
    entries = [{"name": name, "template": source} for name, source in sources.items()]
    folder = with_template(qwen_folder, tmp_path / "named", entries)
    assert_equal(folder, [USER])
    assert_equal(folder, [USER], tools=[TOOL])
    tokenizer = Tokenizer.from_folder(folder)
    documents = [{"title": "a", "text": "b"}]
    expected = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        [USER], chat_template="rag", documents=documents, return_dict=False
    )
    assert tokenizer.chat([USER], template="rag", documents=documents) == expected
    with pytest.raises(
        ValueError, match=r"there is no chat template 'other', choose template= from \['default'"
    ):
        tokenizer.chat([USER], template="other")


def test_blocks_leave_no_white_space(qwen_folder, tmp_path):
    inner = "    {% if m.role == 'user' %}\n  {{ m.content }}\n    {% endif %}\n"
    template = "{% for m in messages %}\n" + inner + "{% endfor %}\n"
    assert_equal(with_template(qwen_folder, tmp_path / "blocks", template), [USER, ASSISTANT, USER])


def test_template_files_come_before_the_configuration(qwen_folder, tmp_path):
    folder = with_template(qwen_folder, tmp_path / "files", "from the configuration")
    (folder / "chat_template.jinja").write_text("from the file")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("with tools {{ tools|tojson }}")
    assert_equal(folder, [USER])
    assert_equal(folder, [USER], tools=[TOOL])


def test_missing_and_broken_templates_have_clear_errors(qwen_folder, llama_folder, tmp_path):
    plain = Tokenizer.from_folder(llama_folder)
    assert not plain.has_chat_template
    with pytest.raises(ValueError, match="has no chat template"):
        plain.chat([USER])
    broken = Tokenizer.from_folder(with_template(qwen_folder, tmp_path / "broken", "\n{% if %}"))
    assert broken.has_chat_template
    with pytest.raises(ValueError, match="syntax error in line 2"):
        broken.chat([USER])
    with pytest.raises(ValueError, match=r"list of \{name, template\}"):
        Tokenizer.from_folder(with_template(qwen_folder, tmp_path / "wrong", [1]))


@pytest.mark.parametrize(
    "template", ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ ''.__class__.mro() }}"]
)
def test_templates_run_in_a_sandbox(qwen_folder, tmp_path, template):
    tokenizer = Tokenizer.from_folder(with_template(qwen_folder, tmp_path / "evil", template))
    with pytest.raises(ValueError, match=r"refuses this conversation: .*unsafe"):
        tokenizer.chat([USER])
