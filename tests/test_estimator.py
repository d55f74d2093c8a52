import inspect
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from spdnet import SPDNetClassifier, covariance
from spdnet import estimator as module
from spdnet._inputs import checked_matrices
from spdnet.data import examine, load_digits_spd


def problem(n=60, classes=("left", "right"), channels=5):
    rng = np.random.default_rng(0)
    y = np.array(classes)[np.arange(n) % len(classes)]
    signals = rng.normal(size=(n, channels, 50))
    for k, name in enumerate(classes):
        signals[y == name, k] *= 3
    return covariance.estimate(signals), y


def quick(**settings):
    return SPDNetClassifier(**{"epochs": 15, "random_state": 0, **settings})


@pytest.mark.parametrize(("recipe", "dims"), [("auto", ()), ("fast", (5, 5, 5))])
def test_conventions(recipe, dims):
    X, y = problem(classes=("a", "b", "c"))
    classifier = quick(recipe=recipe, lr=0.01)
    assert classifier.fit(X, y) is classifier
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    assert classifier.n_features_in_ == 5
    assert classifier.n_iter_ == len(classifier.history_) == 15
    assert classifier.dims_ == dims
    P = classifier.predict_proba(X)
    assert P.shape == (60, 3)
    np.testing.assert_allclose(P.sum(-1), 1)
    assert (classifier.predict(X) == classifier.classes_[P.argmax(-1)]).all()
    assert classifier.decision_function(X).shape == (60, 3)
    assert classifier.transform(X).shape == (60, classifier.model_.n_features)
    assert recipe == "auto" or classifier.model_.n_features == 25
    assert classifier.score(X, y) > 0.95


def test_two_classes():
    X, y = problem()
    classifier = quick().fit(X, y)
    scores = classifier.decision_function(X)
    assert scores.shape == (60,)
    assert ((scores > 0) == (classifier.predict(X) == "right")).all()


@pytest.mark.parametrize("labels", [[0, 1], [-1, 1], [True, False], ["x", "y"], [2.0, 5.0]])
def test_labels_of_any_type(labels):
    X, _ = problem()
    y = np.array(labels)[np.arange(60) % 2]
    classifier = quick().fit(X, y)
    assert classifier.classes_.tolist() == sorted(labels)
    assert classifier.predict(X).dtype == y.dtype


def test_clone_params_and_repr():
    classifier = quick(dims=(4, 3), lr=0.02)
    twin = clone(classifier)
    assert twin.get_params() == classifier.get_params()
    assert twin.set_params(lr=0.5).lr == 0.5
    assert "dims=(4, 3)" in repr(classifier)


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "brooks"},
        {"norm": "log_cholesky"},
        {"norm": "domain"},
        {"norm": "none"},
        {"head": "log_euclidean"},
        {"head": "power_euclidean", "lr": 0.1},
        {"head": "mlp", "hidden": 32, "dropout": 0.2},
        {"model": "multibranch"},
        {"model": "multibranch", "norm": "log_euclidean", "head": "log_cholesky"},
        {"model": "multibranch", "head": "mlp"},
    ],
    ids=str,
)
def test_networks_norms_and_heads(settings):
    X, y = problem(classes=("a", "b", "c"))
    classifier = quick(**{"recipe": "fast", "lr": 0.01, "epochs": 20, **settings}).fit(X, y)
    assert classifier.score(X, y) > 0.9
    assert classifier.transform(X).shape == (60, 25)
    assert len(classifier.get_feature_names_out()) == 25
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def recordings(seed, domains):
    """Signals of several people, whose sensors have another scale each."""
    rng = np.random.default_rng(seed)
    n = 30 * len(domains)
    y, who = np.arange(n) % 2, np.repeat(domains, 30)
    X = rng.normal(size=(n, 4, 50))
    X[y == 1, 0] *= 3
    X *= np.array([10.0 ** "abc".index(name) for name in who])[:, None, None]
    return X, np.array(["left", "right"])[y], who


