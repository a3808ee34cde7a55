"""A pytest plugin for mutants: a property test that fails is enough, its example need not be made small."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("mutants", phases=[Phase.generate], database=None)
settings.load_profile("mutants")
