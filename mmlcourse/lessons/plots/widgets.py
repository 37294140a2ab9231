"""Sliders and text boxes: a static result always, a moving one where a live front end exists."""

import threading

from mmlkit.runtime import is_interactive

__all__ = ["sliders", "text_boxes"]

READOUT = 20  # letters: the widgets' own style cuts the value beside a slider at 148 pixels

# JupyterLab may handle two moves in two threads of the kernel, and pyplot's figures belong to both.
_drawing = threading.RLock()


def sliders(draw, *, start=None, show=True, **choices):
    """Draw one figure at the start values, and again at every move where a live front end exists.

    Args:
        draw: a function of keyword arguments that draws one figure.
        start: {argument: value at the start}; the first choice of an argument that is left out.
        show: whether the static figure is drawn where there are no sliders.
        **choices: the values of each argument, in the order in which they lie on its slider.
            Long texts get a menu instead of a slider. A text instead of a list of values gets a
            text box.
    """
    texts = {name: values for name, values in choices.items() if isinstance(values, str)}
    choices = {name: [v] if name in texts else list(v) for name, v in choices.items()}
    start = {name: values[0] for name, values in choices.items()} | (start or {})
    if is_interactive():
        from ipywidgets import interact

        boxes = _text_boxes(texts, continuous_update=False)
        controls = {name: _control(name, v, start[name]) for name, v in choices.items()}
        interact(_alone(draw), **{**controls, **boxes})
    elif show:
        _say_that_a_kernel_is_needed(texts)
        _alone(draw)(**start)


def text_boxes(show, **texts):
    """Show a result for the given texts, and for the reader's own where a live front end exists.

    Args:
        show: a function of keyword arguments that prints or draws the result of some texts.
        **texts: the text of each argument at the start.
    """
    if not is_interactive():
        _say_that_a_kernel_is_needed(texts)
    _alone(show)(**texts)
    if is_interactive():
        from ipywidgets import interact_manual

        run = interact_manual.options(manual_name="Predict")
        run(_alone(show), **_text_boxes(texts))


def _alone(draw):
    """Return a function that draws and shows one figure while no other thread shows figures."""
    import matplotlib.pyplot as plt

    def redraw(**chosen):
        # In interactive mode, the end of a cell or message in another thread shows half a figure.
        with _drawing, plt.ioff():
            draw(**chosen)
            plt.show()

    return redraw


def _say_that_a_kernel_is_needed(texts):
    """Print the given texts, because a text of the reader's own needs a kernel."""
    if texts:
        given = ", ".join(f"{name} = {text!r}" for name, text in texts.items())
        print(f"Without a running kernel: {given}")


def _text_boxes(texts, **look):
    """{argument: text box}."""
    from ipywidgets import Layout, Text

    wide = dict(style={"description_width": "initial"}, layout=Layout(width="48em"), **look)
    return {name: Text(value=text, description=name, **wide) for name, text in texts.items()}


def _control(name, values, value):
    """A slider, or a menu where the longest value does not fit beside a slider."""
    from ipywidgets import Dropdown, Layout, SelectionSlider

    look = dict(
        options=values, value=value, description=name, style={"description_width": "initial"}
    )
    if max(len(str(one)) for one in values) > READOUT:
        return Dropdown(**look, layout=Layout(width="max-content", max_width="100%"))
    return SelectionSlider(
        **look, continuous_update=False, layout=Layout(width="32em", max_width="100%")
    )
