"""A Flower app with paid rounds: a PyTorch classifier under FedAvg."""
