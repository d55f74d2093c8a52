"""What a run says about its network is true of the network."""

import numpy as np
import pytest
import torch

from spdnet import SPDNet
from spdnet.data import load_dataset, prepare
from spdnet.linalg import logm
from spdnet.runs import (
    Comparison,
    ComparisonFolder,
    RunFolder,
    TrainedModel,
    compare,
    train,
)
from spdnet.runs.confusion import Confusion
from spdnet.runs.findings import flattened, is_linear, one_group, percent, structure
from spdnet.runs.report import make_page
from spdnet.runs.results import LayerSpectrum, PartScore, RunResults, Seconds
from tests.runs.test_train import Lines, file_of, quick

LINEAR = (
    "no ReEig raised an eigenvalue and no BiMap reduces the size: this network is a linear "
    "classifier on the logarithms of the centered matrices; --dims 5,4,2 or --eps 10% make it "
    "nonlinear"
)


def found_of(dims=(17, 17, 17), clipped=(0.0,), center=True, n=100, seen=100):
    """Results of a run, with what is needed to describe its network."""
    layers = [LayerSpectrum("Center", (1.0,), (1.0,), (1.0,))] * center
    layers += [
        LayerSpectrum(f"ReEig {i}", (1.0,), (1.0,), (1.0,), share)
        for i, share in enumerate(clipped, 1)
    ]
    return RunResults(
        data="",
        signals=False,
        scored="test",
        parts={"train": PartScore(100, 0.0, 1.0), "test": PartScore(n, 0.0, 1.0)},
        chance=0.5,
        classes=(),
        confusion=Confusion(0, (), (), ()),
        per_class=(),
        network="",
        dims=tuple(dims),
        parameters=1,
        epochs=1,
        best_epoch=1,
        seconds=Seconds(1.0, 1.0),
        matrices_per_second=1.0,
        device="cpu",
        orthonormality=(),
        notes=(),
        baseline=None,
        spectra_of=seen,
        spectra=tuple(layers),
        raised_in_training=(),
        raised_of=100,
    )


def sentence(found, **options):
    """The structure of an SPDNet of which these are the results."""
    return structure(found, SPDNet(found.dims, 3, **options))


def distance_from_linear(folder, data):
    """Of the logits from the best affine function of the logarithms, relative to their size."""
    trained = TrainedModel.load(folder.path, device="cpu")
    matrices = prepare(load_dataset(data), trained.preprocessing, "refuse")
    with torch.no_grad():
        logs = logm(trained.model.center(torch.from_numpy(matrices.X))).flatten(1)
    features = torch.cat([logs, torch.ones(len(logs), 1, dtype=logs.dtype)], 1)
    logits = trained.logits(matrices)
    fitted = features @ torch.linalg.lstsq(features, logits, driver="gelsd").solution
    return float((logits - fitted).norm() / logits.norm())


@pytest.mark.parametrize(
    ("more", "linear"),
    [
        ({}, True),
        ({"dims": (5, 5)}, True),
        ({"dims": (5, 4, 2)}, False),
        ({"eps": "30%"}, False),
        ({"head": "mlp"}, False),
    ],
    ids=str,
)
def test_linear_means_linear(tmp_path, more, linear):
    data, folder = file_of(tmp_path, n=120), RunFolder(tmp_path / "run")
    found = train(quick(data, **more, lr=0.1), folder)
    assert found.linear is linear
    assert (distance_from_linear(folder, data) < 1e-10) is linear
    assert ("is a linear classifier" in found.structure) is linear


def test_the_sentence_of_a_run_is_in_its_results_and_its_report(tmp_path):
    folder = RunFolder(tmp_path / "run")
    found = train(quick(file_of(tmp_path)), folder)
    assert found.structure == LINEAR
    assert LINEAR[1:] in make_page(folder)
    assert not any("linear" in note for note in found.notes)  # it is no warning
    repeated = RunFolder(tmp_path / "repeated")
    found = train(quick(file_of(tmp_path), repeat=2), repeated)
    assert found.linear is True
    assert found.structure == LINEAR
    assert f"In every repeat {LINEAR}." in make_page(repeated)


