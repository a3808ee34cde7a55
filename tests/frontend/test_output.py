"""OutputSession: tokens to text, exactly, in two channels, with stop strings and without half characters."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer_core.contract.prompt import OutputStart
from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message
from ninfer_core.frontend.output import OutputSession, Preview
from ninfer_core.frontend.stop_strings import StopStrings
from ninfer_core.frontend.tokenizer import Tokenizer

FAST = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ANSWER, REASONING = OutputStart.ANSWER, OutputStart.REASONING

# Ids below 256 are single bytes, so that characters come in pieces and some bytes are no UTF-8 at all.
token_ids = st.lists(st.integers(0, 255) | st.integers(0, 248076), max_size=30)


def read(session: OutputSession, ids: list[int] | tuple[int, ...]) -> list[Preview]:
    shown = []
    for token_id in ids:
        shown.append(session.push(token_id))
        if shown[-1].finish:
            break
    shown.append(session.flush())
    return shown


@given(ids=token_ids)
@FAST
def test_deltas_are_the_decoded_text(frontend: Frontend, full: tokenizers.Tokenizer, ids: list[int]) -> None:
    think = {frontend.tokenizer.think_open, frontend.tokenizer.think_close}
    ids = [i for i in ids if i not in frontend.tokenizer.stop_ids | think]
    session = OutputSession(frontend.tokenizer, ANSWER)
    shown = read(session, ids)
    text = "".join(p.text_delta for p in shown)
    assert text == full.decode(ids, skip_special_tokens=False) == session.text == frontend.decode(ids)
    assert not session.reasoning


@given(text=st.text(max_size=20), pieces=st.lists(st.integers(1, 3)))
@FAST
def test_no_half_character_is_shown(frontend: Frontend, text: str, pieces: list[int]) -> None:
    """Byte tokens of any text: at every moment what is shown is a beginning of the text."""
    text = text.encode("utf-8", "ignore").decode()
    by_byte = {frontend.tokenizer.token_bytes(i): i for i in range(256)}
    session = OutputSession(frontend.tokenizer, ANSWER)
    for byte in text.encode():
        session.push(by_byte[bytes([byte])])
        assert text.startswith(session.text)
    session.flush()
    assert session.text == text


@pytest.mark.parametrize("text", ["👨‍👩‍👧‍👦 family", "日本語です", "e\u0301galite\u0301", "नमस्ते", "🇨🇭"])
def test_joined_characters_survive(frontend: Frontend, text: str) -> None:
    session = OutputSession(frontend.tokenizer, ANSWER)
    shown = read(session, frontend.tokenizer.encode(text))
    assert "\ufffd" not in "".join(p.text_delta for p in shown)
    assert session.text == frontend.tokenizer.normalize(text)


def test_an_unfinished_character_is_shown_at_the_end(frontend: Frontend) -> None:
    session = OutputSession(frontend.tokenizer, ANSWER)
    first = next(i for i in range(256) if frontend.tokenizer.token_bytes(i) == b"\xf0")
    assert session.push(first).text_delta == ""
    assert session.flush().text_delta == "\ufffd"
    assert session.flush().text_delta == ""


@given(ids=token_ids, stop=st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=2))
@FAST
def test_preview_changes_nothing(frontend: Frontend, ids: list[int], stop: list[str]) -> None:
    session = OutputSession(frontend.tokenizer, REASONING, tuple(stop))
    for token_id in ids:
        before = session.state
        first = session.preview(token_id)
        session.preview(0)
        session.preview_flush()
        assert session.state is before and session.preview(token_id) == first
        session.commit(first)
        if first.finish:
            break


def test_a_stale_preview_is_refused(frontend: Frontend) -> None:
    session = OutputSession(frontend.tokenizer, ANSWER)
    stale = session.preview(64)
    session.push(65)
    with pytest.raises(ValueError, match="stale"):
        session.commit(stale)


# --- stop strings ---------------------------------------------------------------------------------------------------


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Character by character: the first stop string to be complete, of those the longest, ends the text."""
    for end in range(1, len(text) + 1):
        done = sorted((s for s in stops if text[:end].endswith(s)), key=len)
        if done:
            return text[: end - len(done[-1])], done[-1]
    return text, None


@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(1, 5), min_size=30, max_size=30),
)
@FAST
def test_stop_strings_against_the_naive_search(
    frontend: Frontend, text: str, stops: list[str], cuts: list[int]
) -> None:
    ids: list[int] = []
    rest = text
    for size in cuts:
        ids += frontend.tokenizer.encode(rest[:size])
        rest = rest[size:]
    session = OutputSession(frontend.tokenizer, ANSWER, tuple(stops))
    shown = read(session, ids)
    expected, match = naive(text, stops)
    assert "".join(p.text_delta for p in shown) == session.text == expected
    assert session.stop_string == match
    assert session.state.finish == (None if match is None else "stop")


