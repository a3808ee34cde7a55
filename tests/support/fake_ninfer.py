"""`python -m tests.support.fake_ninfer SCENARIO.json ARGUMENT...`: the real program on the fake Engine."""

from __future__ import annotations

import sys
from pathlib import Path

import ninfer_core
from ninfer_cli.app import main
from tests.support.fake_engine import scenario_from_json, stand_in

if __name__ == "__main__":
    scenario = scenario_from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    ninfer_core.Engine = stand_in(**scenario)  # type: ignore[misc]
    ninfer_core.resolve_model = lambda name, **_: Path(name)
    main(sys.argv[2:])
