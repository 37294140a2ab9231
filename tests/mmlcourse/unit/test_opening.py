"""The first cell of a notebook: advice for each machine, and the files of an installed wheel."""

import shutil
import tarfile
from pathlib import Path

import pytest

from mmlcourse import shipped
from mmlcourse.lessons import opening

ROOT = Path(__file__).resolve().parents[3]
NONE, T4 = dict(gpu=None, gpu_gb=0), dict(gpu="Tesla T4", gpu_gb=14.7)
SMALL = dict(gpu="GTX", gpu_gb=4.0)


@pytest.mark.parametrize(
    ("machine", "profile", "on_colab", "parts"),
    [
        (NONE, "fast", False, []),
        (NONE, "colab", False, ["takes many hours on a CPU"]),
        (NONE, "fast", True, ["Runtime > Change runtime type", "are lost", "Links between"]),
        (T4, "fast", True, ["GPU: Tesla T4, 14.7 GB. Set profile = 'colab'", "are lost", "Links"]),
        (T4, "colab", False, ["The profile 'colab' can run"]),
        (SMALL, "colab", False, ["written for 14 GB or more"]),
    ],
)
def test_the_advice_fits_the_machine(machine, profile, on_colab, parts):
    found = opening.sentences(machine, profile, "../runs", on_colab)
    assert len(found) == len(parts), found
    assert all(part in sentence for part, sentence in zip(parts, found)), found


def test_a_mounted_drive_needs_no_advice():
    drive = "/content/drive/MyDrive/mmlkit"
    _, sentence, _ = opening.sentences(NONE, "fast", "/content/runs", True)
    assert f"output_dir = '{drive}'" in sentence and "drive.mount('/content/drive')" in sentence
    assert not [one for one in opening.sentences(NONE, "fast", drive, True) if "are lost" in one]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Pretend that the library is installed, and that the notebook lies alone in a folder."""
    package = tmp_path / "site-packages" / "mmlcourse"
    alone = tmp_path / "alone"
    for folder in (package / "results" / "lessons", package / "notebooks" / "images", alone):
        folder.mkdir(parents=True)
    (package / "results" / "lessons" / "02.json").write_text("{}")
    (package / "notebooks" / "images" / "00_map.svg").write_text("<svg/>")
    monkeypatch.setattr(shipped, "_PACKAGE", package)
    monkeypatch.chdir(alone)
    return package


def test_recorded_results_come_from_the_package(installed, capsys):
    assert shipped.results("none.json", "lessons/02.json") == installed / "results/lessons/02.json"
    assert shipped.results() == installed / "results" and not capsys.readouterr().out
    assert not shipped.results("lessons/03.json").exists()
    assert capsys.readouterr().out.startswith("Not found: results/lessons/03.json.")


def test_a_wheel_has_recorded_results_in_an_archive(installed, capsys):
    with tarfile.open(installed / "results.tar.xz", "w:xz") as archive:
        archive.add(installed / "results", "results")
    shutil.rmtree(installed / "results")
    assert shipped.results("lessons/02.json").read_text() == "{}" and not capsys.readouterr().out
    assert shipped.results() == shipped.results()
    assert shipped.drawing("00") == installed / "notebooks" / "images" / "00_map.svg"


def test_a_checkout_comes_before_the_package(installed, tmp_path, monkeypatch):
    (tmp_path / "mine" / "mmlkit").mkdir(parents=True)
    (tmp_path / "mine" / "results").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert shipped.shipped_folder("results") == installed / "results"  # not a checkout
    (tmp_path / "mine" / "mmlkit" / "__init__.py").write_text("")
    (tmp_path / "mine" / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "mine" / "notebooks")
    assert shipped.shipped_folder("results") == tmp_path / "mine" / "results"


def test_a_notebook_alone_shows_its_drawing(installed, tmp_path, monkeypatch):
    from IPython import display

    shown = []
    monkeypatch.setattr(display, "display", lambda one: shown.append(one.data))
    opening.open_notebook("00")
    assert len(shown) == 1 and "data:image/svg+xml;base64,PHN2Zy8+" in shown[0]
    (tmp_path / "alone" / "images").mkdir()
    (tmp_path / "alone" / "images" / "00_map.svg").write_text("<svg/>")
    opening.open_notebook("00")
    assert len(shown) == 1  # the text has shown it


def test_every_notebook_has_one_drawing():
    names = [path.stem for path in sorted((ROOT / "notebooks" / "src").glob("[0-9]*.py"))]
    found = [shipped.drawing(name[:2]) for name in names]
    assert len(found) == 13 and all(path.is_file() for path in found)
