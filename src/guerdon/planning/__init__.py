"""What a training will cost before it is paid for: forecasts from a pilot, and the exact optimum to compare with."""
