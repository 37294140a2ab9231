"""The first cell of every notebook: what this machine offers, and how to keep the results.

The cell installs the library where it is missing and then calls `open_notebook`.
"""

import base64
import sys
from pathlib import Path

from mmlcourse.machine import COLAB_GB
from mmlcourse.shipped import drawing
from mmlkit import REPOSITORY

__all__ = ["open_notebook", "sentences"]

DRIVE = "/content/drive"


def open_notebook(number, profile="fast", output_dir="../runs"):
    """Print advice on this machine, and show the drawing of the notebook where its file is missing.

    Nothing is printed where there is nothing to do.

    Args:
        number: of the notebook, such as "03".
        profile: the profile that was chosen: "fast", "colab" or "paper".
        output_dir: the folder for the results.
    """
    from mmlcourse.machine import capacity

    on_colab = "google.colab" in sys.modules
    for sentence in sentences(capacity(), profile, output_dir, on_colab):
        print(sentence)
    path = drawing(number)
    if not Path("images", path.name).is_file():  # the notebook was opened alone
        from IPython.display import HTML, display

        code = base64.b64encode(path.read_bytes()).decode()
        alt = f"The drawing of notebook {number}, described above."
        display(HTML(f'<img alt="{alt}" src="data:image/svg+xml;base64,{code}">'))


def sentences(machine, profile, output_dir, on_colab):
    """Return what a reader should know before the first cell of a notebook.

    Args:
        machine: a dict of `machine.capacity`.
        profile: the profile that was chosen.
        output_dir: the folder for the results.
        on_colab: whether the notebook runs on Colab.

    Returns:
        A list of sentences. It is empty where there is nothing to do.
    """
    gpu, gpu_gb, found = machine["gpu"], machine["gpu_gb"], []
    if gpu:
        found.append(f"GPU: {gpu}, {gpu_gb} GB. " + _profile_for(gpu_gb, profile))
    elif on_colab:
        found.append(
            "No GPU. The profile 'fast' needs none. For 'colab', open the menu Runtime > Change "
            "runtime type, choose T4 GPU, and run all cells again."
        )
    elif profile != "fast":
        found.append(
            f"No GPU: the profile {profile!r} takes many hours on a CPU. profile = 'fast' takes "
            "minutes."
        )
    if on_colab and not Path(output_dir).resolve().is_relative_to(DRIVE):
        found.append(
            f"Files in {output_dir} are lost when Colab ends the session. To keep them, run "
            f"`from google.colab import drive; drive.mount({DRIVE!r})`, and set output_dir = "
            f"'{DRIVE}/MyDrive/mmlkit' in the cell of parameters."
        )
    if on_colab:
        found.append(f"Links between notebooks work on https://github.com/{REPOSITORY}, not here.")
    return found


def _profile_for(gpu_gb, profile):
    if gpu_gb < COLAB_GB:
        return f"The profile 'colab' is written for {COLAB_GB} GB or more; 'fast' runs anywhere."
    if profile == "fast":
        return "Set profile = 'colab' for BERT-base and the real data sets."
    return f"The profile {profile!r} can run."
