"""Compare second-order with first-order pooling in a small ConvNet on digit images.

    python benchmarks/how_good_are_second_order_convnets.py [--seeds 3]

O2PNet, ConvSPDNet and first-order pooling (the mean of the same features) are trained with the
same backbone, optimizer and number of epochs on stratified halves of scikit-learn's 1797 images of
8 x 8 pixels. For comparison, the log-Euclidean linear classifier is fitted to covariance
descriptors of the same images and halves. The table gives the accuracy on the other half, as mean
and standard deviation over seeds, and the training time. Nothing is selected on the test halves:
all networks use Adam with lr 0.003 and cosine decay, 30 epochs, batches of 50, and defaults
otherwise.
"""

import argparse
import statistics
import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy

from spdnet.baselines import LogEuclideanClassifier
from spdnet.data import load_digits_spd
from spdnet.models import ConvSPDNet, O2PNet
from spdnet.optim import RiemannianAdam

EPOCHS, BATCH, LR = 30, 50, 0.003
MODELS = {
    "O2PNet": lambda: O2PNet(10),
    "ConvSPDNet": lambda: ConvSPDNet(10),
    "first-order pooling": lambda: O2PNet(10, pool="mean"),
}


def train(model, X, y, seed):
    """Train the model and return it in evaluation mode."""
    optimizer = RiemannianAdam(model.parameters(), lr=LR)
    steps = EPOCHS * (len(X) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(X), generator=generator).split(BATCH):
            if len(index) == BATCH:
                optimizer.zero_grad()
                cross_entropy(model(X[index]), y[index]).backward()
                optimizer.step()
                schedule.step()
    return model.eval()


def accuracy(name, seed):
    """Return the accuracy on the test half and the training time."""
    digits = load_digits()
    X = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    y = torch.tensor(digits.target)
    index = torch.arange(len(y))
    learn, test = train_test_split(index, test_size=0.5, random_state=seed, stratify=y)
    torch.manual_seed(seed)
    started = time.perf_counter()
    model = train(MODELS[name](), X[learn], y[learn], seed)
    seconds = time.perf_counter() - started
    with torch.no_grad():
        hits = model(X[test]).argmax(-1) == y[test]
    return hits.double().mean().item(), seconds


def baseline(seed):
    """Evaluate the linear classifier on the same halves."""
    X, y = load_digits_spd()
    X_learn, X_test, y_learn, y_test = train_test_split(
        X, y, test_size=0.5, random_state=seed, stratify=y
    )
    started = time.perf_counter()
    score = LogEuclideanClassifier().fit(X_learn, y_learn).score(X_test, y_test)
    return score, time.perf_counter() - started


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    print(f"{'':28}accuracy, %      seconds")
    rows = {name: [accuracy(name, seed) for seed in seeds] for name in MODELS}
    rows["log-Euclidean linear"] = [baseline(seed) for seed in seeds]
    for name, found in rows.items():
        scores, seconds = zip(*found, strict=True)
        mean, deviation = statistics.mean(scores), statistics.stdev(scores)
        print(f"{name:28}{100 * mean:6.2f} ± {100 * deviation:.2f}{statistics.mean(seconds):12.1f}")


if __name__ == "__main__":
    main()
