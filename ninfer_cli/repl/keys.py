"""Which key does what; and keys that were typed before there was a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys

from ninfer_cli.repl.submission import is_open

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.input import Input


class Person(Protocol):
    """What the keys that mean more than a letter ask for."""

    def send(self) -> None:
        """What is in the input line, unless another key comes right behind."""

    def interrupt(self, buffer: Buffer) -> None:
        """Ctrl-C."""

    def end_of_input(self, buffer: Buffer) -> None:
        """Ctrl-D."""


def bindings(person: Person) -> KeyBindings:
    """The chat's own keys, beside prompt-toolkit's."""
    keys = KeyBindings()

    @keys.add("enter", save_before=lambda event: False)  # ten thousand pasted lines are no steps of undo
    def _(event: KeyPressEvent) -> None:
        # More keys at once mean a paste on a terminal without bracketed paste: it never sends by itself.
        together = any(press.key is not Keys.CPRResponse for press in event.key_processor.input_queue)
        buffer = event.current_buffer
        if together:
            buffer.insert_text("\n")
        elif is_open(buffer.text):
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()  # it has done its work; others, pasted or edited, are text
            buffer.insert_text("\n")
        else:
            person.send()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-x", "c-e")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor(validate_and_handle=False)

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        person.interrupt(event.current_buffer)

    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        person.end_of_input(event.current_buffer)

    return keys


def type_ahead(text: str, to: Input) -> None:
    """Let a prompt that begins later find keys that came already."""
    presses: list[KeyPress] = []
    Vt100Parser(presses.append).feed(text)
    store_typeahead(to, presses)