def test_signals_and_domains():
    settings = {"model": "tsmnet", "dims": (8, 4), "epochs": 15}
    X, y, who = recordings(0, ["a", "b"])
    classifier = quick(**settings).fit(X, y, domains=who)
    assert classifier.domains_.tolist() == ["a", "b"]
    assert classifier.n_features_in_ == 4
    assert classifier.transform(X, domains=who).shape == (60, 10)
    assert (classifier.predict(X, domains=who) == y).mean() > 0.9
    new, truth, stranger = recordings(1, ["c"])
    assert (classifier.predict(new, domains=stranger) == truth).mean() > 0.9
    assert classifier.model_.norm.n_domains == 2
    order = np.random.default_rng(2).permutation(60)
    np.testing.assert_allclose(
        classifier.predict_proba(X[order], domains=who[order]),
        classifier.predict_proba(X, domains=who)[order],
        atol=1e-9,
    )
    assert classifier.score(X, y, domains=who) > 0.9
    with pytest.raises(ValueError, match="domains of the 60 samples"):
        classifier.predict(X)
    with pytest.raises(ValueError, match="domains of the 60 samples"):
        classifier.predict(X, domains="abc")
    with pytest.raises(TypeError, match="numbers or text"):
        classifier.predict(X, domains=[None] * 60)
    for wrong in (["a", None] * 30, ["a", float("nan")] * 30, ["a", 1] * 30):
        with pytest.raises(TypeError, match="numbers or text"):
            classifier.predict(X, domains=np.array(wrong, dtype=object))
    with pytest.warns(RuntimeWarning, match="its own mean"):
        classifier.predict(new[:1], domains=["c"])
    with pytest.raises(ValueError, match="4 channels"):
        classifier.predict(X[:, :3], domains=who)
    bad = X.copy()
    bad[5, 1, 2] = np.inf
    with pytest.raises(ValueError, match=r"finite signals.*X\[5\]"):
        classifier.predict(bad, domains=who)
    alone = quick(**settings, early_stopping=True).fit(X[:30], y[:30])
    assert alone.domains_ is None
    assert alone.score(X[:30], y[:30]) > 0.9
    with pytest.raises(ValueError, match="fit had none"):
        alone.predict(X, domains=who)
    with pytest.raises(ValueError, match="symmetric"):
        quick(model="tsmnet").fit(*problem(60))
    classifier.set_params(warm_start=True)
    for changed in ({"domains": stranger}, {}):
        with pytest.raises(ValueError, match="domains of the last fit"):
            classifier.fit(new, truth, **changed)
    assert len(classifier.fit(X, y, domains=who).history_) == 15


@pytest.mark.parametrize("more", [{}, {"ensemble": 2}, {"early_stopping": True}], ids=str)
@pytest.mark.parametrize("adapt", ["none", "recenter"])
def test_matrices_are_normalized_by_domain(adapt, more):
    signals, y, who = recordings(0, ["a", "b", "c"])
    X = signals @ signals.swapaxes(1, 2) / 50
    settings = {"recipe": "fast", "norm": "domain", "adapt": adapt, "epochs": 15, **more}
    known = who != "c"
    classifier = quick(**settings).fit(X[known], y[known], domains=who[known])
    assert classifier.domains_.tolist() == ["a", "b"]
    assert classifier.recipe_.uses_domains
    found = classifier.predict_proba(X, domains=who)
    assert (classifier.classes_[found.argmax(1)] == y)[~known].mean() > 0.9
    for name in "abc":  # a domain does not depend on others
        part = who == name
        alone = classifier.predict_proba(X[part], domains=who[part])
        np.testing.assert_allclose(alone, found[part], atol=1e-9)
    features = classifier.transform(X, domains=who)
    assert features.shape == (90, 16 * more.get("ensemble", 1))
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(X, domains=who), found)
    with pytest.raises(ValueError, match="domains of the 90 samples"):
        classifier.predict(X)
    plain = quick(**{**settings, "norm": "none"}).fit(X[known], y[known], domains=who[known])
    assert not plain.recipe_.uses_domains
    assert plain.predict(X, domains=who).shape == (90,)


