"""Likely wrong commands of a newcomer: each answer names the right one."""

import pytest

from mmlcourse.cli.main import main


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ([], "Start with `mmlkit doctor`, then `mmlkit run 00`"),
        (["notebooks"], "Did you mean `mmlkit run`?"),
        (["3"], "Did you mean `mmlkit run 3`?"),
        (["predct", "x"], "Did you mean `mmlkit predict`?"),
        (["sing"], "`mmlkit --help` says what each one does. Commands: doctor, run,"),
        (["run"], "Run one: mmlkit run 00"),
        (["run", "fast"], "Did you mean --profile fast?"),
        (["run", "finetunig"], "Did you mean 02_finetuning?"),
        (["predict"], 'mmlkit predict --model runs/first-model "A quiet triumph."'),
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
