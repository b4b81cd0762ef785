"""Which rules can pay what members send: a server is refused where it would pay for less work."""

from dataclasses import replace

from guerdon._checks import check_is_server
from guerdon.registry import as_recorded
from guerdon.rule import Need, Rule, notice_of
from guerdon.run.messages import MODELS
from guerdon.server import Server
from guerdon.statistical.lenses import prediction_of
from guerdon.statistical.predictions import ZeroPrediction
from guerdon.terms import Terms


def checked(server: Server, terms: Terms, witness: bool) -> Server:
    """Return a server whose rule is as the ledger records it, or raise where it would pay for less work here."""
    check_is_server(server)
    if not isinstance(terms, Terms):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"`terms` must be Terms, such as Terms(budget=5_000), got {terms!r:.80}")
    server = replace(server, rule=as_recorded(server.rule))
    rule = type(server.rule).__name__
    if witness != (Need.WITNESS in server.rule.needs):
        raise ValueError("`witness` must be given with `WitnessedPay`, and with no other rule")
    if not isinstance(prediction_of(server.lens), ZeroPrediction) and Need.PREDICTION not in server.rule.needs:
        raise ValueError(
            f"`prediction` must be None with {rule}, which would not look at it; pay by `InformationPay`, or leave the "
            "prediction out"
        )
    if server.sends == MODELS and Need.ONE_STEP in server.rule.needs and not (terms.one_step or _varies(server.rule)):
        raise ValueError(
            f"`rule` must not be {rule} where nodes send models that they trained in several steps: fewer samples "
            "are fewer steps, a shorter move, and closer to the others', so a node that shirks is paid more than one "
            "that works. Wrap `FedSGD`, with nodes that send the gradient of all requested samples (the recommended "
            "way); or pay by `InformationPay` with a `dither`; or by `CalibratedAgreement` with `vary`, which finds "
            "out whether work is seen here; or, where every node takes exactly one step on all requested samples, say "
            "so with `Terms(one_step=True)`"
        )
    return server


def _varies(rule: Rule) -> bool:
    """Tell whether a rule asks each member for a number of its own, and so sees what samples are worth."""
    return notice_of(rule, rule.init(1), 1).own is not None