def test_pickle():
    X, y = problem()
    classifier = quick().fit(X, y)
    twin = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(twin.predict_proba(X), classifier.predict_proba(X))


def test_unfitted():
    X, _ = problem()
    for method in ("predict", "predict_proba", "transform", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(SPDNetClassifier(), method)(X)


def test_seed_and_the_global_generators_are_left_alone():
    X, y = problem()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    runs = [quick(random_state=s).fit(X, y).predict_proba(X) for s in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()


def test_predictions_do_not_depend_on_the_order(rng):
    X, y = problem()
    classifier = quick().fit(X, y)
    order = rng.permutation(60)
    np.testing.assert_allclose(
        classifier.predict_proba(X[order]), classifier.predict_proba(X)[order], atol=1e-12
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"recipe": "paper", "epochs": 15},
        {"dims": (5, 4, 3)},
        {"dims": (3,)},
        {"dims": [4, 2]},
        {"optimizer": "sgd", "momentum": 0.9, "lr": 0.05},
        {"center": "affine_invariant"},
        {"center": "none"},
        {"eps": "20%"},
        {"schedule": "constant"},
        {"batch_size": 7, "weight_decay": 1e-3},
        {"dtype": "float32"},
        {"device": "cpu"},
    ],
    ids=str,
)
def test_settings(settings):
    X, y = problem()
    classifier = quick(**{"lr": 0.01, **settings}).fit(X, y)
    assert classifier.score(X, y) > 0.9
    if "dims" in settings:
        assert classifier.dims_[0] == 5
        assert classifier.dims_[-1] == settings["dims"][-1]
    if "center" in settings:
        assert (classifier.model_.center is None) == (settings["center"] == "none")
    if "dtype" in settings:
        assert classifier.predict_proba(X).dtype == np.float32


@pytest.mark.parametrize("model", ["spdnet", "tsmnet"])
def test_early_stopping_holds_out_whole_groups(model, monkeypatch):
    seen = {}
    real = module.Trainer

    def trainer(net, train, recipe, *, val, **more):
        seen.update(train=train, val=val)
        return real(net, train, recipe, val=val, **more)

    monkeypatch.setattr(module, "Trainer", trainer)
    rng = np.random.default_rng(0)
    n, people = 80, np.repeat([f"s{i}" for i in range(8)], 10)
    signals = rng.normal(size=(n, 4, 64)) * (1 + np.arange(n) % 8)[:, None, None]
    X = signals if model == "tsmnet" else covariance.estimate(signals)
    y = np.arange(n) % 2
    marks = {tuple(x.ravel()[:3]): who for x, who in zip(X, people, strict=True)}
    classifier = quick(model=model, epochs=1, early_stopping=True, validation_fraction=0.25)
    if model == "tsmnet":
        classifier.set_params(dims=(4, 2)).fit(X, y, domains=people)
    else:
        classifier.fit(X, y, groups=people)
    parts = {
        name: {marks[tuple(x.flatten()[:3].tolist())] for x in seen[name].X}
        for name in ("train", "val")
    }
    assert len(parts["val"]) == 2
    assert len(seen["val"]) == 20
    assert not parts["train"] & parts["val"]
    with pytest.raises(ValueError, match="expected groups of the 80 samples"):
        classifier.fit(X, y, groups=people[:5])
    classifier.fit(X, y, groups=["one"] * n)  # nothing to keep whole
    assert len(seen["val"]) == 20


def test_groups_are_routed_by_themselves():
    """Cross-validation by groups passes them to fit as well, without a request."""
    X, y = problem()
    groups = np.arange(60) // 10
    classifier = quick(epochs=2, early_stopping=True, validation_fraction=0.2)
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(
            make_pipeline(FunctionTransformer(), classifier),
            X,
            y,
            cv=GroupKFold(3),
            params={"groups": groups},
            error_score="raise",
        )
    assert len(scores) == 3


