"""The Engine over a real model: its public calls, and that a reply does not depend on the company it keeps."""

from __future__ import annotations

import gc
import random
import shutil
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from ninfer_core import (
    CacheIntent,
    CacheMode,
    CapacityError,
    Completion,
    ContextCacheOptions,
    Engine,
    EngineClosed,
    EngineOptions,
    FinishReason,
    GenerationRequest,
    Message,
    ModelError,
    PromptTooLong,
    SamplingParams,
    TextDelta,
    UsageError,
)
from ninfer_core.engine.events import Finished, ReasoningDelta, Started

GREEDY = SamplingParams(temperature=0)


def ask(engine: Engine, text: str, most: int = 24, **settings: object) -> Completion:
    request = GenerationRequest(engine.prepare_text(text), max_new=most, **{"sampling": GREEDY, **settings})
    return engine.submit(request).result(60)


def test_generate_and_stream_agree(engine: Engine) -> None:
    settings = {"sampling": SamplingParams(seed=5), "max_new": 30, "thinking": False}
    whole = engine.generate("Hello", **settings)
    events = list(engine.stream([Message("user", "Hello")], **settings))
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
    last = events[-1].completion
    assert last.token_ids == whole.token_ids and last.seed == whole.seed == 5
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == whole.text
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == (whole.reasoning or "")


@pytest.mark.req("CAN-6")
def test_a_long_raw_prompt_is_not_read_again_as_a_whole(engine: Engine) -> None:
    def reused(length: int, **settings: object) -> list[int]:
        prompt = engine.prepare_text(f"{length}{len(settings)}" + "x" * (length - 4))
        assert len(prompt) == length
        found = []
        for _ in range(2):
            done = engine.generate(prompt, sampling=GREEDY, max_new=2, **settings)
            assert done.statistics.usage.prefill_tokens == length - done.statistics.reuse.frontier
            found.append(done.statistics.reuse.frontier)
        return found

    assert reused(511) == [0, 0]
    assert reused(512) == [0, 511], "all but its last token"
    assert reused(512, cache=CacheIntent()) == [0, 0], "unless the caller says otherwise"
    with pytest.raises(UsageError, match=r"prepare\(\)"):
        engine.generate(engine.prepare_text("x"), thinking=False)


def test_a_drawn_seed_is_told_and_repeats_the_reply(engine: Engine) -> None:
    first = ask(engine, "abc", sampling=SamplingParams())
    assert first.seed is not None
    assert ask(engine, "abc", sampling=SamplingParams(seed=first.seed)).token_ids == first.token_ids
    assert ask(engine, "abc").seed is None, "greedy needs none"


def test_replies_do_not_depend_on_company_or_chunks(engine: Engine, tiny_directory: Path) -> None:
    rng = random.Random(7)
    prompts = ["".join(rng.choices("abc de.\n", k=length)) for length in (1, 30, 63, 64, 65, 200, 300, 5, 90, 128)]
    params = [GREEDY if i % 2 else SamplingParams(seed=i, top_k=20, repetition_penalty=1.1) for i in range(10)]
    alone = [ask(engine, p, 40, sampling=s).token_ids for p, s in zip(prompts, params, strict=True)]
    handles = [
        engine.submit(GenerationRequest(engine.prepare_text(p), s, 40)) for p, s in zip(prompts, params, strict=True)
    ]
    assert [handle.result(60).token_ids for handle in handles] == alone
    with Engine(EngineOptions(model=tiny_directory, prefill_chunk=17, max_context=512)) as other:
        assert [ask(other, p, 40, sampling=s).token_ids for p, s in zip(prompts, params, strict=True)] == alone


def test_a_stop_string_ends_text_and_ledger_together(engine: Engine) -> None:
    free = ask(engine, "stop here", 60)
    middle = len(free.text) // 2
    stop = free.text[middle : middle + 3]
    stopped = ask(engine, "stop here", 60, stop=(stop,))
    assert stopped.finish_reason is FinishReason.STOP
    assert stopped.text == free.text[: free.text.find(stop)]
    n = len(stopped.token_ids)
    assert stopped.token_ids == free.token_ids[:n], "no token after the one that completed the stop string"
    assert stop in ask(engine, "stop here", n).text and stop not in ask(engine, "stop here", n - 1).text


