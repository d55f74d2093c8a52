import numpy as np
import pytest

from spdnet.data.io.motion import read_amc, read_asf
from tests.cases import REAL_DATA

RAW = REAL_DATA / "hdm05_raw"
SKELETON = """# a leg
:version 1.10
:units
  length 0.5
  angle deg
:root
  order TX TY TZ RX RY RZ
:bonedata
  begin
    id 1
    name thigh
    direction 0 -1 0
    length 2
    axis 0 0 90 XYZ
    dof rx rz
  end
  begin
    id 2
    name shin
    direction 0 -1 0
    length 1
    axis 0 0 0 XYZ
  end
:hierarchy
  begin
    root thigh
    thigh shin
  end
"""
MOTION = """#!OML:ASF leg.ASF
:FULLY-SPECIFIED
:DEGREES
1
root 1 2 3 0 0 0
thigh 0 0
2
root 0 0 0 0 0 90
thigh 0 0
3
root 0 0 0 0 0 0
thigh 90 0
4
root 0 0 0 90 90 0
thigh 0 0
"""


@pytest.fixture
def leg(tmp_path):
    (tmp_path / "leg.asf").write_text(SKELETON)
    (tmp_path / "leg.amc").write_text(MOTION)
    return tmp_path


def test_a_leg_by_hand(leg):
    skeleton = read_asf(leg / "leg.asf")
    assert skeleton.joints == ["root", "thigh", "shin"]
    positions = read_amc(leg / "leg.amc", skeleton)
    expected = [
        [[2, 4, 6], [2, 0, 6], [2, -2, 6]],
        [[0, 0, 0], [4, 0, 0], [6, 0, 0]],  # about z: down becomes right
        [[0, 0, 0], [0, -4, 0], [0, -6, 0]],  # the thigh's x is the world's y: it turns on itself
        [[0, 0, 0], [-4, 0, 0], [-6, 0, 0]],  # about x: down becomes back; then about y
    ]
    np.testing.assert_allclose(positions, expected, atol=1e-12)


def test_radians(leg):
    skeleton = read_asf(leg / "leg.asf")
    expected = read_amc(leg / "leg.amc", skeleton)
    text = MOTION.replace(":DEGREES", ":RADIANS").replace("90", str(np.pi / 2))
    (leg / "leg.amc").write_text(text)
    np.testing.assert_allclose(read_amc(leg / "leg.amc", skeleton), expected, atol=1e-12)


@pytest.mark.skipif(not RAW.is_dir(), reason="needs the motion data")
def test_positions_of_the_database_s_own_parser():
    skeleton = read_asf(RAW / "HDM_mm.asf")
    ours = read_amc(RAW / "HDM_mm_grabHighR_021_120.amc", skeleton)
    with np.load(RAW / "HDM_mm_grabHighR_021_120_joints.npz") as file:
        assert [name.split("_@_")[-1] for name in file["names"]] == skeleton.joints
        np.testing.assert_allclose(ours, file["joints"], rtol=0, atol=1e-3)
    other = read_asf(RAW / "HDM_tr.asf")
    assert read_amc(RAW / "HDM_tr_grabHighR_023_120.amc", other).shape[1:] == (31, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name shin", "name thigh"), "once"),
        (("thigh shin", "thigh toe"), "toe"),
        (("length 2", "length two"), "skeleton"),
        ((":hierarchy", ":family"), "skeleton"),
        (("axis 0 0 90 XYZ", "axis 0 0 90 ZYX"), "ZYX"),
        ((":root", ":root\n  axis ZYX"), "ZYX"),
        ((":root", ":root\n  orientation 90 0 0"), "orientation"),
    ],
)
def test_bad_skeletons(leg, change, message):
    (leg / "leg.asf").write_text(SKELETON.replace(*change, 1))
    with pytest.raises(ValueError, match=message):
        read_asf(leg / "leg.asf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("thigh 0 0\n2", "2"), "thigh"),
        (("thigh 90 0", "thigh 90"), "2 numbers of 'thigh'"),
        (("thigh 90 0", "thigh 90 x"), "line 12"),
        (("thigh 90 0", "toe 90 0"), "toe"),
        ((MOTION, "1\n"), "without 'thigh'|without 'root'"),
        ((MOTION, ""), "none"),
    ],
)
def test_bad_motions(leg, change, message):
    (leg / "leg.amc").write_text(MOTION.replace(*change, 1))
    with pytest.raises(ValueError, match=message):
        read_amc(leg / "leg.amc", read_asf(leg / "leg.asf"))
