"""`guerdon serve`: paid rounds over HTTP, for training that knows nothing of Flower."""
