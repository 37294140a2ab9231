"""Sliders: a static figure always, and the moving one where a live front end exists."""

from mmlkit.runtime import is_interactive

__all__ = ["sliders"]


def sliders(draw, *, show=True, **choices):
    """Draws once with the first of each choice, and again at every move of a slider when somebody watches.

    draw: a function of keyword arguments that draws one figure. choices: for each argument the list of values it may take.
    show: whether the static figure is drawn where there are no sliders. Raises ValueError for an empty list of choices.
    """
    import matplotlib.pyplot as plt

    for name, values in choices.items():
        if not list(values):
            raise ValueError(f"{name} has no values to choose from.")

    def redraw(**chosen):
        draw(**chosen)
        plt.show()

    if is_interactive():
        from ipywidgets import SelectionSlider, interact

        interact(redraw, **{name: SelectionSlider(options=list(values), description=name, continuous_update=False)
                            for name, values in choices.items()})
    elif show:
        redraw(**{name: list(values)[0] for name, values in choices.items()})
