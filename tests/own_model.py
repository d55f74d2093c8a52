"""A module of the user's own, as in a file beside the data."""

import torch


class LogNet(torch.nn.Module):
    """Logarithms, dropout and a linear layer; knows nothing of spdnet."""

    def __init__(self, n, n_classes):
        super().__init__()
        self.dropout = torch.nn.Dropout(0.2)
        self.linear = torch.nn.Linear(n * n, n_classes)

    def forward(self, X):
        s, U = torch.linalg.eigh(X)
        logs = U @ torch.diag_embed(s.log()) @ U.mT
        return self.linear(self.dropout(logs.flatten(1)))


class CheckedNet(LogNet):
    """Takes an argument ``check`` and a hyperparameter."""

    hyperparameters = ("eps",)

    def __init__(self, n, n_classes, eps):
        super().__init__(n, n_classes)
        self.eps = eps
        self.checked = []

    def forward(self, X, check=True):
        self.checked.append(check)
        return super().forward(X)


class OneOutput(torch.nn.Module):
    """Too few logits."""

    def __init__(self, n, n_classes):
        super().__init__()
        self.linear = torch.nn.Linear(n * n, 1)

    def forward(self, X):
        return self.linear(X.flatten(1))