def test_sentences():
    assert "--dims 17,12,8 or --eps 10% make it nonlinear" in sentence(found_of())
    assert "of the matrices;" in sentence(found_of(center=False))
    one = sentence(found_of((17, 17), ()))
    assert one.startswith("no BiMap reduces the size: this network")
    assert one.endswith("; --dims 17,12,8 makes it nonlinear")
    assert sentence(found_of((17,), ())).startswith("there is no BiMap: this network is a linear")
    assert sentence(found_of((1, 1, 1))).endswith("--eps 10% makes it nonlinear")
    row = "no ReEig raised an eigenvalue: the consecutive BiMaps act as one"
    assert sentence(found_of((17, 12, 8))) == row
    assert sentence(found_of(), head="log_cholesky") == row
    assert sentence(found_of(), head="mlp") == row
    assert sentence(found_of(), log=False) == row
    for found, model in (
        (found_of((17, 12), ()), SPDNet((17, 12), 3)),
        (found_of((17, 12, 8), (0.1,)), SPDNet((17, 12, 8), 3)),
        (found_of(clipped=(0.1,)), SPDNet((17, 17, 17), 3)),
        (found_of(), SPDNet((17, 17, 17), 3, norm="brooks")),
        (found_of(), type("SPDNet", (SPDNet,), {})((17, 17, 17), 3)),
        (found_of((40, 20)), torch.nn.Identity()),
    ):
        assert structure(found, model) == ""
        assert not is_linear(found, model)


def test_a_sentence_about_some_of_the_matrices_says_so():
    assert sentence(found_of(n=300, seen=256)).startswith(
        "no ReEig raised an eigenvalue of the 356 examined matrices and no BiMap"
    )
    assert sentence(found_of(n=300, seen=300)).startswith("no ReEig raised an eigenvalue and")


def test_nearly_all_raised():
    assert flattened(found_of(clipped=(0.95, 0.2)), 1e-4) == ""
    assert flattened(found_of((17,), ()), 1e-4) == ""
    assert flattened(found_of(clipped=(0.2, 1.0), center=False), 1e-4) == (
        "ReEig raised 100 % of the eigenvalues, so that almost no information is left; scale the "
        "matrices, center them, or set eps to a percentage"
    )
    assert flattened(found_of(clipped=(0.97,)), "99%").endswith("scale the matrices or lower eps")


def test_a_run_of_which_little_is_left_warns(tmp_path):
    watch, folder = Lines(), RunFolder(tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="all eigenvalues"):
        found = train(quick(file_of(tmp_path), center="none", eps=1e9), folder, watch=watch)
    text = "ReEig raised 100 % of the eigenvalues, so that almost no information is left"
    assert found.notes[-1].startswith(text)
    assert any(line.startswith(f"note: {text}") for line in watch.lines)
    page = make_page(folder)
    assert f'<p class="note">{text}' in page
    assert "ReEig 1 raised 100 % of the eigenvalues" in page
    assert "e+02" not in page


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"),
        (0.9999, "99 %"),
        (0.4321, "43 %"),
        (0.0999, "10 %"),
        (0.05, "5 %"),
        (0.003, "0.3 %"),
        (1e-6, "less than 0.01 %"),
        (0.0, "0 %"),
    ],
)
def test_percentages_are_for_people(share, text):
    assert percent(share) == text


@pytest.mark.parametrize("dims", [(5,), (5, 3)])
def test_eps_without_a_reeig_is_told(tmp_path, dims):
    watch = Lines()
    train(quick(file_of(tmp_path), dims=dims, eps=0.1), RunFolder(tmp_path / "a"), watch=watch)
    text = "note: eps has no effect with fewer than two BiMaps: ReEig is used between two BiMaps"
    assert text in watch.lines
    quiet = Lines()
    folder = RunFolder(tmp_path / "b")
    train(quick(file_of(tmp_path), dims=dims), folder, watch=quiet)
    assert text not in quiet.lines
    train(quick(file_of(tmp_path), eps=0.1), RunFolder(tmp_path / "c"), watch=quiet)
    assert text not in quiet.lines


