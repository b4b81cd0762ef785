"""Never run: the benchmark brings nodes of its own."""

from flwr.clientapp import ClientApp

app = ClientApp()
