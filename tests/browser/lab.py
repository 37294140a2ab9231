"""JupyterLab in a real browser: a private server, a notebook in it, and the widgets of its cells.

No function waits for a fixed time. Every wait ends with a message of the kernel or with a change in
the page.
"""

import contextlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

# Limits in seconds. They only stop what hangs, so they have room for a busy machine.
START = 300  # the server, the page or a kernel
REDRAW = 300  # the kernel, after the move of a slider
RENDER = 60  # the page, after the kernel has finished

SETTINGS = {  # by default JupyterLab asks whether to request news, and then requests them
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}
}
OPTIONS = (
    "--no-browser",
    "--allow-root",
    "--ip=127.0.0.1",
    "--LabApp.expose_app_in_browser=True",  # the page has window.jupyterapp
    "--LabApp.extension_manager=readonly",  # no request to a package index
)
# Only the address of the server exists for the browser.
BROWSER_OPTIONS = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]

# Errors of JupyterLab itself, as (regular expression, reason).
HARMLESS = []


def missing():
    """Return what these tests lack on this machine, as a sentence, or None."""
    if not importlib.util.find_spec("playwright"):
        return "Playwright is missing: `make browser` installs it"
    if not CHROMIUM:
        return "Chromium is missing: apt-get install chromium"
    lacking = [name for name in ("jupyterlab", "ipywidgets") if not importlib.util.find_spec(name)]
    return f"{' and '.join(lacking)} is missing: `make install` installs it" if lacking else None


# ---- the server ----


@contextlib.contextmanager
def jupyter_lab(folder, private):
    """Run JupyterLab on a folder.

    Args:
        folder: The folder with the notebooks.
        private: An empty folder. Settings and other files of Jupyter are stored there, so that the
            user's own settings have no effect.

    Yields:
        A function that returns the address of a notebook, given its path in the folder.
    """
    for name, values in SETTINGS.items():
        path = private / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    token = secrets.token_hex(16)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = private / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *OPTIONS, f"--port={port}"],
            cwd=folder,
            env=_environment(private, token),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        base = _wait_for_server(server, private / "runtime", token, log)
        yield lambda path: f"{base}lab/tree/{path}?reset&token={token}"
    finally:
        _stop(server)