def test_groups_are_counted_and_a_single_one_is_told(tmp_path):
    data = file_of(tmp_path, groups=np.arange(60) % 5)
    watch, folder = Lines(), RunFolder(tmp_path / "run")
    found = train(quick(data), folder, watch=watch)
    line = (
        "60 matrices of 5 x 5, 3 classes: 36 train (3 groups), 12 val (1 group), 12 test (1 group)"
    )
    assert watch.lines[0].startswith(line)
    assert found.data == line
    assert {name: part.groups for name, part in found.parts.items()} == {
        "train": 3,
        "val": 1,
        "test": 1,
    }
    note = one_group("test", drawn=True)
    assert "--repeat" in note
    assert note in found.notes
    page = make_page(folder)
    assert line in page
    assert f'<p class="note">{note.split(chr(39))[0]}' in page
    assert "<th>groups</th>" in page
    watch = Lines()
    found = train(quick(data, repeat=2), RunFolder(tmp_path / "twice"), watch=watch)
    assert note not in found.notes
    assert not any("--repeat" in text for text in watch.lines)
    assert found.data == line
    split = np.array(["train"] * 40 + ["test"] * 20)
    groups = np.arange(60) // 20
    found = train(quick(file_of(tmp_path, split=split, groups=groups)), RunFolder(tmp_path / "own"))
    assert one_group("test", drawn=False) in found.notes


def test_signals_say_what_becomes_of_them(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "s.npz", X=rng.normal(size=(60, 4, 50)), y=np.arange(60) % 2)
    for more, how in (({}, "sample"), ({"estimator": "ledoit_wolf"}, "ledoit-wolf")):
        watch = Lines()
        train(quick(str(tmp_path / "s.npz"), **more), RunFolder(tmp_path / how), watch=watch)
        assert watch.lines[0].startswith(
            f"60 signals of 4 channels -> matrices of 4 x 4 ({how} covariance, reg 0.001), "
            "2 classes: 43 train, 5 val, 12 test"
        )


def test_the_report_says_whether_the_data_were_taken_as_signals(tmp_path):
    """Signals are recognised by their shape, whatever the settings say."""
    rng = np.random.default_rng(0)
    signals = str(tmp_path / "s.npz")
    np.savez(signals, X=rng.normal(size=(60, 4, 50)), y=np.arange(60) % 2)
    for repeat in (1, 2):
        folder = RunFolder(tmp_path / f"signals-{repeat}")
        assert train(quick(signals, repeat=repeat, epochs=1), folder).signals is True
        page = make_page(folder)
        assert "<td>signals</td><td>yes</td>" in page
        assert "<td>estimator</td><td>sample</td>" in page
    matrices = RunFolder(tmp_path / "matrices")
    found = train(quick(file_of(tmp_path), epochs=1), matrices)
    assert found.signals is False
    page = make_page(matrices)
    assert "<td>signals</td><td>no</td>" in page
    assert "<td>estimator</td>" not in page  # nothing was estimated
    compared = ComparisonFolder(tmp_path / "compared")
    compare(Comparison(data=signals, methods=("mdm",), repeats=1, device="cpu"), compared)
    page = make_page(compared)
    assert "60 signals of 4 channels -&gt; matrices of 4 x 4 (sample covariance" in page
    assert "<td>signals</td>" not in page


def test_the_largest_class_stands_beside(tmp_path):
    split = np.array(["train"] * 40 + ["test"] * 20)
    X = np.eye(3) * np.arange(1, 61)[:, None, None]
    y = np.array([0] * 25 + [1] * 15 + [0] * 5 + [1] * 15)
    np.savez(tmp_path / "a.npz", X=X, y=y, split=split)
    folder = RunFolder(tmp_path / "run")
    found = train(quick(str(tmp_path / "a.npz")), folder)
    assert found.chance == 0.25  # class 0 is the largest of the training
    assert "<b>25.00 %</b>most frequent class" in make_page(folder)


def test_what_was_raised_in_training_counts(tmp_path):
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(40, 4, 4)))[0]
    s = rng.uniform(1, 2, size=(40, 4))
    s[:20, :2] = 1e-7  # of the training part only
    X = (Q * s[:, None, :]) @ Q.swapaxes(1, 2)
    split = np.repeat(["train", "test"], 20)
    path = tmp_path / "data.npz"
    np.savez(path, X=(X + X.swapaxes(1, 2)) / 2, y=np.arange(40) % 2, split=split)
    settings = quick(str(path), epochs=1, center="none", baseline=False)
    found = train(settings, RunFolder(tmp_path / "run"))
    assert max(found.raised_in_training) > 0.4
    assert not any(layer.clipped for layer in found.spectra)
    assert not found.linear
    assert found.structure == ""