@pytest.mark.parametrize("model", ["spdnet", "tsmnet"])
def test_another_unit_warns(model):
    rng = np.random.default_rng(0)
    signals = 1e-5 * rng.normal(size=(40, 4, 64)) * (1 + np.arange(40) % 2)[:, None, None]
    X = signals if model == "tsmnet" else covariance.estimate(signals)
    classifier = quick(model=model, epochs=1, dims=(4, 2)).fit(X, np.arange(40) % 2)
    classifier.predict(X)
    classifier.predict(3 * X)  # louder, not in another unit
    factor = 1e6 if model == "tsmnet" else 1e12
    for name in ("predict", "predict_proba", "decision_function", "transform"):
        with pytest.warns(UserWarning, match=r"factor of about 1e\+12.*larger.*check the unit"):
            getattr(classifier, name)(factor * X)
    X[3] /= 1e6
    with pytest.warns(UserWarning, match=r"scale of 1 of 40 samples .* smaller"):
        classifier.predict(X)


def test_early_stopping(rng):
    X, y = problem(100)
    y = np.where(rng.random(100) < 0.4, "left", y)  # labels that cannot all be learnt
    options = {"recipe": "fast", "lr": 0.1, "early_stopping": True, "n_iter_no_change": 5}
    classifier = quick(epochs=200, **options).fit(X, y)
    assert classifier.n_iter_ < 200
    assert "val_accuracy" in classifier.history_[0]
    assert "val_accuracy" not in quick(epochs=1).fit(X, y).history_[0]


def test_warm_start():
    X, y = problem()
    classifier = quick(recipe="fast", warm_start=True, epochs=3).fit(X, y)
    first = classifier.history_[-1]["loss"]
    classifier.fit(X, y)
    assert classifier.history_[0]["loss"] < first * 1.2
    with pytest.raises(ValueError, match=r"the dims of the last fit, \(5, 5, 5\), .*got \(5, 2\)"):
        classifier.set_params(dims=(5, 2)).fit(X, y)
    classifier.set_params(dims=None)
    with pytest.raises(ValueError, match="classes of the last fit"):
        classifier.fit(X, np.array(["x", "y"])[np.arange(60) % 2])
    cold = quick(epochs=3).fit(X, y)
    model = cold.model_
    assert cold.fit(X, y).model_ is not model


def test_a_warm_start_keeps_the_members(monkeypatch):
    X, y = problem()
    classifier = quick(warm_start=True, epochs=3).fit(X, y)
    choice, recipe, loss = classifier.choice_, classifier.recipe_, classifier.history_[-1]["loss"]
    monkeypatch.setattr(module, "choose_members", None)  # nothing is compared again
    classifier.fit(X[:50], y[:50])
    assert classifier.choice_ is choice
    assert classifier.recipe_ == recipe
    assert classifier.history_[0]["loss"] < loss * 1.2
    for change, message in (
        ({"members": ("linear",)}, "the members of the last fit"),
        ({"dims": (5, 2)}, "the model of the last fit, portfolio, .*got spdnet"),
    ):
        with pytest.raises(ValueError, match=message):
            pickle.loads(pickle.dumps(classifier)).set_params(**change).fit(X, y)
    given = quick(members=("all",), warm_start=True, epochs=1).fit(X, y)
    given.set_params(members=None).fit(X, y)
    assert (given.recipe_.members, given.choice_) == (("all",), None)


@pytest.mark.parametrize("change", [{"norm": "brooks"}, {"head": "mlp"}, {"eps": 0.5}])
def test_a_warm_start_keeps_its_network(change):
    X, y = problem()
    classifier = quick(recipe="fast", warm_start=True, epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=rf"the {next(iter(change))} of the last fit"):
        classifier.set_params(**change).fit(X, y)
    classifier.set_params(norm=None, head=None, eps=None, lr=0.1).fit(X, y)  # training may differ


def test_a_refused_fit_changes_nothing():
    X, y = problem()
    classifier = quick(epochs=2).fit(X, y)
    before = classifier.predict(X)
    with pytest.raises(ValueError, match="sample_weight"):
        classifier.fit(X, np.where(y == "left", "a", "b"), sample_weight=[1.0])
    with pytest.raises(ValueError, match="weights that are not all zero"):
        quick(class_weight={"left": 0.0, "right": 0.0}).fit(X, y)
    assert classifier.classes_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(classifier.predict(X), before)


