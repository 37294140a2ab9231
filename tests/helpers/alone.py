"""What an installed wheel can do in an empty folder, without the repository; see `make wheel`.

    python alone.py mmlkit-1.2.3-py3-none-any.whl

It also checks the size of the wheel: at most 1 MB without the mini data.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import mmlcourse
from mmlcourse.batch.experiments import known_experiments
from mmlcourse.batch.notebooks import find_notebooks
from mmlcourse.shipped import drawing, results
from mmlkit import LinearHead, MultitaskModel, evaluate, fit, load_pretrained, load_task, predict

wheel = Path(sys.argv[1]).resolve()
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)
assert "site-packages" in mmlcourse.__file__, mmlcourse.__file__
assert (results("mml-tables-fast") / "mml-snli-0.json").is_file() and known_experiments()
assert len(find_notebooks(["all"])) == 13 and drawing("03")

encoder, tokenizer = load_pretrained("minilm", num_layers=1)
data = load_task("sst", source="mini", limit=200)
model = MultitaskModel(encoder, {"sst": LinearHead(384, 5, pooling="mean")})
fit(model, data, epochs=1, lr=1e-4, head_lr=1e-3)
print(evaluate(model, data), predict(model, ["A quiet triumph."], task="sst"))

command = [Path(sys.executable).with_name("mmlkit"), "doctor"]
report = subprocess.run(command, stdout=subprocess.PIPE).stdout
assert b"profile fast" in report  # the status is 1: extras for notebooks are missing
mini = sum(i.compress_size for i in zipfile.ZipFile(wheel).infolist() if "/mini/" in i.filename)
size = wheel.stat().st_size - mini
print(f"{wheel.name}: {size:,} bytes, and {mini:,} of mini data")
assert size <= 1_000_000
os.chdir(wheel.parent)  # Windows removes no folder in which a process is
