"""A person's hour: what each reply reused and computed, worked out by hand.

A message is <|im_start|>, its role and a line end, its text, <|im_end|> and a line end, and a token is a byte or one of
those marks. So around its text a system message has 10 tokens, a user's 8, an assistant's in history 13. A reply's
opener without thinking is <|im_start|>assistant, a line end, <think>, two line ends, </think>, two line ends: 17.
Replies have 20 letters: 33 tokens in history. The texts: "Be brief." has 9 letters, the eight questions
10, 15, 14, 11, 9, 16, 11, 15. So on the first branch messages start at

      0 system                37 reply 1 (19 + 10 + 8)
     19 user 1                70 user 2 (37 + 33)         93 reply 2     126 user 3     148 reply 3     181 user 4
    200 reply 4              233 user 5                  250 reply 5     283 user 6     307 reply 6     340 user 7
    359 reply 7              392 user 8                  415 reply 8

A prompt ends with the opener, 17 behind its reply's start. A recoverable frontier lies before every reply's opener, and
before every user's message behind the first; nothing deeper is one, because in history the published template takes the
empty think block out again: a reply in history differs from what was executed 11 tokens behind its start. So with F the
deepest of them at or below the common prefix, len(prompt) - F tokens are computed.

"edited" leaves after reply 1: user 2 at 70 has 19 letters, so reply 2 starts at 97, user 3 (11 letters) at 130, reply 3
at 149, user 4 (11) at 182, reply 4 at 201. On the first branch the rewritten reply 8 (13 letters) ends at 441, user 9
(7) stands there, reply 9 at 456, user 10 (11) at 489, reply 10 at 508.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.hour import REPLY, Hour, run_hour, trie_nodes
from tests.support.letters import LETTERS, write_letters
from tests.support.ninfer_process import Ninfer

OPENER = 17
Row = tuple[int, int, int, str]
BEFORE: list[Row] = [  # (prompt, reused, prefilled, from)
    (54, 0, 54, "Root"),
    (110, 37, 73, "TurnClosure"),  # each turn from before the reply of the turn before it
    (165, 93, 72, "TurnClosure"),
    (165, 148, 17, "TurnClosure"),  # /regen: the opener alone
    (217, 148, 69, "TurnClosure"),
    (267, 200, 67, "TurnClosure"),
    (267, 250, 17, "TurnClosure"),  # /regen
    (324, 250, 74, "TurnClosure"),
    (376, 307, 69, "TurnClosure"),
    (376, 359, 17, "TurnClosure"),  # /regen
    (432, 359, 73, "TurnClosure"),
    (432, 415, 17, "TurnClosure"),  # /regen 3, in one batch
    (432, 415, 17, "TurnClosure"),
    (432, 415, 17, "TurnClosure"),
    (114, 70, 44, "LongAnchor"),  # /edit 2: from where the message starts, though 16 tokens more are the same
    (166, 97, 69, "TurnClosure"),
    (473, 415, 58, "TurnClosure"),  # back on the first branch, behind the rewritten reply 8
]
AFTER: list[Row] = [
    (60, 0, 60, "Root"),  # another conversation: 19 + 16 + 8 + 17
    (525, 456, 69, "TurnClosure"),  # restored: on the first branch ...
    (525, 508, 17, "TurnClosure"),
    (218, 149, 69, "TurnClosure"),  # ... and on the edited one
    (218, 201, 17, "TurnClosure"),
    (270, 233, 37, "LongAnchor"),  # /edit 5 on the first: 233 + 12 + 8 + 17
]


def check(hour: Hour) -> None:
    assert [reply.row for reply in hour.before] == BEFORE
    assert [reply.row for reply in hour.after] == AFTER
    assert all(len(reply.text) == REPLY and set(reply.text.encode()) <= set(LETTERS) for reply in hour.replies)
    paid = sum(reply.prefill for reply in hour.replies)
    assert paid == 824 + 269  # the sums of the two tables
    assert paid <= trie_nodes(reply.prompt for reply in hour.replies) + OPENER * len(hour.replies)
    assert hour.restored["checkpoints"] == hour.saved["checkpoints"] and hour.saved["left_out"] == 0


@pytest.mark.timeout(1200)  # two processes on a machine that may be busy
@pytest.mark.req("DEF-2", "DEF-3", "SES-2", "SES-3", "SES-4", "CKP-3", "STAT-1")
def test_every_turn_costs_what_a_hand_works_out(ninfer: Ninfer, tmp_path: Path) -> None:
    hour = run_hour(ninfer, write_letters(tmp_path / "letters"))
    check(hour)
    replies = [reply.text for reply in hour.before[11:14]]
    assert len(set(replies)) == 3, "the three siblings have seeds of their own"


@pytest.mark.timeout(1800)
@pytest.mark.req("VER-1", "ID-4")
def test_a_cold_replay_of_each_reply_is_equal_and_costs_later_ones_nothing(ninfer: Ninfer, tmp_path: Path) -> None:
    hour = run_hour(ninfer, write_letters(tmp_path / "letters"), verify=True)
    check(hour)
    assert hour.verified == ({"state": True, "kv": True, "tokens": True, "detail": None},) * 21


def test_a_trie_counts_what_is_shared_once() -> None:
    assert trie_nodes([(1, 2, 3), (1, 2, 4), (1, 2)]) == 4
