import pytest

from spdnet.options.run import EMBEDDED
from spdnet.runs import Settings
from spdnet.runs.settings import from_mapping, read_toml
from spdnet.training import RECIPES


def test_the_recipe_gives_what_is_not_said():
    for name, recipe in RECIPES.items():
        assert Settings(data="digits", recipe=name).make_recipe() == recipe
    changed = Settings(data="digits", recipe="paper", lr=0.5, center="affine_invariant")
    assert changed.make_recipe().lr == 0.5
    assert changed.make_recipe().center == "affine_invariant"
    assert Settings(data="digits", center="none").make_recipe().center is None


@pytest.mark.parametrize(
    "settings",
    [
        Settings(data="digits"),
        Settings(data='a "quoted"\\path/ü.npz', recipe="paper", eps="10%", dims=(5, 4, 3)),
        Settings(data="a.npy", labels="y.txt", patience=3, test=0.0, val=0.5, baseline=False),
    ],
)
def test_toml_round_trip(settings, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(settings.to_toml(), encoding="utf-8")
    again = from_mapping(read_toml(path), "file")
    assert again.as_dict() == settings.as_dict()
    assert again.make_recipe() == settings.make_recipe()


def test_fractions():
    for recipe, val in (("auto", 0.0), ("fast", 0.1), ("paper", 0.1)):
        plain = Settings(data="a", recipe=recipe)
        assert plain.fractions(named_parts=False) == {"test": 0.2, "val": val}
        assert plain.fractions(named_parts=True) == {"test": 0, "val": 0}
        assert plain.changed(val=0.3).fractions(named_parts=True) == {"test": 0, "val": 0.3}
        assert plain.changed(val=0.3).fractions(named_parts=False) == {"test": 0.2, "val": 0.3}
        assert plain.changed(test=0.0).fractions(named_parts=False) == {"test": 0, "val": val}
    assert Settings(data="a", dims=(5, 3)).fractions(named_parts=False)["val"] == 0.1


def test_paths_become_absolute_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in EMBEDDED:
        assert Settings(data=name).with_absolute_paths().data == name
    assert Settings(data="a.npz").with_absolute_paths().data == str(tmp_path.resolve() / "a.npz")


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ValueError, match=r"got 'epoch'; did you mean 'epochs'\?"):
        from_mapping({"data": "digits", "epoch": 3}, "file")
    with pytest.raises(ValueError, match="got 'zzz'; known are data, labels"):
        from_mapping({"data": "digits", "zzz": 3}, "file")
    with pytest.raises(ValueError, match="expected data: the name 'digits'"):
        from_mapping({}, "file")
