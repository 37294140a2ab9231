"""Ten likely wrong commands of a newcomer: each answer names the right one."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import mmlkit
from mmlcourse.cli.main import main

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ([], "Start with `mmlkit doctor`, then `mmlkit run 00`"),
        (["notebooks"], "Did you mean `mmlkit run`?"),
        (["3"], "Did you mean `mmlkit run 3`?"),
        (["02_finetuning.ipynb"], "Did you mean `mmlkit run 02_finetuning.ipynb`?"),
        (["walkthrough"], "Did you mean `mmlkit run all --profile fast`?"),
        (["predct", "x"], "Did you mean `mmlkit predict`?"),
        (["version"], "Did you mean `mmlkit --version`?"),
        (["test"], "Did you mean `make test`?"),
        (["sing"], "`mmlkit --help` says what each one does. Commands: doctor, run,"),
        (["run"], "Run one: mmlkit run 00"),
        (["run", "nothing"], "There is no notebook 'nothing'. Known: 00_start_here"),
        (["run", "fast"], "Did you mean --profile fast?"),
        (["run", "finetunig"], "Did you mean 02_finetuning?"),
        (["run", "03", "-p", "epochs"], "is not of the form NAME=VALUE"),
        (["predict"], 'mmlkit predict --model runs/first-model "A quiet triumph."'),
        (["predict", "a text"], "`mmlkit run 00` writes runs/first-model"),
        (["reproduce"], "Name one of them: mmlkit reproduce mml-tables"),
        (["reproduce", "mml"], "Did you mean 'mml-tables'?"),
    ],
)
def test_the_answer_names_the_right_command(typed, answer, capsys):
    try:
        status = main(typed)
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err
    assert answer in error and "Traceback" not in error, error
    assert status == (0 if typed == ["run"] else 2)


def test_numbers_and_files_of_notebooks_are_understood(capsys, tmp_path):
    for name in ("3", "03", "03_multiverse_loss", "03_multiverse_loss.ipynb"):
        assert main(["run", name, "--dry-run", "--out", str(tmp_path)]) == 0
        assert capsys.readouterr().out.startswith("03_multiverse_loss: output_dir=")


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("walktrough", "Did you mean 'make walkthrough'?"),
        ("tests", "Did you mean 'make test'?"),  # a folder
        ("sing", "The verbs are:"),
    ],
)
def test_make_names_the_nearest_verb(verb, answer):
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    done = subprocess.run(["make", verb], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and answer in done.stderr and "make quick" in done.stderr


def test_the_files_for_other_machines_are_valid():
    """conda and Binder read environment.yml, code hosts CITATION.cff, editors the dev container."""
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, _, pip = conda["dependencies"]
    assert python == "python=3.12" and pip["pip"][1:] == ["-r requirements.txt", "-e ."]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["version"] == mmlkit.__version__ and cited["license"] == "MIT"
    assert cited["repository-code"] == f"https://github.com/{mmlkit.REPOSITORY}"
    container = yaml.safe_load((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make install CPU=1"
    assert "CPU" in (ROOT / "Makefile").read_text(encoding="utf-8")