def test_numbers_of_any_type_and_names_of_features():
    X, y = problem()
    for dtype in (">f8", "longdouble", "float32"):
        classifier = quick(recipe="fast", epochs=1).fit(X.astype(dtype), y)
    assert classifier.get_feature_names_out()[:2].tolist() == [
        "spdnetclassifier0",
        "spdnetclassifier1",
    ]
    assert len(classifier.get_feature_names_out()) == classifier.transform(X).shape[1] == 25


def test_class_and_sample_weights(rng):
    """Where the classes cannot be told apart, the weights decide."""
    X = covariance.estimate(rng.normal(size=(80, 4, 50)))
    y = np.where(np.arange(80) < 70, "often", "rare")

    def rare(class_weight=None, sample_weight=None):
        classifier = quick(recipe="fast", epochs=10, lr=0.1, class_weight=class_weight)
        return classifier.fit(X, y, sample_weight).predict_proba(X)[:, 1].mean()

    assert rare() < 0.3 < rare("balanced") < 0.7 < rare({"often": 1.0, "rare": 100.0})
    assert rare(sample_weight=np.ones(80)) == pytest.approx(rare(), abs=1e-6)
    assert rare(sample_weight=np.where(y == "rare", 100.0, 1.0)) > 0.7


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_class_weights_that_make_no_sense(value):
    X, y = problem()
    with pytest.raises(ValueError, match=r"expected class_weight\['left'\] >= 0 and finite, got"):
        quick(class_weight={"left": value, "right": 1.0}).fit(X, y)
    with pytest.raises(TypeError, match=r"class_weight\['left'\] to be a number"):
        quick(class_weight={"left": "much"}).fit(X, y)
    quick(epochs=1, class_weight={"left": np.float32(0.5), "right": 2}).fit(X, y)


@pytest.mark.slow
def test_grid_search_cross_validation_and_pipeline(rng):
    X, y = problem(80)
    search = GridSearchCV(
        quick(recipe="fast", epochs=5), {"lr": [1e-4, 0.05], "dims": [None, (3,)]}, cv=2
    )
    search.fit(X, y)
    assert search.best_params_["lr"] == 0.05
    assert cross_val_score(quick(), X, y, cv=2).mean() > 0.9
    signals = rng.normal(size=(60, 4, 50))
    labels = np.arange(60) % 2
    signals[labels == 1, 0] *= 3
    front = FunctionTransformer(covariance.estimate)
    assert make_pipeline(front, quick()).fit(signals, labels).score(signals, labels) > 0.9
    back = make_pipeline(quick(), LogisticRegression())
    assert back.fit(X, y).score(X, y) > 0.9


@pytest.mark.slow
def test_behind_the_covariances_of_pyriemann(rng):
    estimation = pytest.importorskip("pyriemann.estimation")
    signals = rng.normal(size=(60, 4, 50))
    labels = np.arange(60) % 2
    signals[labels == 1, 0] *= 3
    pipeline = make_pipeline(estimation.Covariances("oas"), quick())
    assert cross_val_score(pipeline, signals, labels, cv=3).mean() > 0.9
    assert clone(pipeline).get_params()["spdnetclassifier__epochs"] == 15


def test_verbose(capsys):
    X, y = problem()
    quick(recipe="fast", epochs=4, verbose=2).fit(X, y)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["2", "4"]
    choice = quick(epochs=4, verbose=2).fit(X, y).choice_
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == choice.describe()
    assert [line.split()[1] for line in lines] == ["2", "4"]
    quick(epochs=1).fit(X, y)
    assert capsys.readouterr().out == ""


def test_fifty_matrices_of_digits():
    X, y = load_digits_spd()
    classifier = quick(epochs=30).fit(X[:50], y[:50])
    assert classifier.score(X[50:500], y[50:500]) > 0.6


@pytest.mark.slow
def test_fifty_thousand_matrices():
    X, y = problem(50_000, channels=10)
    classifier = quick(epochs=1, batch_size=500, early_stopping=True).fit(X, y)
    assert classifier.score(X, y) > 0.99


