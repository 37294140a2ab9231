"""What a notebook needs beside the methods that it teaches: its opening, checks and plots.

    contents    the list of the notebooks, and which of them run on a machine
    opening     the first cell of every notebook
    profiles    the three sizes of a run: `fast`, `colab` and `paper`
    answers     an answer that is seen, folded until the reader opens it
    checks      feedback on exercises
    plots       figures and sliders

All notebooks use it. Methods and models do not belong here.
"""
