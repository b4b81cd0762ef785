"""What a training will cost before it is paid for: forecasts from a pilot, and the optimum to compare with."""