def rounded(kind):
    """Products whose two halves were rounded apart, as those of some libraries in float32."""
    X, y = problem()
    noise = np.random.default_rng(1).normal(size=X.shape)
    X = X * (1 + 1e-7 * noise)
    assert not np.array_equal(X, X.swapaxes(1, 2))
    return X.astype(kind), y


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_rounding_of_any_dtype_is_symmetric_enough(kind):
    X, y = rounded(kind)
    found = quick(epochs=1).fit(X, y).decision_function(X)
    X = X.astype("float64")
    mean = (X + X.swapaxes(-1, -2)) / 2
    np.testing.assert_array_equal(quick(epochs=1).fit(mean, y).decision_function(mean), found)
    X[3, 0, 1] += 1e-3 * X[3].max()
    with pytest.raises(ValueError, match=r"X\[3\] is not symmetric .*symmetrize\(X\)"):
        quick(epochs=1).fit(X, y)


def average_referenced(n=60, channels=22):
    rng = np.random.default_rng(0)
    signals = rng.normal(size=(n, channels, 200))
    signals -= signals.mean(1, keepdims=True)
    X = signals @ signals.swapaxes(1, 2) / 200
    return (X + X.swapaxes(1, 2)) / 2, np.arange(n) % 2


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_singular_matrices_are_refused_one_by_one(dtype):
    X, y = average_referenced()
    assert len(examine(X).faults["singular"]) == 60
    classifier = quick(epochs=1, dtype=dtype, rank="full", shrinkage="none")
    with pytest.raises(ValueError, match=r"X\[0\] is singular.*60 of 60.*regularize\(X\)"):
        classifier.fit(X, y)
    mended = covariance.regularize(X)
    classifier.fit(mended, y)
    for i in (0, 17, 59):  # also alone, and among good ones
        with pytest.raises(ValueError, match=r"X\[0\] is singular"):
            classifier.predict(X[i : i + 1])
        mixed = mended.copy()
        mixed[i] = X[i]
        with pytest.raises(ValueError, match=rf"X\[{i}\] is singular.*; 1 of 60"):
            classifier.predict(mixed)


def test_singular_is_measured_by_the_coarser_dtype():
    X, y = problem(channels=3)
    X[5] = np.diag([1.0, 1.0, 1e-8])
    assert quick(epochs=1).fit(X, y).predict(X).shape == (60,)
    full = {"rank": "full", "shrinkage": "none"}
    for call in (
        lambda: quick(**full).fit(X.astype("f4"), y),
        lambda: quick(dtype="float32", **full).fit(X, y),
    ):
        with pytest.raises(ValueError, match=r"X\[5\] is singular.* or use float64 throughout"):
            call()


def test_training_settings_do_not_touch_a_fitted_network():
    X, y = problem()
    classifier = quick(epochs=2).fit(X, y)
    before, names = classifier.decision_function(X), classifier.get_feature_names_out()
    changes = {"lr": -1, "epochs": -3, "dtype": "float32", "recipe": "x", "model": "tsmnet"}
    for name, value in changes.items():
        again = pickle.loads(pickle.dumps(classifier)).set_params(**{name: value})
        np.testing.assert_array_equal(again.decision_function(X), before)
        assert again.get_feature_names_out().tolist() == names.tolist()


def test_what_is_fitted_is_on_the_cpu(monkeypatch):
    """Wherever it was trained; a prediction takes it to the device that is asked for then."""
    X, y = problem()
    classifier = quick(epochs=1).fit(X, y)
    assert {t.device.type for t in classifier.model_.state_dict().values()} == {"cpu"}
    asked = []

    def resolve(name):
        asked.append(name)
        return torch.device("cpu")

    monkeypatch.setattr("spdnet.estimator.resolve_device", resolve)
    classifier.set_params(device="cuda:7").predict(X)
    assert asked == ["cuda:7"]


