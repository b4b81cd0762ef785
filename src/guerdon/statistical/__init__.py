"""What reports alone can tell: for research, and for federations in which nobody may look at any row.

Rules that pay by it (`InformationPay`, `SteadyPay`, `CalibratedAgreement`), the lenses that compare reports for them,
and what these are made of: predictions, dithers, records of how members differ, bets, trust. The core knows none of it.
"""

from typing import TYPE_CHECKING

from guerdon._lazy import loader

if TYPE_CHECKING:
    from guerdon.statistical.calibrated import CalibratedAgreement
    from guerdon.statistical.dithers import Dither
    from guerdon.statistical.information import InformationPay, noise_scale_bound
    from guerdon.statistical.servers import information_pay, server_for, steady_pay
    from guerdon.statistical.steady import SteadyPay

__all__ = [
    "CalibratedAgreement",
    "Dither",
    "InformationPay",
    "SteadyPay",
    "information_pay",
    "noise_scale_bound",
    "server_for",
    "steady_pay",
]

_WHERE = {
    "CalibratedAgreement": "calibrated", "Dither": "dithers", "InformationPay": "information", "SteadyPay": "steady",
    "information_pay": "servers", "noise_scale_bound": "information", "server_for": "servers", "steady_pay": "servers",
}  # fmt: skip

__getattr__ = loader(__name__, _WHERE)
