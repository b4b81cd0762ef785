"""The model, the data and the training: as in Flower's PyTorch quickstart, but with images that are made here."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIZE, ROWS = 10, 8, 400


class Net(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc = nn.Linear(6 * 3 * 3, CLASSES)

    def forward(self, x):
        """Return the scores of the classes."""
        return self.fc(torch.flatten(self.pool(torch.relu(self.conv(x))), 1))


def make_images(rows: int, seed: int) -> TensorDataset:
    """Return images of ten classes: a pattern for each, and noise."""
    patterns = torch.randn(CLASSES, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (rows,), generator=rng)
    return TensorDataset(patterns[labels] + 1.5 * torch.randn(rows, 1, SIZE, SIZE, generator=rng), labels)


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """Return loaders of a node's own rows: four fifths to train on, one fifth to test with."""
    del num_partitions
    data = make_images(ROWS, seed=100 + partition_id)
    train, test = torch.utils.data.random_split(data, [0.8, 0.2], torch.Generator().manual_seed(42))
    trainloader = DataLoader(train, batch_size=batch_size, shuffle=True)
    testloader = DataLoader(test, batch_size=batch_size)
    return trainloader, testloader


def load_centralized_dataset():
    """Return a loader of the server's test data."""
    return DataLoader(make_images(2000, seed=2), batch_size=128)


def train(net, trainloader, epochs, lr, device):
    """Train the model on the loader's rows, and return the mean loss."""
    net.to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    """Return the loss and the accuracy on the loader's rows."""
    net.to(device)
    net.eval()
    criterion = nn.CrossEntropyLoss()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images.to(device))
            loss += criterion(outputs, labels.to(device)).item()
            correct += (outputs.argmax(1) == labels.to(device)).sum().item()
    return loss / len(testloader), correct / len(testloader.dataset)