def test_closing_a_stream_cancels_its_request(engine: Engine) -> None:
    stream = engine.stream("x", sampling=GREEDY, max_new=900)
    next(stream)
    stream.close()
    deadline = time.monotonic() + 20
    while any(owner.lane for owner in engine._worker._program.world.owners.values()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_eight_callers_at_once(engine: Engine) -> None:
    expected = {text: ask(engine, text, 20).token_ids for text in map(str, range(8))}
    wrong: list[str] = []

    def call(text: str) -> None:
        for _ in range(3):
            if ask(engine, text, 20).token_ids != expected[text]:
                wrong.append(text)

    threads = [threading.Thread(target=call, args=(text,)) for text in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_context_is_a_hard_end(engine: Engine) -> None:
    result = ask(engine, "a" * 1000, 4096)
    assert result.finish_reason is FinishReason.LENGTH and len(result.token_ids) == 24
    with pytest.raises(PromptTooLong, match="1024 tokens and the context holds 1024"):
        ask(engine, "a" * 1024)


def test_thinking_budget_closes_the_block(engine: Engine) -> None:
    prompt = engine.prepare([Message("user", "hm")], thinking=True)
    request = GenerationRequest(prompt, SamplingParams(seed=1, logit_bias={260: -100.0}), 40, thinking_budget=6)
    result = engine.submit(request).result(60)
    close = prompt.thinking_close
    assert close and result.token_ids[6 : 6 + len(close)] == close
    assert result.reasoning is not None and result.text


def test_thinking_budget_closes_a_block_that_the_model_opened(engine: Engine) -> None:
    prompt = engine.prepare([Message("user", "hm")], thinking=False)
    sampling = SamplingParams(seed=1, logit_bias={259: 1000.0, 260: -1000.0})
    result = engine.submit(GenerationRequest(prompt, sampling, 9, thinking_budget=3)).result(60)
    assert result.token_ids[: 3 + len(prompt.thinking_close)] == (259, 259, 259, *prompt.thinking_close)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_new": -1}, "max-new"),
        ({"max_new": 1.5}, "max-new"),
        ({"max_new": "3"}, "max-new"),
        ({"stop": ("",)}, "stop string"),
        ({"stop": "END"}, "tuple of texts"),
        ({"stop": (1,)}, "tuple of texts"),
        ({"sampling": None}, "SamplingParams"),
        ({"thinking_budget": -1}, "thinking-budget"),
        ({"sampling": SamplingParams(logit_bias={5000: 1.0})}, "token 5000"),
    ],
)
def test_impossible_requests_are_refused_before_they_queue(engine: Engine, settings: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        engine.submit(GenerationRequest(engine.prepare_text("a"), **settings))


def test_a_misspelt_keyword_is_not_passed_over(engine: Engine) -> None:
    with pytest.raises(TypeError, match=r"max_tokens.*max_new"):
        engine.generate("hi", max_tokens=3)


def test_foreign_tokens_and_empty_prompts_are_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="token 272"):
        engine.submit(GenerationRequest(engine.prepare_tokens([1, 272])))
    for empty in (lambda: engine.prepare_text(""), lambda: engine.prepare_tokens([]), lambda: engine.prepare([])):
        with pytest.raises(UsageError):
            empty()


def test_a_closed_engine_says_so(tiny_directory: Path) -> None:
    before = threading.active_count()
    engine = Engine(EngineOptions(model=tiny_directory))
    engine.close()
    with pytest.raises(EngineClosed):
        ask(engine, "a")
    assert threading.active_count() == before


@pytest.mark.req("REQ-1")
def test_nothing_stays_of_a_disabled_request(engine: Engine) -> None:
    disabled = CacheIntent(CacheMode.DISABLED)
    for _ in range(2):
        result = ask(engine, "once", cache=disabled)
        assert result.statistics.reuse.source.value == "Root" and result.statistics.usage.reused_tokens == 0
        assert result.statistics.reuse.misses[0].reason.value == "disabled" and result.statistics.captures == ()
    assert not engine._worker._program.world.used()
    ask(engine, "once")
    epoch = engine._worker._manager.books.demand.epoch
    result = ask(engine, "once", cache=disabled)
    assert result.statistics.usage.reused_tokens == 0, "a disabled request reads nothing either"
    assert engine._worker._manager.books.demand.epoch == epoch, "and leaves no demand record"


