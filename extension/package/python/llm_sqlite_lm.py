"""A model of sqlite-lm for LLM (https://llm.datasette.io), answered in this process.

    llm -m sqlite-lm 'A Python module that reads and writes CSV files.' -s 'Write a one-line summary.'
    llm -m sqlite-lm 'What is SQLite?' -o model ~/models/qwen.gguf -o max_tokens 80
    llm chat -m sqlite-lm -o model http://gpu-1:8000/v1

`model` is what lm_models takes: a GGUF file, a directory of Hugging Face's, hf:OWNER/NAME:QUANT, a server's URL. Without it
LM_MODEL is asked, else the small model that ships. The turns of a conversation find each other in the prefix cache.
"""
import json
import sqlite3
import sys
import threading
from typing import Optional

import llm
from pydantic import Field

import sqlite_lm

_NUMBERS = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")


@llm.hookimpl
def register_models(register):
    register(SqliteLm())


class SqliteLm(llm.Model):
    model_id = "sqlite-lm"
    can_stream = True
    supports_schema = True

    class Options(llm.Options):
        model: Optional[str] = Field(default=None, description="a GGUF file, or the URL of a server; else LM_MODEL, else the model that ships")
        max_tokens: Optional[int] = Field(default=None, description="of the answer, at most (256)")
        temperature: Optional[float] = Field(default=None, description="0, the default, gives the same answer every time")
        top_k: Optional[int] = Field(default=None, description="sample from so many tokens")
        top_p: Optional[float] = Field(default=None, description="sample from tokens that are so probable together")
        min_p: Optional[float] = Field(default=None, description="sample from tokens that are this share as probable as the best")
        repeat_penalty: Optional[float] = Field(default=None, description="over the last 64 tokens")
        seed: Optional[int] = Field(default=None, description="another seed, another answer")
        stop: Optional[str] = Field(default=None, description="a string that ends the answer")
        more: Optional[str] = Field(default=None, description='other options of generate(), as JSON: {"choices":["yes","no"]}')

    def __init__(self):
        self._lock = threading.Lock()
        self._connections = {}  # a model stays loaded as long as a connection names it

    def _connection(self, model):
        with self._lock:
            if model not in self._connections:
                connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
                sqlite_lm.load(connection)
                if model is not None:
                    connection.execute("INSERT INTO temp.lm_models(name, path) VALUES ('default', ?)", (model,))
                self._connections[model] = connection
            return self._connections[model]

    def execute(self, prompt, stream, response, conversation):
        options = json.loads(prompt.options.more) if prompt.options.more else {}
        for name in _NUMBERS:
            value = getattr(prompt.options, name)
            if value is not None:
                options[name] = value
        if prompt.options.stop is not None:
            options["stop"] = [prompt.options.stop]
        if getattr(prompt, "schema", None):
            options["schema"] = prompt.schema
        options["messages"] = True
        system, messages = prompt.system, []
        for earlier in conversation.responses if conversation else ():
            system = system or earlier.prompt.system
            messages.append({"role": "user", "content": earlier.prompt.prompt})
            messages.append({"role": "assistant", "content": earlier.text()})
        messages.append({"role": "user", "content": prompt.prompt})
        asked = (json.dumps(messages), system or None, json.dumps(options))
        tokens = 0
        try:
            connection = self._connection(prompt.options.model)
            for piece, token in connection.execute("SELECT piece, token FROM lm_stream(?, ?, ?)", asked):
                if tokens == 0:
                    _show_hint(connection)
                tokens += token is not None
                yield piece
        except sqlite3.Error as error:
            raise llm.ModelError(str(error)) from error
        if hasattr(response, "set_usage"):
            response.set_usage(output=tokens)


def _show_hint(connection):
    """As that the model was not made for what it is asked."""
    hint = connection.execute("SELECT hint FROM lm_stats WHERE hint IS NOT NULL LIMIT 1").fetchone()
    if hint:
        print(f"sqlite-lm: {hint[0]} (here: -o model FILE)", file=sys.stderr)
