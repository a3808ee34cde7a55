"""Chat: one conversation with one Engine. It neither reads a keyboard nor draws; the loops do."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING

from ninfer_cli.generation import follow_all
from ninfer_cli.inputs import joined
from ninfer_cli.repl.job import Answer, Job, ReplyFailed
from ninfer_cli.repl.keeping import Keeper
from ninfer_cli.repl.node import Start, Turn
from ninfer_cli.repl.surface import ScriptSurface, Surface
from ninfer_cli.repl.tree import NodeId, Tree
from ninfer_cli.rescue import TEXT_ALONE, rescue
from ninfer_cli.sessions import Kept
from ninfer_core import CacheIntent, FinishReason, GenerationRequest, Message, PromptTooLong, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ninfer_cli.reply_view import ReplyView
    from ninfer_cli.settings import Settings
    from ninfer_core import AxisUse, Engine, PreparedPrompt, RestoredSession


MOST_STATES = 200
"""Turns whose resume state /tree looks up: each has to be rendered for it."""


@dataclass(slots=True)
class Chat:
    """The state that the loops and the commands share.

    Attributes:
        tree: the conversation.
        initial: the settings at the start, which `/set KEY default` goes back to.
        files: texts that --file and /file put before the next message.
        last: the last request that was begun, also if it failed.
        surface: where the chat happens.
        keeper: keeps it on the disk.
        session: names the conversation to the context cache; one for the whole tree.
        cache_use: how full the context cache was after the last request: for the toolbar, which must not ask and wait.
        lengths: tokens of the paths to nodes that were not generated where they stand.
    """

    engine: Engine
    settings: Settings
    tree: Tree
    initial: Settings
    files: list[str] = field(default_factory=list)
    last: Answer | None = None
    surface: Surface = field(default_factory=ScriptSurface)
    keeper: Keeper = field(default_factory=lambda: Keeper(lambda line: None, enabled=False))
    session: str = field(default_factory=lambda: token_hex(8))
    cache_use: tuple[AxisUse, ...] = ()
    lengths: dict[NodeId, int] = field(default_factory=dict)
    _ledgers: list[Sequence[int]] = field(default_factory=list, repr=False)
    _looked_at: int = 0

    @classmethod
    def start(cls, engine: Engine, settings: Settings, system: str | None, files: list[str]) -> Chat:
        return cls(engine, settings, Tree.starting(Start.with_system(system)), settings, files)

    # --- what is to be generated: nothing changes -----------------------------------------------------------------
    def message(self, text: str) -> Job:
        """The user says text at the current point. Raises UsageError as `job` does."""
        asked = (Message(role="user", content=joined([*self.files, text])),)
        return replace(self.job(self.tree.current, asked), unsent=text, spends_files=True)

    def job(self, parent: NodeId, asked: tuple[Message, ...], seeds: Sequence[int] = ()) -> Job:
        """Replies to what is asked behind a node, one for each seed; without seeds one with the settings' own.

        Raises:
            UsageError: the prompt cannot be rendered.
        """
        think = self.settings.think
        tools = self._tools(parent)
        prompt = self.engine.prepare([*self.tree.messages(parent), *asked], tools=tools, thinking=think)
        request = self._request(prompt, tools)
        sampling = request.sampling
        # Siblings start from one checkpoint at the same time: none of them may consume it.
        cache = replace(request.cache, sibling=len(seeds) > 1)
        several = tuple(replace(request, sampling=replace(sampling, seed=seed), cache=cache) for seed in seeds)
        return Job(parent, asked, several or (request,), think)

    def continuation(self, at: NodeId) -> Job:
        """The reply of a turn goes on. Raises UsageError: it calls tools, or has nothing to go on from."""
        turn, parent = self.tree.turn_at(at), self.tree.parent(at)
        think, tools = turn.reply.think, self._tools(parent)
        before = [*self.tree.messages(parent), *turn.asked]
        opener = len(self.engine.prepare(before, tools=tools, thinking=think))
        reply = turn.reply.message(unfinished=True)
        prompt = self.engine.prepare([*before, reply], tools=tools, thinking=think)
        request = self._request(prompt, tools)
        return Job(parent, turn.asked, (request,), think, before=turn.reply, opener=opener)

    # --- generating -----------------------------------------------------------------------------------------------
    def carry_out(self, job: Job, view: ReplyView, wants_end: Callable[[], bool]) -> tuple[Answer, ...]:
        """Generate; the turns are added, the point moves to the first of them.

        Raises:
            UsageError: the prompt is too long, or the turn could not be kept; nothing was changed.
            ReplyFailed: no turn came of it, and a reply ended with an error; nothing was changed.
        """
        self.keeper.check_room(self.tree, "".join(message.content for message in job.asked))
        handles = []
        try:
            for request in job.requests:
                handles.append(self.engine.submit(request))
            followed = follow_all(handles, view, wants_end, self._progress(len(handles)))
        except BaseException:
            for handle in handles:
                handle.cancel()
            raise
        finally:
            self.surface.progress("")
        completions, self.cache_use = followed.completions, followed.axes
        self.last = Answer(completions[0], None)
        tree, answers = self.tree, []
        for index, completion in enumerate(completions):
            turn = job.turn(completion, self.engine.info.model, index)
            tree = tree if turn is None else tree.add(job.parent, turn)
            answers.append(Answer(completion, None if turn is None else tree.current))
        made = [answer.node for answer in answers if answer.node is not None]
        failed = [c for c in completions if c.finish_reason is FinishReason.ERROR]
        if not made:
            if failed:
                raise ReplyFailed(failed[0])
            return tuple(answers)
        self.last = answers[0]
        self.tree = tree if len(made) == 1 else tree.move(made[0])
        if job.spends_files:
            self.files.clear()
        return tuple(answers)

    def sampling_seeds(self, count: int) -> list[int]:
        """Seeds of the next siblings of the current turn: hash(seed, turn, sibling).

        The seed is that of the settings, else that of the turn itself.

        Raises:
            UsageError: greedy, which always gives the same reply.
        """
        sampling = self.settings.sampling(self.engine.default_sampling)
        if sampling.greedy:
            raise UsageError("greedy gives the same reply again: raise the temperature first (/set temperature 0.8)")
        turn = self.tree.turn
        record = None if turn is None else turn.reply.record
        seed = sampling.seed if sampling.seed is not None else (record.seed if record else None) or 0
        branch = self.tree.branch(self.tree.current)
        return [sibling_seed(seed, branch.turn, branch.siblings + i) for i in range(1, count + 1)]

    def resume_states(self, most: int = MOST_STATES) -> dict[NodeId, str]:
        """For each turn, newest first, where its reply would be generated from again: which tier, and how much of the
        prompt. What only the session's directory holds, for lack of room, is "disk": opening it with more room brings
        it back. Empty while the cache is off."""
        turns = [NodeId(i) for i, node in enumerate(self.tree.nodes) if node.parent is not None][-most:]
        if not turns or not self.engine.info.cache:
            return {}
        prompts = []
        for at in turns:
            parent, turn = self.tree.parent(at), self.tree.turn_at(at)
            asked = [*self.tree.messages(parent), *turn.asked]
            prompts.append(self.engine.prepare(asked, tools=self._tools(parent), thinking=turn.reply.think))
        found, held = self.engine.residency(prompts), self.keeper.held(prompts)
        states = {}
        for at, prompt, state, disk in zip(turns, prompts, found, held, strict=True):
            words = [f"{state.placement.value} {state.frontier}/{len(prompt)}"] if state.frontier else []
            words += [f"disk {disk}/{len(prompt)}"] if disk > state.frontier else []
            states[at] = ", ".join(words) or "prefill"
        return states

    # --- sessions -------------------------------------------------------------------------------------------------
    def ledgers(self) -> list[Sequence[int]]:
        """Token ids of every branch that may have state: what a session has brought, and of each turn that was
        generated since its prompt and its reply. A node is rendered once."""
        for i in range(self._looked_at, len(self.tree.nodes)):
            at, turn = NodeId(i), self.tree.nodes[i].value
            if not isinstance(turn, Turn) or not turn.reply.token_ids:
                continue
            parent = self.tree.parent(at)
            asked = [*self.tree.messages(parent), *turn.asked]
            prompt = self.engine.prepare(asked, tools=self._tools(parent), thinking=turn.reply.think)
            self._ledgers.append(array("I", (*prompt.token_ids, *turn.reply.token_ids)))
        self._looked_at = len(self.tree.nodes)
        return list(self._ledgers)

    def begin_anew(self) -> Path | None:
        """A new conversation with the same system message: another tree, which is kept for itself.

        Returns:
            Where the conversation before stays. One that is kept nowhere stays in the same tree, as a beginning beside
            the new one: nothing that was said is ever lost.
        """
        start = Start(self.tree.start.leading)
        if len(self.tree.nodes) == 1 and (self.keeper.place is None or not self.files):
            self._replace(Tree.starting(start))
            return None
        self.keeper.keep(self)
        if self.keeper.unsaved(self.tree):
            self.tree = self.tree.begin(start)  # texts of /file go on waiting: nobody else has them
            return None
        place = self.keeper.place or self.keeper.saved_to
        self.keeper.close(self)
        self._replace(Tree.starting(start))
        return place

    def _replace(self, tree: Tree, files: Sequence[str] = (), restored: Sequence[Sequence[int]] = ()) -> None:
        """Another conversation in the place of this one; the context cache hears of it by another name.

        Args:
            restored: token ids of what a session has brought with it.
        """
        self.tree, self.last, self.session = tree, None, token_hex(8)
        self.files[:] = files
        self.lengths.clear()
        self._ledgers[:] = [array("I", ids) for ids in restored]
        self._looked_at = len(tree.nodes)

    def restore(self, path: Path, *, rebuild: bool) -> RestoredSession | None:
        """Go on with a saved conversation in the place of this one, which stays where it was kept.

        Raises:
            SessionError, UsageError: one line; nothing has changed then.
        """
        self.keeper.keep(self)
        with rescue(path, TEXT_ALONE, rebuild=rebuild):
            kept, restored = self.keeper.bring_back(self, path, rebuild=rebuild)
        self._replace(kept.tree, kept.files, () if restored is None else restored.paths)
        self.cache_use = self.engine.cache_table().axes
        return restored

    def kept(self, *, is_open: bool = False) -> Kept:
        """The conversation as a session holds it."""
        return Kept(self.tree, tuple(self.files), is_open)

    # --- figures --------------------------------------------------------------------------------------------------
    def context_used(self) -> int:
        """Tokens of the current path after its last reply, as far as they are known without rendering."""
        measured = self.lengths.get(self.tree.current)
        turn = self.tree.turn
        if measured is not None or turn is None or turn.reply.record is None:
            return measured or 0
        usage = turn.reply.record.statistics.usage
        return usage.prompt_tokens + usage.completion_tokens

    def adopt(self, tree: Tree) -> int:
        """Make a tree whose current path nobody has generated the conversation; returns the path's tokens.

        Raises:
            UsageError: the template does not take it, or it could not be kept; nothing was changed.
            PromptTooLong: it leaves no room for a reply; nothing was changed.
        """
        self.keeper.check_room(tree)
        tokens = 0
        if tree.turn is not None:
            prompt = self.engine.prepare(tree.messages(), tools=tree.start.tools, thinking=self.settings.think)
            tokens = len(prompt)
        info = self.engine.info
        if tokens >= info.max_context:
            raise PromptTooLong(tokens, info.max_context, info.kv_capacity)
        self.tree = tree
        self.lengths[tree.current] = tokens
        return tokens

    def _tools(self, at: NodeId) -> tuple[dict[str, object], ...] | None:
        return self.tree.move(at).start.tools

    def _request(self, prompt: PreparedPrompt, tools: tuple[dict[str, object], ...] | None) -> GenerationRequest:
        settings = self.settings
        return GenerationRequest(
            prompt=prompt,
            sampling=settings.sampling(self.engine.default_sampling),
            max_new=settings.max_new,
            stop=settings.stop,
            thinking_budget=settings.thinking_budget,
            tools=tools,
            cache=CacheIntent(session=self.session),
        )

    def _progress(self, count: int) -> Callable[[Mapping[int, str]], None]:
        def show(others: Mapping[int, str]) -> None:
            self.surface.progress(" · ".join(f"{i + 1}/{count}: {what}" for i, what in others.items()))

        return show


def sibling_seed(seed: int, turn: int, sibling: int) -> int:
    """48 bits that differ for every turn and sibling, and are the same tomorrow."""
    return int.from_bytes(sha256(f"{seed}/{turn}/{sibling}".encode()).digest()[:6], "big")