def test_a_seed_is_respected_in_threads():
    X, y = problem(20)
    options = {"recipe": "fast", "epochs": 1, "device": "cpu"}
    quick(**options).fit(X, y)  # the first time things are imported

    def fit(_):
        return quick(**options).fit(X, y).decision_function(X)

    alone = fit(0)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(fit, range(60)):
            np.testing.assert_array_equal(found, alone)


def test_tensors_with_a_gradient_and_coarse_ones():
    X, y = problem()
    expected = quick(epochs=1).fit(X, y).predict_proba(X)
    T = torch.from_numpy(X).requires_grad_()
    np.testing.assert_array_equal(quick(epochs=1).fit(T, y).predict_proba(T), expected)
    coarse = T.bfloat16() + torch.eye(5)
    assert quick(epochs=1).fit(coarse.bfloat16(), y).predict(coarse.half()).shape == (60,)


@pytest.mark.parametrize("names", [["a", "b"], [3, 1]])
def test_domains_of_objects_are_those_of_their_values(names):
    X, y, _ = recordings(0, ["a", "b"])
    who = np.repeat(names, 30)
    settings = {"model": "tsmnet", "dims": (4, 2), "epochs": 1, "device": "cpu"}
    classifier = quick(**settings).fit(X, y, domains=who)
    other = quick(**settings).fit(X, y, domains=who.astype(object))
    assert other.domains_.tolist() == classifier.domains_.tolist() == sorted(names)
    np.testing.assert_array_equal(
        other.predict_proba(X, domains=list(who)),
        classifier.predict_proba(X, domains=who.astype(object)),
    )


def test_domains_are_routed_through_cross_validation():
    X, y, who = recordings(0, ["a", "b"])
    with config_context(enable_metadata_routing=True):
        classifier = quick(model="tsmnet", dims=(8, 4))
        classifier.set_fit_request(domains=True).set_score_request(domains=True)
        scores = cross_val_score(classifier, X, y, cv=2, params={"domains": who})
    assert scores.mean() > 0.8


