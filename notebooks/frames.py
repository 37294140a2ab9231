"""Draws every state of a slider while build.py runs a notebook, so that the site needs no kernel.

build.py calls `write_frames` in the kernel of the notebook. A slider then shows its static picture
and writes a file {"sliders": {name: values}, "start": index, "titles": [...], "frames": [...]}. A
state is one combination of values, in the order of itertools.product. The frame at the start is the
picture in the notebook. The other frames lie over it and are transparent where they equal it.
"""

import base64
import io
import itertools
import json
from pathlib import Path
from unittest.mock import patch

from build import has_colour_bar, smaller

MOST = 80  # states of one figure
MARGIN = 4  # pixels: a browser that makes a picture smaller mixes neighbours


def write_frames(folder, stem):
    """Make `mmlcourse.lessons.plots.sliders` write the files NAME_1.json, NAME_2.json and so on.

    Args:
        folder: where the files go.
        stem: NAME, the name of the notebook.
    """
    from mmlcourse.lessons import plots

    static, names = plots.sliders, (f"{stem}_{i}" for i in itertools.count(1))

    def sliders(draw, **keywords):
        path = Path(folder) / f"{next(names)}.json"
        draw_states(static, path, draw, **keywords)

    plots.sliders = sliders


def draw_states(static, path, draw, *, start=None, show=True, **choices):
    """Show the static picture of some sliders, and write the frames of all their states.

    Args:
        static: the function `mmlcourse.lessons.plots.sliders`.
        path: of the file of frames.
        draw: as in `mmlcourse.lessons.plots.sliders`.
        start: as there.
        show: as there.
        **choices: as there. A text box keeps its text in all states.

    Raises:
        ValueError: there are more than 80 states.
    """
    import matplotlib.pyplot as plt
    from IPython.display import display

    from mmlkit.runtime import seeded

    choices = {name: v if isinstance(v, str) else list(v) for name, v in choices.items()}
    first = {}

    def draw_first(**chosen):
        first.update(chosen)
        draw(**chosen)

    with patch.object(plt, "show"):
        static(draw_first, start=start, show=show, **choices)
    if not plt.get_fignums():  # nothing to draw
        return
    values = [[v] if isinstance(v, str) else v for v in choices.values()]
    states = [dict(zip(choices, state)) for state in itertools.product(*values)]
    if len(states) > MOST:
        raise ValueError(
            f"{path.stem}: the sliders have {len(states)} states, expected at most {MOST}. Give "
            "them fewer values."
        )
    at, figures = states.index(first), []
    at_start = plt.gcf()
    # The seed: later cells draw the same random numbers as without frames.
    with seeded(0), plt.rc_context({"figure.max_open_warning": 0}):
        for state in states:
            if state != first:
                draw(**state)
            figures.append(at_start if state == first else plt.gcf())
    frames = encoded(figures, at)
    plt.close("all")
    sliders = {name: [*map(str, v)] for name, v in choices.items() if not isinstance(v, str)}
    record = {"sliders": sliders, "start": at, "titles": [*map(titles, figures)], "frames": frames}
    path.write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")
    data = {"image/png": frames[at], "text/plain": repr(figures[at])}
    display(data, raw=True, metadata={"mmlkit": {"frames": path.stem}})


def encoded(figures, at):
    """Return the figures as base64 PNG of one size, transparent where they equal figure `at`."""
    from matplotlib.transforms import Bbox
    from PIL import Image

    for figure in figures:
        figure.canvas.draw()  # the layout is computed here
    box = Bbox.union([figure.get_tightbbox() for figure in figures]).padded(0.1)
    images = []
    for figure in figures:
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=figure.dpi, bbox_inches=box)
        images.append(Image.open(out).convert("RGB"))
    frames = [overlay(image, images[at]) for image in images]
    out = io.BytesIO()
    images[at].save(out, "PNG")
    frames[at] = smaller(base64.b64encode(out.getvalue()))
    return frames


def overlay(image, base):
    """Return an image as base64 PNG with a palette, transparent where it equals `base`.

    Pixels near a difference are drawn too. Otherwise `base` would shine through at the edges.
    """
    from PIL import Image, ImageChops, ImageFilter

    same = ImageChops.difference(image, base).convert("L").point(lambda value: 255 * (value == 0))
    same = same.filter(ImageFilter.MinFilter(2 * MARGIN + 1))
    changed = Image.composite(Image.new("RGB", image.size), image, same)
    colours = 255 if has_colour_bar(changed) else 127  # lines and letters need few
    few = changed.quantize(colours, method=Image.Quantize.MAXCOVERAGE)
    few.putpalette((few.getpalette() + [0] * 768)[:768])
    few.paste(255, None, same)
    out = io.BytesIO()
    few.save(out, "PNG", optimize=True, transparency=255)
    return base64.b64encode(out.getvalue()).decode()


def titles(figure):
    """Return the titles of a figure and its axes, as one text."""
    places = itertools.product(figure.axes, ("left", "center", "right"))
    found = [figure.get_suptitle(), *(ax.get_title(loc=place) for ax, place in places)]
    return "; ".join(filter(None, found))
