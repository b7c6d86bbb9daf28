"""What decisions change and why: as text, as a page, as a picture."""

from graphopt.render.explanation import Explanation, explain_decisions
from graphopt.render.modules import ModuleExplanation
from graphopt.render.parts import Part, Side

__all__ = ["Explanation", "ModuleExplanation", "Part", "Side", "explain_decisions"]
