"""Text in and out: tokenizers, chat templates, streams of text and stop strings."""

from sbjax.text.chat import ChatTemplates
from sbjax.text.stop_strings import Cut, StopStrings, TextStream, cut
from sbjax.text.stream_decoder import StreamDecoder
from sbjax.text.tokenizer import Tokenizer

__all__ = ["ChatTemplates", "Cut", "StopStrings", "StreamDecoder", "TextStream", "Tokenizer", "cut"]
