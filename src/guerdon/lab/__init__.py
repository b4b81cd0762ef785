"""The laboratory: problems, strategic agents, simulations, games, the arena, plans and experiments."""