@given(text=st.text("ab", max_size=12), stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
@FAST
def test_what_could_begin_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    held = StopStrings(tuple(stops)).held_back(text)
    longest = max(
        (n for s in stops for n in range(1, len(s)) if text.endswith(s[:n])),
        default=0,
    )
    assert held == longest


def test_a_stop_string_over_a_split_character(frontend: Frontend) -> None:
    session = OutputSession(frontend.tokenizer, ANSWER, ("é!",))
    by_byte = {frontend.tokenizer.token_bytes(i): i for i in range(256)}
    shown = [session.push(by_byte[bytes([byte])]) for byte in "abé!".encode()]
    assert [p.text_delta for p in shown] == ["a", "b", "", "", ""]
    assert shown[-1].finish == "stop" and shown[-1].stop_string == "é!"
    with pytest.raises(ValueError, match="finished"):
        session.preview(64)


def test_an_empty_stop_string_is_refused(frontend: Frontend) -> None:
    with pytest.raises(ValueError, match="empty"):
        OutputSession(frontend.tokenizer, ANSWER, ("",))


# --- channels -------------------------------------------------------------------------------------------------------


def ids_of(frontend: Frontend, text: str) -> list[int]:
    """Tokens of text as a model writes it: added tokens as such."""
    return list(frontend._composer.encode_trusted(text))


@pytest.mark.parametrize(
    ("start", "said", "reasoning", "text"),
    [
        (REASONING, "why\n</think>\n\nanswer", "why", "answer"),
        (REASONING, "\n\nwhy\n\nso\n\n</think>\nanswer\n", "why\n\nso", "answer\n"),
        (REASONING, "</think>\n\n\nanswer", "", "answer"),
        (REASONING, "no end\n", "no end\n", ""),
        (ANSWER, "<think>\nwhy\n</think>\n\nanswer", "why", "answer"),
        (ANSWER, "\n\nanswer", "", "\n\nanswer"),
        (ANSWER, "see <think> and </think>", "", "see <think> and </think>"),
        (ANSWER, "a</think>b", "", "a</think>b"),
        (REASONING, "a<think>b</think>c</think>d", "a<think>b", "c</think>d"),
    ],
)
def test_channels(frontend: Frontend, start: OutputStart, said: str, reasoning: str, text: str) -> None:
    session = OutputSession(frontend.tokenizer, start, skip_newlines=start is REASONING)
    shown = read(session, ids_of(frontend, said))
    assert (session.reasoning, session.text) == (reasoning, text)
    assert "".join(p.reasoning_delta for p in shown) == reasoning
    assert "".join(p.text_delta for p in shown) == text


def test_stop_strings_count_in_the_answer_only(frontend: Frontend) -> None:
    session = OutputSession(frontend.tokenizer, REASONING, ("stop",))
    read(session, ids_of(frontend, "I must not stop here\n</think>\n\nfirst stop second"))
    assert (session.reasoning, session.text) == ("I must not stop here", "first ")


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
def test_end_tokens_end_the_reply_and_are_not_shown(frontend: Frontend, end: str) -> None:
    session = OutputSession(frontend.tokenizer, ANSWER, ("xyz",))
    shown = read(session, ids_of(frontend, f"answer x{end}more"))
    assert session.text == "answer x"  # what was held back for the stop string is shown
    assert session.state.finish == "stop" and session.stop_string is None
    assert shown[-2].finish == "stop"
    ignoring = OutputSession(frontend.tokenizer, ANSWER, ignore_end=True)
    read(ignoring, ids_of(frontend, f"answer{end}more"))
    assert ignoring.text == f"answer{end}more"


@given(reasoning=st.text("ab \n.", max_size=12).map(str.strip), text=st.text("ab \n.", max_size=12).map(str.strip))
@FAST
def test_a_read_reply_renders_as_it_was_generated(frontend: Frontend, reasoning: str, text: str) -> None:
    """Reasoning and answer, given back in a tool loop, make the template write the generated text again."""
    prompt = frontend.prepare([Message("user", "q")])
    said = f"{reasoning}\n</think>\n\n{text}"
    session = frontend.open_output(prompt)
    read(session, ids_of(frontend, said))
    assert (session.reasoning, session.text) == (reasoning, text)
    if reasoning:
        replies = [Message("assistant", session.text, session.reasoning), Message("tool", "x")]
        later = frontend.prepare([Message("user", "q"), *replies])
        assert later.text.startswith(prompt.text + said)


def test_line_breaks_at_the_edge_of_the_block_are_skipped_whoever_writes_them(frontend: Frontend) -> None:
    prompt = frontend.prepare([Message("user", "q")])
    for cut in (prompt, replace(prompt, token_ids=prompt.token_ids[:-1])):
        session = frontend.open_output(cut)
        read(session, ids_of(frontend, "\nwhy\n</think>\n\nok"))
        assert (session.reasoning, session.text) == ("why", "ok")
    later = frontend.continue_with(prompt, ids_of(frontend, "one"))
    session = frontend.open_output(later)
    read(session, ids_of(frontend, "\n\ntwo\n</think>\n\nok"))
    assert session.reasoning == "\n\ntwo"


def test_long_outputs_cost_the_same_per_token(tokenizer: Tokenizer) -> None:
    """The state that a preview copies does not grow with the output."""
    session = OutputSession(tokenizer, ANSWER, ("never",))
    for token_id in list(tokenizer.encode("word " * 20)) * 50:
        session.push(token_id)
        assert len(session.state.held) < 5 and len(session.state.partial) < 4


def test_unknown_ids_are_silent(frontend: Frontend) -> None:
    session = OutputSession(frontend.tokenizer, ANSWER)
    assert session.push(248_300).text_delta == ""
