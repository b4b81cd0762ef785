"""What moves money: rounds, what a run holds and when it releases it, losses, moves by hand, payouts."""
