"""Chat templates: where they come from, what Hugging Face templates use, and what a hostile one cannot do."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from ninfer_core.errors import ModelError, TemplateError
from ninfer_core.frontend.template import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def render(source: str, **variables: Any) -> str:
    return ChatTemplate(source).render(variables.pop("messages", USER), **variables)


# --- where it comes from --------------------------------------------------------------------------------------------


def test_the_file_comes_before_the_configuration(tmp_path: Path) -> None:
    config = {"chat_template": "config"}
    assert ChatTemplate.load(tmp_path, config, {}).render(USER) == "config"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert ChatTemplate.load(tmp_path, config, {}).render(USER) == "file"


def test_named_templates_use_the_default(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert ChatTemplate.load(tmp_path, {"chat_template": named}, {}).render(USER) == "d"


@pytest.mark.parametrize("config", [{}, {"chat_template": 3}, {"chat_template": [{"name": "x", "template": "y"}]}])
def test_a_missing_template_is_an_error_that_says_what_to_do(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"no chat template: put the model's chat_template\.jinja"):
        ChatTemplate.load(tmp_path, config, {})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{% if %}", "broken at line 1"),
        (b"{% for m in messages %}", "broken at line 1"),
        (b"\xff", "not UTF-8"),
        (b"x" * (2**20 + 1), "the limit is 1,048,576"),
        (b"{{ " + b"(" * 3000 + b"1" + b")" * 3000 + b" }}", "cannot be compiled"),
        (b"{% include 'other' %}{{ 1 | nosuch }}", "nosuch"),
    ],
)
def test_a_broken_template_is_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(data)
    with pytest.raises(ModelError, match=said) as caught:
        ChatTemplate.load(tmp_path, {}, {})
    assert "\n" not in str(caught.value)


def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    model = tmp_path / "model"
    model.mkdir()
    (model / "chat_template.jinja").symlink_to(secret)
    with pytest.raises(ModelError, match="outside the model directory"):
        ChatTemplate.load(model, {}, {})
    (model / "chat_template.jinja").unlink()
    os.mkfifo(model / "chat_template.jinja")
    with pytest.raises(ModelError, match="not a regular file"):
        ChatTemplate.load(model, {}, {})


def test_the_links_of_a_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "m" / "blobs", tmp_path / "m" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "f00").write_text("from the cache")
    (snapshot / "chat_template.jinja").symlink_to(Path("../../blobs/f00"))
    assert ChatTemplate.load(snapshot, {}, {}).render(USER) == "from the cache"


# --- what Hugging Face templates use --------------------------------------------------------------------------------


def test_variables_and_white_space() -> None:
    source = "{% if true %}\n  {% if tools is none %}no tools{% endif %}\n{% endif %}"
    source += "{{ bos_token }}{{ add_generation_prompt }}"
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(USER) == "no tools<s>False"
    assert render("{{ enable_thinking is defined }}") == "False"
    assert render("{{ enable_thinking }}", thinking=False) == "False"


def test_tojson_is_plain_json() -> None:
    value = {"b": "<é> & 'x'", "a": [1, None, True]}
    out = render("{{ tools[0] | tojson }}|{{ tools[0] | tojson(indent=2) }}", tools=[value])
    assert out == json.dumps(value, ensure_ascii=False) + "|" + json.dumps(value, ensure_ascii=False, indent=2)
    out = render("{{ tools[0] | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}", tools=[value])
    assert out == json.dumps(value, separators=(",", ":"), sort_keys=True)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for i in range(5) %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "0134"),
        ("{% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c", "abhic"),
        ("{{ ['a', 'b'] | join('-') }}{{ messages | join(attribute='role') }}", "a-buser"),
        ("{{ messages | map(attribute='role') | join(',') }}", "user"),
        ("{{ 'aXb' | replace('X', '-') }}{{ 'aXX'.replace('X', '') }}", "a-ba"),
        ("{{ 'a' ~ 1 ~ none ~ nosuch }}{{ 3 * 4 }}{{ 2 ** 3 }}{{ 7 % 4 }}", "a1None1283"),
        ("{{ '%s!' % 'x' }}{{ 'x{}'.format(1) }}{{ '%s-%s' | format('a', 'b') }}", "x!x1a-b"),
        ("{{ 'a' | center(3) }}|{{ 'a\nb' | indent(2) }}|{{ 'a'.ljust(3) }}|", " a |a\n  b|a  |"),
        ("{{ [3, 1] | sort | list }}{{ {'b': 1} | items | list }}", "[1, 3][('b', 1)]"),
        ("{{ 'x' if messages[-1].role == 'user' }}{{ nosuch }}{{ messages[0].nosuch is defined }}", "xFalse"),
        ("{% set x %}{{ 'a' }}b{% endset %}{{ x + 'c' }}", "abc"),
        ("{{ messages[0].content[::-1] }}{{ messages[0]['content'] | upper }}", "ihHI"),
    ],
)
def test_usual_expressions(source: str, text: str) -> None:
    assert render(source) == text


def test_the_date() -> None:
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10


def test_raise_exception_shows_the_template_s_words() -> None:
    with pytest.raises(TemplateError, match=r"refuses the messages: Only one at a time$"):
        render("{{ raise_exception('Only one at a time.') }}")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ messages[0].nosuch.more }}", "has no attribute 'nosuch'"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ 'x' + 1 }}", "TypeError"),
        ("{{ messages[0].content | int('x' | tojson) + [] }}", "TypeError"),
    ],
)
def test_failures_are_one_line(source: str, said: str) -> None:
    with pytest.raises(TemplateError, match=said) as caught:
        render(source)
    assert "\n" not in str(caught.value)


# --- what a hostile template cannot do ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['json'] }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].clear() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ ''|attr('__class__')|attr('__mro__') }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ ['{0.__class__}'] | map('format', '') | list }}{{ ''.__class__ }}",
        "{{ lipsum(n=100000) }}",
        "{% include '/etc/passwd' %}",
        "{% import '/etc/passwd' as x %}",
        "{{ range(1000000) | list }}",
    ],
)
def test_internals_files_and_mutation_are_out_of_reach(source: str) -> None:
    try:
        text = render(source)
    except TemplateError:
        return
    assert "class" not in text and "root" not in text


# 60 lists, each of which holds the one before twice: written out, more than the world's memory.
NESTED = "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ 9 ** 999999999 }}",
        "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% macro twice(s) %}{{ s }}{{ s }}{% endmacro %}"
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = twice(n.s) %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s.replace('x', 'xx') %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s | replace('x', 'xx') %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s.join([n.s, n.s, n.s]) %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = [n.s, n.s] | join %}{% endfor %}",
        "{% for i in range(100000) %}{{ '" + "x" * 200 + "' }}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
        NESTED + "{{ n.s }}",
        NESTED + "{{ n.s ~ 1 }}",
        NESTED + "{{ n.s | tojson }}",
        NESTED + "{{ n.s | string }}",
        NESTED + "{{ n.s | upper }}",
        NESTED + "{{ n.s | pprint }}",
        NESTED + "{{ n.s | join }}",
        NESTED + "{{ '%s' % [n.s] }}",
        NESTED + "{{ '%s' | format(n.s) }}",
        NESTED + "{{ '{}'.format(n.s) }}",
        "{{ [1] | batch(1000000000, 'x') | list }}",
        "{{ 1.5 | round(1000000000, 'ceil') }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ 'x'.center(1000000000) }}",
        "{{ 'x' | center(1000000000) }}",
        "{{ 'x\ny' | indent(1000000000) }}",
        "{{ '1'.zfill(1000000000) }}",
        "{{ '\t'.expandtabs(1000000000) }}",
        "{{ '{:>1000000000}'.format('x') }}",
        "{{ '{:>{w}}'.format('x', w=1000000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%.1000000000f' | format(1.5) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ strftime_now('%1000000000d') }}",
        "{{ messages | tojson(indent=1000000000) }}",
    ],
)
def test_memory_cannot_be_filled(source: str) -> None:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises((TemplateError, ModelError)) as caught:
        render(source)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KiB
    assert time.monotonic() - start < 20
