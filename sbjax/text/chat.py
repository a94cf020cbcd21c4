"""Chat templates: a conversation as the text that a model was trained on."""

import dataclasses
import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.sandbox

# What `render` always passes, whether or not a template looks at it.
_ALWAYS = {"messages", "add_generation_prompt"}


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks what an assistant wrote, for training; here its body is simply rendered."""

    tags = frozenset({"generation"})

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def _raise_exception(message: str):
    raise jinja2.TemplateError(message)


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    # The filter that comes with jinja escapes for HTML.
    options = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


@functools.cache
def _environment() -> jinja2.Environment:
    """The environment of transformers. Templates come with checkpoints, so they run in a sandbox."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


@functools.lru_cache(maxsize=32)
def _compile(source: str) -> tuple[jinja2.Template, frozenset[str]]:
    """A template and the names of the variables that it looks up."""
    environment = _environment()
    try:
        names = jinja2.meta.find_undeclared_variables(environment.parse(source))
        return environment.from_string(source), frozenset(names - environment.globals.keys())
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(
            f"syntax error in line {error.lineno} of the chat template: {error.message}"
        ) from error


@dataclasses.dataclass(frozen=True)
class ChatTemplates:
    """The chat templates of a checkpoint.

    Attributes:
      sources: Jinja source by name; the usual single one is called "default".
    """

    sources: Mapping[str, str]

    @classmethod
    def from_folder(cls, folder: Path, config: Mapping[str, Any]) -> "ChatTemplates":
        """Finds the templates: files of their own come before tokenizer_config.json, as in transformers.

        Args:
          folder: a checkpoint folder.
          config: its tokenizer_config.json.

        Raises:
          ValueError: `chat_template` in the configuration is neither text nor a list of named templates.
        """
        files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
        if (folder / "chat_template.jinja").is_file():
            files["default"] = folder / "chat_template.jinja"
        if files:
            return cls({name: path.read_text(encoding="utf-8") for name, path in files.items()})
        value = config.get("chat_template") or {}
        if isinstance(value, str):
            return cls({"default": value})
        try:
            return cls({entry["name"]: entry["template"] for entry in value})
        except (TypeError, KeyError) as error:
            raise ValueError(
                "chat_template in tokenizer_config.json has to be text, or a list of {name, template}"
            ) from error

    def select(self, name: str | None, tools: bool) -> str:
        """The source of the template to use.

        Args:
          name: a template's name; None takes "tool_use" if it exists and there are tools, else "default".
          tools: whether there are tools.

        Raises:
          ValueError: there is no such template.
        """
        if not self.sources:
            raise ValueError(
                "the checkpoint has no chat template (chat_template.jinja or in tokenizer_config.json); it "
                "is probably not a chat model: give it plain text"
            )
        if name is None:
            name = "tool_use" if tools and "tool_use" in self.sources else "default"
        if name not in self.sources:
            raise ValueError(
                f"there is no chat template {name!r}, choose template= from {sorted(self.sources)}"
            )
        return self.sources[name]

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        special_tokens: Mapping[str, str],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template: str | None = None,
        **variables: Any,
    ) -> str:
        """Renders a conversation.

        Args:
          messages: at least one dict with a `role` (str) and a `content` (str, or a list of parts if the
            template reads such lists). `content` may be missing beside `tool_calls`. Keys that are None
            are dropped, as transformers does.
          special_tokens: strings of the special tokens by role, e.g. `bos_token`.
          add_generation_prompt: whether to open the assistant's turn.
          tools: JSON schemas of the functions that the model may call.
          template: name of a template, where the checkpoint has several.
          **variables: further variables of the template.

        Returns:
          The text, special tokens written out.

        Raises:
          TypeError: a message is not a dict, or something is not plain JSON data.
          ValueError: no such template, messages that it refuses, or a variable that it does not use.
        """
        compiled, used = _compile(self.select(template, tools is not None))
        given = {"tools": tools, **variables}
        unused = sorted(name for name, value in given.items() if value is not None and name not in used)
        if unused:
            known = ", ".join(sorted(used - _ALWAYS - special_tokens.keys())) or "no variables"
            raise ValueError(f"the chat template does not use {', '.join(unused)}; it uses {known}")
        data = {"documents": None, **given, "messages": _checked_messages(messages)}
        data = {name: _plain(value, name) for name, value in data.items()}
        data["add_generation_prompt"] = bool(add_generation_prompt)
        try:
            return compiled.render({**special_tokens, **data})
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template refuses this conversation: {error.message}") from error


def _checked_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as dicts without keys that are None, or an error that names the wrong one."""
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise TypeError(
            f"messages have to be a list of dicts (role, content), not a {type(messages).__name__}"
        )
    if not messages:
        raise ValueError("there are no messages")
    checked = []
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"message {number} is a {type(message).__name__}, not a dict (role, content)")
        message = {key: value for key, value in message.items() if value is not None}
        if not isinstance(message.get("role"), str):
            raise ValueError(f"message {number} has no role (a str such as 'user')")
        if "content" not in message and "tool_calls" not in message:
            raise ValueError(f"message {number} ({message['role']}) has neither content nor tool_calls")
        if not isinstance(message.get("content", ""), str | list):
            kind = type(message["content"]).__name__
            raise TypeError(f"the content of message {number} is a {kind}, not a str or a list of parts")
        checked.append(message)
    return checked


def _plain(value: Any, name: str) -> Any:
    """A copy made of plain JSON types only, so that a template gets hold of no other object's methods."""
    try:
        return json.loads(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} has to be plain data (dict, list, str, number): {error}") from error