@pytest.mark.req("OPT-3")
def test_with_the_cache_off_nothing_is_kept(tiny_directory: Path) -> None:
    options = EngineOptions(model=tiny_directory, max_context=1024, cache=ContextCacheOptions(enabled=False))
    with Engine(options) as engine:
        for _ in range(2):
            assert ask(engine, "once").statistics.reuse.source.value == "Root"
        assert not engine._worker._program.world.used()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_context": 5000}, UsageError, "the model's longest is 4096"),
        ({"max_context": 600, "kv_capacity": 300}, CapacityError, "kv-capacity holds 320"),
        ({"kv_capacity": 1 << 40}, CapacityError, "lower --max-context, --kv-capacity"),
        ({"device": "cuda"}, UsageError, "--device cpu"),
    ],
)
def test_sizes_that_cannot_be(tiny_directory: Path, options: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Engine(EngineOptions(model=tiny_directory, **options))


def test_small_files_are_checked_before_the_weights_are_read(tiny_directory: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny_directory, tmp_path / "model"))
    for name, words in (("generation_config.json", "generation_config"), ("tokenizer.json", "tokenizer")):
        (directory / name).write_text("{")
        stages: list[str] = []
        with pytest.raises(ModelError, match=words):
            Engine(EngineOptions(model=directory, progress=lambda step, seen=stages: seen.append(step.stage)))
        assert "weights" not in stages


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_concurrency": 9}, "max-concurrency"),
        ({"max_concurrency": 0}, "max-concurrency"),
        ({"dtype": "int8"}, "dtype"),
        ({"device": "tpu"}, "device"),
        ({"max_context": 1}, "max-context"),
        ({"prefill_chunk": 0}, "prefill-chunk"),
        ({"queue_limit": 0}, "queue-limit"),
    ],
)
def test_options_that_cannot_be(options: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        EngineOptions(**options)


def test_memory_decides_the_default_sizes(tiny_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ninfer_core.engine import sizing

    page = 2 * 64 * 2 * 32 * 4
    monkeypatch.setattr(sizing, "available_memory", lambda: int((10 * page + 200_000) / sizing.HEADROOM))
    with Engine(EngineOptions(model=tiny_directory)) as engine:
        assert 0 < engine.info.max_context < 4096, "a shorter context where no whole one fits"
        assert engine.info.kv_capacity == engine.info.max_context
    monkeypatch.setattr(sizing, "available_memory", lambda: 1000)
    with pytest.raises(CapacityError, match="no memory is left"):
        Engine(EngineOptions(model=tiny_directory))


def test_an_engine_that_was_never_closed_ends_with_the_process(tiny_directory: Path) -> None:
    program = (
        "import sys\nfrom ninfer_core import Engine, EngineOptions, GenerationRequest\n"
        "engine = Engine(EngineOptions(model=sys.argv[1], max_context=1024))\n"
        "request = GenerationRequest(engine.prepare_text('hello'), max_new=900, ignore_end=True)\n"
        "handle = engine.submit(request)\nhandle.next_event(), handle.next_event()\nprint('left')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tiny_directory)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


def test_an_engine_that_was_forgotten_lets_go_of_its_thread_and_model(tiny_directory: Path) -> None:
    engine = Engine(EngineOptions(model=tiny_directory, max_context=64))
    thread, program = engine._worker._thread, weakref.ref(engine._worker._program)
    del engine
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
    gc.collect()
    assert program() is None


@pytest.mark.req("STAT-3")
def test_the_last_event_says_how_full_the_cache_is(engine: Engine) -> None:
    *_, last = engine.stream("Hello", max_new=2)
    assert isinstance(last, Finished) and last.axes == engine.cache_table().axes
    assert any(axis.used for axis in last.axes)
