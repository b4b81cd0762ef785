"""Is my federation payable? A pilot asks some agents for half the work, and measures what each rule would have paid.

In a pilot everybody gets flat pay. The server asks most agents for ν samples and a random few for half of that, other
ones each round (`PilotDesign`). Then it computes, rule by rule, what an agent would have been paid that was asked for ν
and used what it used (`Trial`). All of it goes into a `PilotRecord`, and `assess` says what it means: does half the
work pay, what do honest agents earn, how noisy is it, and which rule to use, if any. So an operator learns what a rule
does to its own model, data, optimiser and client code before any money moves.

`guerdon.lab.simulation.run_pilot` simulates a pilot, `guerdon.flower.Pilot` runs one on Flower.
"""

from guerdon.pilot.assessment import PilotReport, RuleReport, assess
from guerdon.pilot.design import PilotDesign
from guerdon.pilot.estimates import Interval
from guerdon.pilot.record import PilotRecord
from guerdon.pilot.trial import RoundScores, Trial, default_rules

__all__ = [
    "Interval",
    "PilotDesign",
    "PilotRecord",
    "PilotReport",
    "RoundScores",
    "RuleReport",
    "Trial",
    "assess",
    "default_rules",
]
