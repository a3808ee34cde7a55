"""Tokenizer: plain text only, the table of added tokens, and clear errors for foreign or damaged files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer_core.errors import ModelError, UsageError
from ninfer_core.frontend import tokenizer as module
from ninfer_core.frontend.composer import Composer
from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message
from ninfer_core.frontend.span_cache import SpanCache
from ninfer_core.frontend.template import ChatTemplate
from ninfer_core.frontend.tokenizer import Tokenizer
from tests.support.tokenizers import REAL_VOCAB_SIZE, added, byte_document, write_bytes

FAST = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

AWKWARD = [
    added(256, "<|im_start|>", special=True),
    added(257, "<|im_end|>", special=True),
    added(258, "<a>"),
    added(259, "<a><b>"),
    added(260, "aba"),
    added(261, "<l>", lstrip=True),
    added(262, "<r>", rstrip=True),
    added(263, "word", single_word=True),
    added(264, '"q"'),
    added(265, "two words"),
]
PIECES = (
    "<",
    "a",
    ">",
    "b",
    "<b>",
    "l>",
    "r>",
    " ",
    "\n",
    "word",
    "wor",
    "d",
    '"',
    "q",
    "two",
    "two ",
    "words",
    "_",
    "é",
)
fragments = st.lists(st.sampled_from((*PIECES, *(t["content"] for t in AWKWARD))), max_size=8).map("".join)


@pytest.fixture(scope="module")
def awkward() -> Tokenizer:
    return Tokenizer(byte_document(AWKWARD), {}, {})


@pytest.fixture(scope="module")
def awkward_full() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(byte_document(AWKWARD)))


@given(text=st.text(max_size=40))
@FAST
def test_plain_text_is_encoded_as_the_library_does(frontend: Frontend, full: tokenizers.Tokenizer, text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    ids = frontend.tokenizer.encode(text)
    assert list(ids) == full.encode(text, add_special_tokens=False).ids
    assert frontend.decode(ids) == frontend.tokenizer.normalize(text) == full.decode(list(ids))


@given(text=fragments)
@FAST
def test_trusted_text_finds_added_tokens_as_the_library_does(
    awkward: Tokenizer, awkward_full: tokenizers.Tokenizer, text: str
) -> None:
    composer = Composer(ChatTemplate(""), awkward)
    assert list(composer.encode_trusted(text)) == awkward_full.encode(text, add_special_tokens=False).ids


@given(first=fragments, second=fragments)
@FAST
def test_awkward_added_tokens_do_not_come_from_text(awkward: Tokenizer, first: str, second: str) -> None:
    """Also where content and content, or content and template, stand side by side."""
    source = (
        "{{ '<|im_start|>' }}{% for m in messages %}{{ m.content }}{% endfor %}"
        "{{ '<' + messages[0].content + '>' + messages[1].content | trim + '<b><a>' }}"
    )
    made = Frontend(awkward, ChatTemplate(source))
    prompt = made.prepare([Message("user", first), Message("user", second)])
    found = [awkward.added_content(i) for i in prompt.token_ids if awkward.added_content(i) is not None]
    assert found == ["<|im_start|>", "<a>"]


def test_words_of_the_vocabulary_that_are_added_tokens_are_not_encoded() -> None:
    """Some vocabularies list their control tokens among the ordinary ones, and take whole words from it."""
    document = byte_document([added(256, "<a>")])
    document["model"]["vocab"]["<a>"] = 256
    document["model"]["ignore_merges"] = True
    document["pre_tokenizer"] = document["pre_tokenizer"]["pretokenizers"][1]
    assert tokenizers.Tokenizer.from_str(json.dumps({**document, "added_tokens": []})).encode("<a>").ids == [256]
    assert Tokenizer(document, {}, {}).encode("<a>") == tuple(b"<a>")


def test_truncation_padding_and_post_processing_are_ignored() -> None:
    document = byte_document()
    document["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    assert Tokenizer(document, {}, {}).encode("abcd") == tuple(b"abcd")


def test_half_a_surrogate_pair_is_refused(frontend: Frontend) -> None:
    with pytest.raises(UsageError, match="character 2 of a text is half a surrogate pair"):
        frontend.prepare_text("a\ud800")
    with pytest.raises(UsageError, match=r"messages\[1\]: character 1"):
        frontend.prepare([Message("system", "s"), Message("user", "\udcff")])


def test_the_real_tokenizer_s_facts(tokenizer: Tokenizer) -> None:
    assert tokenizer.size == 248_077
    assert tokenizer.stop_ids == {248_044, 248_046}
    assert (tokenizer.think_open, tokenizer.think_close) == (248_068, 248_069)
    assert not tokenizer.added["<think>"].special and tokenizer.added["<|im_end|>"].special


@pytest.mark.parametrize(("eos", "ids"), [(7, {7, 258}), ([7, 8], {7, 8, 258}), (None, {258}), ([], {258})])
def test_stop_ids(eos: Any, ids: set[int]) -> None:
    assert Tokenizer(byte_document(), {"eos_token": {"content": "<|im_end|>"}}, {"eos_token_id": eos}).stop_ids == ids


# --- foreign and damaged files --------------------------------------------------------------------------------------


def damage(change: Callable[[dict[str, Any]], Any]) -> str:
    document = byte_document()
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "decoder"),
        (damage(lambda d: d.update(decoder={"type": "WordPiece"})), "not byte-level BPE"),
        (damage(lambda d: d.update(model=None)), "vocabulary is missing"),
        (damage(lambda d: d["model"].update(vocab={"a": "b"})), "vocabulary is missing"),
        (damage(lambda d: d["model"].update(merges=[["x", "nosuch"]])), "refuses it"),
        (damage(lambda d: d["model"].update(type="Nosuch")), "refuses it"),
        (damage(lambda d: d.update(normalizer={"type": "Nosuch"})), "refuses it"),
        (damage(lambda d: d.update(added_tokens=[{"id": 1}])), "no content"),
        (damage(lambda d: d.update(added_tokens=[{"content": "x", "id": -1}])), "has no id"),
        (damage(lambda d: d.update(added_tokens=[added(999_999, "x")])), "smaller than a token id"),
        (damage(lambda d: d["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": "("})), "refuses it"),
    ],
)
def test_damaged_files_are_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=said) as caught:
        Tokenizer.load(tmp_path, REAL_VOCAB_SIZE)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_missing_and_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json: fetch"):
        Tokenizer.load(tmp_path, 1024)
    with pytest.raises(ModelError, match="no such model directory"):
        Tokenizer.load(tmp_path / "nowhere", 1024)
    write_bytes(tmp_path)
    assert Tokenizer.load(tmp_path, 263).size == 263
    with pytest.raises(ModelError, match=r"vocabulary \(262\) is smaller than a token id \(262\)"):
        Tokenizer.load(tmp_path, 262)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(ModelError, match="eos_token_id"):
        Tokenizer.load(tmp_path, 263)
    monkeypatch.setattr(module, "MAX_TOKENIZER_BYTES", 100)
    with pytest.raises(ModelError, match="the limit is 100"):
        Tokenizer.load(tmp_path, 263)


def test_the_span_cache_is_bounded() -> None:
    cache = SpanCache(max_characters=10)
    for text in ("aaaa", "bbbb", "aaaa", "cccc"):
        cache.put(text, (1,))
    assert cache.get("bbbb") == (1,) or cache.get("aaaa") == (1,)
    assert sum(cache.get(text) is not None for text in ("aaaa", "bbbb", "cccc")) == 2
    cache.put("x" * 11, (1,))
    assert cache.get("x" * 11) is None
