"""Builds the committed notebooks from their percent-format masters: one clean run each, on the fast profile.

    python notebooks/build.py            all
    python notebooks/build.py 01 02      some

The outputs come from that one run. The metadata records the master's hash, so that a test can tell
when they are stale; widget state and times are left out, so that a rebuild changes only what
changed. The frames of sliders go to docs/frames, see frames.py.
"""

import argparse
import base64
import hashlib
import io
import os
import re
import shutil
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FRAMES = HERE.parent / "docs" / "frames"
KEPT = {"tags", "jupyter", "cellView"}  # cell metadata worth keeping
TITLES = {  # of folded cells, by tag
    "bootstrap": "Set-up",
    "setup": "Set-up",
    "answer": "Answer",
    "solution": "Solution",
}
IN_FP32 = "import mmlkit.runtime; mmlkit.runtime.fastest_precision = lambda device: 'fp32'"
ADDED = {"injected-parameters", "write-frames"}  # the tags of cells that the run adds


def master_hash(path):
    """The hash of a master's text, line endings aside."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def build(master):
    """Runs one master and writes the notebook of the same name beside src/."""
    import jupytext
    import nbformat
    import torch

    import mmlkit
    from mmlcourse.batch.notebooks import run_notebook

    digest = master_hash(master)  # before the run: an edit during it must show as stale
    with tempfile.TemporaryDirectory() as scratch:
        plain, out = HERE / f".{master.stem}.ipynb", Path(scratch)
        try:
            notebook = numbered(jupytext.read(master))
            notebook.cells.insert(0, write_frames_cell(out, master.stem))
            nbformat.write(notebook, plain)  # beside the others, so that relative paths hold
            if not run_notebook(plain, out, {"profile": "fast"}):
                return False
        finally:
            plain.unlink(missing_ok=True)
        notebook = nbformat.read(out / plain.name, as_version=4)
        replace_frames(out, master.stem)
    cells = [cell for cell in notebook.cells if not ADDED & {*cell.metadata.get("tags", [])}]
    for count, cell in enumerate((cell for cell in cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
        cell.outputs = joined(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = count
            if "data" in output:
                output["data"].pop("application/vnd.jupyter.widget-view+json", None)
            if "image/png" in output.get("data", {}) and "mmlkit" not in output["metadata"]:
                output["data"]["image/png"] = smaller(output["data"]["image/png"])
            if "<details>" in output.get("data", {}).get("text/html", ""):  # of `folded`
                page = output["data"]["text/html"]
                page = re.sub(r"(?<=image/png;base64,)[\w+/=]+", lambda png: smaller(png[0]), page)
                output["data"]["text/html"] = page
    for cell in cells:
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in KEPT}
    notebook.cells = cells
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
        "mmlkit": {
            "master": f"src/{master.name}",
            "sha256": digest,
            "profile": "fast",
            "mmlkit": mmlkit.__version__,
            "torch": torch.__version__.split("+")[0],
        },
    }
    target, temporary = HERE / f"{master.stem}.ipynb", HERE / f".{master.stem}.tmp"
    nbformat.write(notebook, temporary)
    os.replace(temporary, target)
    return True


def joined(outputs):
    """Return the outputs with each text of a stream in one; a busy kernel sends it in parts."""
    found = []
    for output in outputs:
        last = found[-1] if found else {}
        if "text" in output and (last.get("name"), "text" in last) == (output["name"], True):
            last["text"] += output["text"]
        else:
            found.append(output)
    return found


def write_frames_cell(folder, stem):
    """The first cell of the run: sliders write their frames into a folder, and "auto" is fp32.

    A processor with bf16 would change every number that the text reads off the outputs.
    """
    import nbformat

    code = f"{IN_FP32}\nimport sys; sys.path.insert(0, {str(HERE)!r})\n"
    code += f"import frames; frames.write_frames({str(folder)!r}, {stem!r})"
    cell = nbformat.v4.new_code_cell(code, metadata={"tags": ["write-frames"]})
    cell["id"] = "write-frames"
    return cell


def replace_frames(folder, stem):
    """Moves the frames of a notebook from the folder of its run to docs/frames."""
    FRAMES.mkdir(exist_ok=True)
    for old in FRAMES.glob(f"{stem}_*.json"):
        old.unlink()
    for new in folder.glob(f"{stem}_*.json"):
        shutil.copy(new, FRAMES)


def smaller(png):
    """A base64 PNG with a palette, where no colour that an eye can tell apart is lost.

    A picture with a colour bar keeps all colours: a palette would draw bands where there are none.
    """
    from PIL import Image, ImageChops

    full = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    chosen = full
    for colours in () if has_colour_bar(full) else (256, 128):
        few = full.quantize(colours, method=Image.Quantize.MAXCOVERAGE, kmeans=1)
        lost = ImageChops.difference(full, few.convert("RGB")).convert("L").histogram()
        if sum(lost[9:]) / sum(lost) < 1e-3:  # pixels that differ by more than 8 of 255
            chosen = few
    out = io.BytesIO()
    chosen.save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def has_colour_bar(image):
    """Whether an RGB image shows many colours of cividis, the map of all our heat maps."""
    from matplotlib import colormaps

    known = {tuple(one) for one in colormaps["cividis"](range(256), bytes=True)[:, :3].tolist()}
    return len(known & {colour for _, colour in image.getcolors(1 << 24)}) > 40


def numbered(notebook):
    """Gives cells ids by their place, so that a rebuild does not change them, and folds some."""
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{i:02d}"
        fold(cell)
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def fold(cell):
    """Hide the source of a set-up or answer cell, in JupyterLab and, as a form, in Colab."""
    titles = [TITLES[tag] for tag in cell.metadata.get("tags", []) if tag in TITLES]
    if not titles or (titles == ["Answer"] and "folded(" not in cell.source):
        return
    cell.metadata |= {"jupyter": {"source_hidden": True}, "cellView": "form"}
    if not cell.source.startswith("# @title"):
        named = re.search(r'folded\("(.+?)"', cell.source)
        cell.source = f"# @title {named[1] if named else titles[0]}\n{cell.source}"


def main(wanted):
    """Builds the masters whose number is given, or all."""
    masters = [
        path
        for path in sorted((HERE / "src").glob("[0-9][0-9]_*.py"))
        if not wanted or path.stem.split("_")[0] in wanted
    ]
    if not masters:
        raise SystemExit(f"No master in {HERE / 'src'} is called {' or '.join(wanted)}.")
    failed = [master.stem for master in masters if not build(master)]
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="such as 01; by default all")
    main(parser.parse_args().numbers)
