"""ThinkingSupport: what a chat template lets a person decide about reasoning."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_core.errors import UsageError


@dataclass(frozen=True, slots=True)
class ThinkingSupport:
    """Found by probing the template once.

    Attributes:
        has_switch: rendering with enable_thinking true and false differs.
        opener_always_thinks: there is no switch and the generation opener leaves a think block open.
        default: whether a prompt without a wish opens in reasoning.
    """

    has_switch: bool
    opener_always_thinks: bool
    default: bool

    def check(self, flag: bool | None, budget: int | None = None) -> None:
        """Hold the options --think/--no-think (flag) and --thinking-budget against the template.

        Raises:
            UsageError: the template cannot do what they ask for.
        """
        if budget is not None and budget < 0:
            raise UsageError(f"--thinking-budget is {budget}: it must be 0 or more")
        if budget is not None and flag is False:
            raise UsageError("--no-think and --thinking-budget exclude each other: leave one out")
        if self.has_switch:
            return
        if flag is True:
            raise UsageError("this model's chat template has no thinking switch: leave out --think")
        if budget is not None:
            raise UsageError("this model's chat template has no thinking switch: leave out --thinking-budget")
        if flag is False and self.opener_always_thinks:
            raise UsageError("this model always thinks, its chat template has no switch: leave out --no-think")
