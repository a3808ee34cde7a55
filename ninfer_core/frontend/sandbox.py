"""The Jinja environment of chat templates: immutable, without a loader, and without cheap ways to fill the memory.

A template may waste time. It reaches no file, no environment variable and no Python internals, and what a single
operation makes is bounded (bounds.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from jinja2 import nodes, pass_eval_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ninfer_core.frontend.bounds import (
    BINARY_OPERATORS,
    check_format,
    check_join,
    check_method,
    check_size,
    check_value,
    check_values,
    check_width,
)

# Filters that look at a value's parts and write nothing: the rest is held to the bounds, whatever it is given.
# fmt: off
_STRUCTURAL = frozenset((
    "abs", "attr", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last", "length",
    "list", "map", "max", "min", "random", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "unique",
))
# fmt: on


class GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}`: marks the assistant's text for training; here its body only."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _BoundedCode(CodeGenerator):
    """Compiles `a ~ b` to a call of the environment, which bounds it as it bounds the joining of output."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  (jinja2's name)
        self.write("environment.concat(str(environment.finalize(part)) for part in (")
        for arg in node.nodes:
            self.visit(arg, frame)
            self.write(", ")
        self.write("))")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """ImmutableSandboxedEnvironment with bounded operators, methods and output, and what Hugging Face templates use."""

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset(BINARY_OPERATORS)

    def __init__(self) -> None:
        extensions = [loopcontrols, GenerationTag]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=check_value)
        self.globals.pop("lipsum", None)
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        own = {"tojson": _tojson, "indent": _indent, "format": _format, "replace": _replace, "join": _join}
        self.filters.update(own)
        self.filters.update({n: _bounded(f) for n, f in self.filters.items() if n not in _STRUCTURAL})

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Join rendered parts (Jinja calls this for output, macros, block sets and `~`)."""
        kept, size = [], 0
        for part in parts:
            size += len(part)
            check_size(size)
            kept.append(part)
        return "".join(kept)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return BINARY_OPERATORS[operator](left, right)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps str.format
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(owner, str):
            check_method(owner, name, args, kwargs)
        return super().call(context, obj, *args, **kwargs)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose numbers are at most MAX_WIDTH and whose values can be written out."""

    @wraps(function)  # keeps Jinja's mark that asks for the context
    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            check_width(value)
        check_values((*args, *kwargs.values()))
        return function(*args, **kwargs)

    return checked


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRuntimeError(str(message))


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 200 or re.search(r"%[^a-zA-Z%]*\d", pattern):
        raise SecurityError("strftime_now: a format with a width is not allowed")
    return datetime.now().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face templates expect it: no HTML escaping, non-ASCII text as it is."""
    if isinstance(indent, str):
        check_width(len(indent))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    check_size(len(s) + (s.count("\n") + 1) * (width if isinstance(width, int) else len(width)))
    return str(FILTERS["indent"](s, width, first, blank))


def _format(value: str, *args: Any, **kwargs: Any) -> str:
    check_format(str(value))
    return str(FILTERS["format"](value, *args, **kwargs))


def _replace(s: Any, old: str, new: str, count: int | None = None) -> str:
    text = str(s)
    check_size(len(text) + text.count(str(old)) * len(str(new)))
    return text.replace(str(old), str(new), -1 if count is None else count)


@pass_eval_context
def _join(eval_ctx: EvalContext, value: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        value = map(make_attrgetter(eval_ctx.environment, attribute), value)
    glue, parts = str(d), list(map(str, map(check_value, value)))
    check_join(glue, parts)
    return glue.join(parts)