X, Y = problem(10)
NAN = X.copy()
NAN[3, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: quick().fit(X[0], Y[:5]), ValueError, r"\(n_matrices, n, n\), got \(5, 5\)"),
        (lambda: quick().fit(X[:0], Y[:0]), ValueError, "at least one matrix"),
        (
            lambda: quick().fit(X[:, :3], Y),
            ValueError,
            r"got \(10, 3, 5\); if these are signals",
        ),
        (lambda: quick().fit(X[:, :3], Y), ValueError, r"covariance.estimate\(X\), or .*'tsmnet'"),
        (lambda: quick().fit(X, Y[:5]), ValueError, "one label for each of 10 samples, got 5"),
        (lambda: quick().fit(X, ["a"] * 10), ValueError, "at least two classes, got one: 'a'$"),
        (lambda: quick().fit(X, np.zeros(10)), ValueError, "two classes, got one: 0.0$"),
        (lambda: quick().fit(X, np.linspace(0, 1, 10)), ValueError, "Unknown label type"),
        (lambda: quick().fit(NAN, Y), ValueError, r"SPDNetClassifier: .*X\[3\] contains NaN"),
        (lambda: quick().fit(-X, Y), ValueError, r"X\[0\] is not positive definite"),
        (lambda: quick().fit(0 * X, Y), ValueError, r"X\[0\] is zero; 10 of 10"),
        (lambda: quick().fit(np.triu(X), Y), ValueError, r"X\[0\] is not symmetric.*symmetrize"),
        (lambda: quick().fit(X * 1j, Y), ValueError, r"X\[0\] is not Hermitian.*symmetrize"),
        (lambda: quick().fit(X.astype(str), Y), TypeError, "numbers, got dtype <U"),
        (lambda: quick(recipe="best").fit(X, Y), ValueError, "'auto', 'fast', 'paper', got 'best'"),
        (lambda: quick(dims=(9,)).fit(X, Y), ValueError, r"non-increasing sizes, got 5 -> 9"),
        (lambda: quick(dims=8).fit(X, Y), TypeError, "SPDNetClassifier: expected dims .* got 8"),
        (lambda: quick(dims="8,4").fit(X, Y), TypeError, "sequence of matrix sizes .* got '8,4'"),
        (lambda: quick(lr=-1).fit(X, Y), ValueError, "lr >= 0"),
        (lambda: quick(dtype="half").fit(X, Y), ValueError, "dtype to be one of"),
        (lambda: quick().fit(X, Y, np.ones(3)), ValueError, r"sample_weight of shape \(10,\)"),
        (lambda: quick().fit(X, Y, -np.ones(10)), ValueError, "not negative"),
        (lambda: quick().fit(X, Y, np.zeros(10)), ValueError, "not all zero"),
        (lambda: quick().fit(X, Y).predict(X[:, :3, :3]), ValueError, r"\(..., 5, 5\)"),
        (
            lambda: quick(early_stopping=True, validation_fraction=2).fit(X, Y),
            ValueError,
            "validation_fraction > 0 and < 1",
        ),
    ],
)
def test_messages(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("n", [8, 93, 200, 400])
def test_regularised_covariances_are_accepted_in_float32(n):
    rng = np.random.default_rng(0)
    common = 5 * rng.standard_normal((6, 1, 60))  # one component that dominates all channels
    X = covariance.estimate((rng.standard_normal((6, n, 60)) + common).astype(np.float32))
    assert X.dtype == np.float32
    for values, dtype in ((X, torch.float64), (X, torch.float32), (X.astype(float), torch.float32)):
        checked_matrices("test", values, dtype=dtype, device=torch.device("cpu"))
    assert not len(examine(X).bad)


def test_what_is_not_symmetric_is_refused_beside_a_large_channel():
    good = np.tile(np.diag([1e6, 1.0, 1, 1, 1]), (6, 1, 1))
    askew, triangle, side = (
        good.copy(),
        good.copy(),
        np.tile(np.diag([1, 1, 1, 1e-3, 1e-3]), (6, 1, 1)),
    )
    askew[:, 3, 4], askew[:, 4, 3] = 0.9, -0.9
    triangle[:, 1:, 1:] += 0.9 * np.triu(np.ones((4, 4)), 1)
    side[:, 3, 4] = 3e-4
    for X in (askew, triangle, side):
        with pytest.raises(ValueError, match="not symmetric"):
            quick(epochs=1).fit(X, np.arange(6) % 2)


def test_what_float32_cannot_hold_is_refused():
    X, y = problem()
    classifier = quick(epochs=1, dtype="float32").fit(X, y)
    for scale in (1e-40, 1e-50, 1e-100):
        with pytest.raises(ValueError, match="is too small"):
            classifier.predict(scale * X)
    assert quick(epochs=1).fit(1e-100 * X, y).predict(1e-100 * X).shape == y.shape


def test_singular_matrices_that_training_did_not_have():
    X, y = load_digits_spd()
    X, y = X[:60, :6, :6], y[:60] % 2
    new = np.array(X[:9])
    new[[2, 5]] = new[[2, 5], :, :1] * new[[2, 5], :1, :]  # of rank 1
    classifier = SPDNetClassifier(recipe="fast", epochs=1, random_state=0).fit(X, y)
    expected = (
        r"X\[2\] is singular .* affected: 2, 5; no training matrix was singular: train with some"
    )
    with pytest.raises(ValueError, match=expected):
        classifier.predict(new)
    with pytest.raises(ValueError, match=r"alike with spdnet\.covariance\.regularize"):
        SPDNetClassifier(recipe="fast").fit(new + 0j, y[:9])


@pytest.mark.parametrize("settings", [{"recipe": "paper"}, {"center": "none"}])
def test_matrices_below_the_threshold_are_warned_of(settings):
    X, y = load_digits_spd()
    classifier = SPDNetClassifier((17, 8, 4), epochs=1, random_state=0, **settings)
    with pytest.warns(RuntimeWarning, match="all eigenvalues of all 32 matrices are below eps"):
        classifier.fit(1e-12 * X[:60], y[:60])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.fit(X[:60], y[:60])


def test_signature_has_no_meaningless_types():
    assert "Any" not in str(inspect.signature(SPDNetClassifier))
