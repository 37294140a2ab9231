"""An answer that is seen: what a cell prints and draws, folded until the reader opens it."""

import contextlib
import html

__all__ = ["folded"]


@contextlib.contextmanager
def folded(title="Answer"):
    """Show what a `with` statement prints and draws as one folded part of the page.

    Every front end folds HTML, but not every one folds an output. The printed text comes first,
    then tables and figures. Outside of IPython nothing is folded.

    Args:
        title: the line that opens the part.

    Yields:
        None.
    """
    from IPython import get_ipython
    from IPython.display import display
    from IPython.utils.capture import capture_output

    if get_ipython() is None:
        yield
        return
    with capture_output() as kept:
        yield
    parts = [f"<pre>{html.escape(kept.stdout)}</pre>"] if kept.stdout else []
    for data in (one.data for one in kept.outputs):
        image = f"data:image/png;base64,{data.get('image/png', '').strip()}"
        text = data.get("text/html") or f"<pre>{html.escape(data.get('text/plain', ''))}</pre>"
        parts.append(f'<img alt="{title}" src="{image}">' if "image/png" in data else text)
    page = f"<details>\n<summary>{title}</summary>\n" + "\n".join(parts) + "\n</details>"
    display({"text/html": page, "text/plain": kept.stdout or title}, raw=True)