def _environment(private, token):
    """Return the environment of the server: a person's session, not a headless run."""
    headless = ("CI", "MMLKIT_HEADLESS", "MPLBACKEND", "PYTEST_CURRENT_TEST")
    kept = {name: value for name, value in os.environ.items() if name not in headless}
    return {
        **kept,
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_DIR": str(private / "config"),
        "JUPYTER_DATA_DIR": str(private / "data"),
        "JUPYTER_RUNTIME_DIR": str(private / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(private / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(private / "workspaces"),
        "IPYTHONDIR": str(private / "ipython"),
        "HF_HUB_OFFLINE": "1",
    }


def _wait_for_server(server, runtime, token, log):
    """Return the address of the server. It takes the next port if another process was faster."""
    end = time.monotonic() + START
    while time.monotonic() < end and server.poll() is None:
        try:
            base = json.loads((runtime / f"jpserver-{server.pid}.json").read_text())["url"]
            request = urllib.request.Request(
                base + "api/status", headers={"Authorization": f"token {token}"}
            )
            with urllib.request.urlopen(request, timeout=START):
                return base
        except (OSError, ValueError):  # not written, not complete, or not listening yet
            time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start. Its last lines:\n{log.read_text()[-3000:]}")


def _stop(server):
    """Stop the server, which stops its kernels; then everything that is left of its group."""
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


@contextlib.contextmanager
def chromium():
    """Yield a Chromium that Playwright drives."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_OPTIONS)
        yield browser
        browser.close()


# ---- a notebook in the page ----

PANEL = "window.jupyterapp?.shell?.currentWidget"
SESSION = f"{PANEL}?.sessionContext"
READY = f"{SESSION}?.isReady && {SESSION}.session?.kernel?.status === 'idle'"
# The numbers of messages to the kernel, and of those that the kernel has not finished.
WATCH = f"""() => {{
    const open = new Set();
    window.messages = {{sent: 0, open: 0}};
    {PANEL}.sessionContext.session.kernel.anyMessage.connect((_, {{direction, msg}}) => {{
        if (direction === 'send' && msg.channel === 'shell') {{
            open.add(msg.header.msg_id);
            window.messages.sent += 1;
        }} else if (msg.content.execution_state === 'idle') {{
            open.delete(msg.parent_header.msg_id);
        }}
        window.messages.open = open.size;
    }});
}}"""
# An `await` here would wait for ever behind a dialog, so the result is a variable of the page.
RUN_ALL = """() => {
    const execute = name => window.jupyterapp.commands.execute(`notebook:${name}`);
    window.ran = null;
    execute('clear-all-cell-outputs').then(() => execute('run-all-cells')).then(
        () => { window.ran = 'all'; }, error => { window.ran = String(error); });
}"""
# What a message about a failure says of the page.
STATE = """() => ({
    focus: document.activeElement?.outerHTML.slice(0, 200),
    dialogs: [...document.querySelectorAll('.jp-Dialog')].map(one => one.innerText),
    messages: window.messages,
})"""
CODE_CELLS = f"""() => {PANEL}.content.widgets.flatMap((cell, index) => cell.model.type !== 'code'
    ? [] : [{{index, source: cell.model.sharedModel.source, count: cell.model.executionCount,
              errors: cell.model.outputs.toJSON().filter(one => one.output_type === 'error')
                          .map(one => `${{one.ename}}: ${{one.evalue}}`)}}])"""
MARK_CELL = f"index => {PANEL}.content.widgets[index].node.setAttribute('data-tested', index)"
SHOWN = """root => {
    const output = root.querySelector('.widget-output');
    const pictures = [...output.querySelectorAll('img')];
    const errors = output.querySelectorAll('[data-mime-type$="error"], [data-mime-type$="stderr"]');
    return {
        pictures: pictures.map(one => one.complete && one.naturalWidth ? one.src : ''),
        text: output.textContent.trim(),
        errors: [...errors].map(one => one.textContent).join('\\n'),
    };
}"""
AT_LAST_VALUE = """control => {
    const menu = control.querySelector('select');
    const handle = control.querySelector('.noUi-handle');
    return menu ? menu.selectedIndex === menu.length - 1
                : Number(handle.ariaValueNow) === Number(handle.ariaValueMax);
}"""
# True when the control had the focus in three looks in a row.
KEEPS_FOCUS = """() => {
    if (document.activeElement === window.control) return ++window.kept >= 3;
    window.kept = 0;
    window.control.focus();
}"""


class Notebook:
    """A notebook that is open in JupyterLab.

    Attributes:
        page: The page of Playwright.
        problems: Console errors, exceptions of scripts, and requests to other addresses.
    """

    def __init__(self, browser, address):
        self.problems = []
        self.page = browser.new_page(viewport={"width": 1400, "height": 1400})
        self.page.set_default_timeout(1000 * START)
        self.page.on("console", self._read_console)
        self.page.on("pageerror", lambda error: self._add(f"script: {error}"))
        self.page.on("request", self._read_request)
        self.page.goto(address)
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
        self.wait_until(READY, "the kernel is not ready", START)
        self.page.evaluate(WATCH)

    def _add(self, problem):
        if not any(re.search(pattern, problem) for pattern, _ in HARMLESS):
            self.problems.append(problem)

    def _read_console(self, message):
        if message.type == "error":
            self._add(f"console: {message.text} ({message.location.get('url', '')})")

    def _read_request(self, request):
        if not re.match(r"(https?://127\.0\.0\.1[:/]|data:|blob:)", request.url):
            self._add(f"request: {request.url}")

    def run_all(self, limit):
        """Clear the saved outputs, run all cells, and wait until the kernel is idle.

        Args:
            limit: The seconds after which the test fails.

        Raises:
            AssertionError: A cell failed or did not run.
        """
        self.page.evaluate(RUN_ALL)
        self.wait_until("window.ran !== null", "the cells are still running", limit)
        self.wait_until("!messages.open", "the kernel is still busy", limit)
        cells = self.page.evaluate(CODE_CELLS)
        failed = [f"cell {cell['index']}: {error}" for cell in cells for error in cell["errors"]]
        idle = [cell["index"] for cell in cells if cell["source"].strip() and not cell["count"]]
        assert not failed and not idle, f"cells that failed: {failed}, that did not run: {idle}"
        assert self.page.evaluate("window.ran") == "all"

    def wait_until(self, condition, problem, limit):
        """Wait until an expression of JavaScript is true. After the limit, the test fails.

        Raises:
            AssertionError: The expression is still false.
        """
        from playwright.sync_api import TimeoutError

        try:  # Playwright's default, a look in every frame of the screen, keeps a core busy
            self.page.wait_for_function(f"() => {condition}", timeout=1000 * limit, polling=100)
        except TimeoutError as error:
            raise AssertionError(f"{problem}. {self.page.evaluate(STATE)}") from error

    def widgets(self, index):
        """Return the Widgets of a cell."""
        self.page.evaluate(MARK_CELL, index)
        root = self.page.locator(f'[data-tested="{index}"] .widget-interact')
        root.scroll_into_view_if_needed()
        return Widgets(self, root)

    def close(self):
        """Stop the kernel and close the page, if it is still open."""
        if self.page.is_closed():
            return
        with contextlib.suppress(Exception):  # the server stops what is left
            self.page.evaluate(f"() => {PANEL}.sessionContext.shutdown()")
        self.page.close()


class Widgets:
    """The controls that `sliders` or `text_boxes` shows in one cell, and the output below them.

    Attributes:
        root: Locator of the element that holds both.
    """

    def __init__(self, notebook, root):
        self.page, self.wait_until, self.root = notebook.page, notebook.wait_until, root

    def names(self):
        """Return the descriptions of the controls, from top to bottom."""
        # Not the inner text: that is empty until the browser has rendered the cell.
        return self.root.locator(".widget-label").all_text_contents()

    def control(self, name):
        """Return a locator of the control with this description."""
        label = self.page.locator(".widget-label", has_text=re.compile(f"^{re.escape(name)}$"))
        return self.root.locator(".widget-inline-hbox").filter(has=label)

    def value(self, name):
        """Return the value that a slider or menu shows, as text."""
        shown = self.control(name).locator(".widget-readout, option:checked")
        return shown.text_content().replace("\xa0", " ")  # ipywidgets replaces the spaces in menus

    def possible_step(self, name):
        """Return 1, or -1 where a slider or menu is at its last value."""
        return -1 if self.control(name).evaluate(AT_LAST_VALUE) else 1

    def step(self, name, step):
        """Move a slider or menu to the next (1) or previous (-1) value, with the keyboard."""
        control = self.control(name).locator(".noUi-handle, select")
        self._focus(control)
        if control.evaluate("control => control.matches('select')"):
            # JupyterLab uses the arrow keys to choose a cell, unless the menu is open.
            self.page.keyboard.press(" ")
            self.wait_until("document.querySelector('select:open')", "the menu is closed", RENDER)
            self.page.keyboard.press("ArrowDown" if step == 1 else "ArrowUp")
            self.page.keyboard.press("Enter")
        else:
            self.page.keyboard.press("ArrowRight" if step == 1 else "ArrowLeft")

    def text_box(self, name):
        """Return a locator of the text box of a control; it finds nothing in other controls."""
        return self.control(name).locator("input[type=text]")

    def write(self, name, text):
        """Write a text into a text box, and press Enter."""
        self.text_box(name).fill(text)
        self.text_box(name).press("Enter")

    def _focus(self, control):
        """Focus a control until it keeps the focus: JupyterLab gives it to a cell after a run."""
        control.evaluate("control => { window.control = control; window.kept = 0; }")
        self.wait_until(f"({KEEPS_FOCUS})()", "the control loses the focus", RENDER)

    def drag(self, name, share):
        """Drag the handle of a slider to a share of its length, with the mouse."""
        handle = self.control(name).locator(".noUi-handle").bounding_box()
        track = self.control(name).locator(".noUi-base").bounding_box()
        height = handle["y"] + handle["height"] / 2
        self.page.mouse.move(handle["x"] + handle["width"] / 2, height)
        self.page.mouse.down()
        self.page.mouse.move(track["x"] + share * track["width"], height, steps=5)
        self.page.mouse.up()

    def output(self):
        """Wait until the output shows something; returns the pictures, or else the text."""
        return self._wait_for_output("nothing is shown", lambda output: True, RENDER)

    def output_after(self, act, *, before, what, patience=RENDER):
        """Act on a control, and wait until the output shows something else.

        Args:
            act: A function that acts on a control.
            before: The output before, as `output` returns it.
            what: Words for the action, for messages.
            patience: The seconds that the page has after the kernel has finished.

        Returns:
            The new output.

        Raises:
            AssertionError: The kernel received no message, drawing failed, or the output stayed.
        """
        sent = self.page.evaluate("window.messages.sent")
        act()
        self.wait_until(f"messages.sent > {sent}", f"{what}: the kernel has no message", patience)
        self.wait_until("!messages.open", f"{what}: the kernel is still busy", REDRAW)
        stayed = f"{what}: the output stayed the same"
        return self._wait_for_output(stayed, lambda output: output != before, patience)

    def _wait_for_output(self, problem, accept, limit):
        end = time.monotonic() + limit
        while True:
            shown = self.root.evaluate(SHOWN)
            assert not shown["errors"], f"{problem}. The output has an error:\n{shown['errors']}"
            output = " ".join(shown["pictures"]) or shown["text"]
            if output and all(shown["pictures"]) and accept(output):
                return output
            assert time.monotonic() < end, f"{problem}. Its text: {shown['text']!r}"
            self.page.wait_for_timeout(50)
