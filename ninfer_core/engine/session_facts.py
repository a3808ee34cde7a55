"""What a saved state must agree in beside the model: the files that turn text into its tokens (context-cache SES-4)."""

from __future__ import annotations

from pathlib import Path

from blake3 import blake3

from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.tokenizer import MAX_TOKENIZER_BYTES
from ninfer_core.models.directory import ModelDirectory


def session_facts(directory: Path, frontend: Frontend) -> dict[str, str]:
    """Digests of tokenizer.json and of the chat template.

    Raises:
        ModelError: the tokenizer cannot be read any more.
    """
    data = ModelDirectory.open(directory).read("tokenizer.json", MAX_TOKENIZER_BYTES) or b""
    return {"tokenizer": blake3(data).hexdigest(length=20), "template": frontend.template_digest}
