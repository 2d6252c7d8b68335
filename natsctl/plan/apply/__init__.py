"""A plan carried out: what each change sends, in which order, and what became of it."""

from natsctl.plan.apply.carry import ApplyOptions, PlanRefused, carry_out, check_allowed, preview
from natsctl.plan.apply.result import Outcome, Result

__all__ = ["ApplyOptions", "Outcome", "PlanRefused", "Result", "carry_out", "check_allowed", "preview"]
